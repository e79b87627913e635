"""Mistakes of programs: each is a Python exception of one line, and the process goes on."""

import gc
import os
import pathlib
import re
import signal
import sys
import threading
import time
import typing

import linnet as ln
import numpy as np
import pytest

X = np.ones((4, 3), np.float32)
IDS = np.zeros((4, 5), np.int32)


class Net(ln.Module):
    def __init__(self) -> None:
        self.fc = ln.Linear(3, 2)

    def forward(self, x: ln.Tensor) -> ln.Tensor:
        return self.fc(x)


def recorded(function: typing.Callable[..., typing.Any], *arrays: typing.Any) -> typing.Any:
    """A mistake while a loss is recorded; the function gets the net and tensors."""
    net = Net()
    arrays = arrays or (X,)
    names = [f"a{i}" for i in range(len(arrays))]
    scope: dict[str, typing.Any] = {"f": function, "net": net}
    loss = eval(f"lambda {', '.join(names)}: f(net, {', '.join(names)})", scope)
    return ln.Learner(net, loss, arrays)


def good(**options: typing.Any) -> ln.Learner:
    net = Net()
    return ln.Learner(net, lambda x: (net(x).sum(), {"y": net(x)}), {"x": X}, **options)


class Counter(ln.Module):
    def __init__(self) -> None:
        self.calls, self.scale = ln.Buffer((1,)), ln.parameter((3,))

    def forward(self, x: ln.Tensor) -> ln.Tensor:
        ln.update_buffer(self.calls, self.calls + 1)
        return (x * self.scale).mean()


KEPT: list[typing.Any] = []


def keep(net: Net, x: ln.Tensor) -> ln.Tensor:
    KEPT.append(net(x))
    return KEPT[-1].sum()


def endless(learner: ln.Learner) -> None:
    learner.fit({"x": X}, batch=4, epochs=10**7)


RECORDED: dict[str, typing.Any] = {
    "matmul of other sizes": lambda net, x: (x @ x).sum(),
    "linear of another width": lambda net, x: net(x[:, :2]).sum(),
    "add of other shapes": lambda net, x: (x + net(x)).sum(),
    "condition on a tensor": lambda net, x: net(x).sum() if x else 0,
    "loop over a tensor": lambda net, x: sum(row for row in x),
    "float of a tensor": lambda net, x: float(x),
    "numpy of a tensor": lambda net, x: np.sin(x),
    "tensor plus a text": lambda net, x: x + "1",
    "loss is no scalar": lambda net, x: net(x),
    "loss is a number": lambda net, x: 1.0,
    "loss is None": lambda net, x: None,
    "loss is a text": lambda net, x: "loss",
    "loss raises": lambda net, x: 1 / 0,
    "loss of three": lambda net, x: (net(x).sum(), {}, {}),
    "outputs are no dict": lambda net, x: (net(x).sum(), [net(x)]),
    "output is an array": lambda net, x: (net(x).sum(), {"y": X}),
    "output's name is no text": lambda net, x: (net(x).sum(), {1: net(x)}),
    "index out of range": lambda net, x: x[9].sum(),
    "index of too many axes": lambda net, x: x[0, 0, 0].sum(),
    "index by a list": lambda net, x: x[[0, 1]].sum(),
    "index by a text": lambda net, x: x["a"].sum(),
    "index by a tensor": lambda net, x: x[x].sum(),
    "slice with a step": lambda net, x: x[::2].sum(),
    "empty slice": lambda net, x: x[2:2].sum(),
    "reshape to other sizes": lambda net, x: x.reshape(5, 5).sum(),
    "reshape with two open sizes": lambda net, x: x.reshape(-1, -1).sum(),
    "reshape to a negative size": lambda net, x: x.reshape(-3, -4).sum(),
    "reshape by a text": lambda net, x: x.reshape("ab").sum(),
    "permute of too few axes": lambda net, x: x.permute(0).sum(),
    "permute of an axis twice": lambda net, x: x.permute(0, 0).sum(),
    "transpose of an axis that is not there": lambda net, x: x.transpose(0, 7).sum(),
    "sum over an axis that is not there": lambda net, x: x.sum(5),
    "max over an axis that is not there": lambda net, x: x.max(-9),
    "seven axes": lambda net, x: x.reshape(1, 1, 1, 1, 1, 4, 3).sum(),
    "type that is not there": lambda net, x: x.astype("complex64").sum(),
    "type that is nothing": lambda net, x: x.astype(None).sum(),
    "split of wrong sizes": lambda net, x: ln.split(x, [1, 1])[0].sum(),
    "split of negative sizes": lambda net, x: ln.split(x, [4, -1])[0].sum(),
    "chunk into parts that do not fit": lambda net, x: ln.chunk(x, 2)[0].sum(),
    "chunk into no parts": lambda net, x: ln.chunk(x, 0),
    "concat of nothing": lambda net, x: ln.concat([]),
    "concat of other shapes": lambda net, x: ln.concat([x, net(x)]).sum(),
    "concat of arrays": lambda net, x: ln.concat([X, X]),
    "broadcast to a smaller shape": lambda net, x: ln.broadcast_to(x, [2]).sum(),
    "cross-entropy with float targets": lambda net, x: ln.cross_entropy(net(x), x),
    "cross-entropy without targets": lambda net, x: ln.cross_entropy(net(x), None),
    "mse of other shapes": lambda net, x: ln.mse_loss(x, net(x)),
    "conv2d of a matrix": lambda net, x: ln.conv2d(x, x).sum(),
    "max_pool of a matrix": lambda net, x: ln.max_pool(x).sum(),
    "embedding with float ids": lambda net, x: ln.embedding(x, x).sum(),
    "one_hot of floats": lambda net, x: ln.one_hot(x, 3).sum(),
    "clamp upside down": lambda net, x: ln.clamp(x, 1, 0).sum(),
    "layer_norm with another weight": lambda net, x: ln.layer_norm(x, net(x)).sum(),
    "relu of a number": lambda net, x: ln.relu(3),
    "relu of nothing": lambda net, x: ln.relu(),
    "layer that is no part": lambda net, x: ln.Linear(3, 2)(x).sum(),
    "module that is no part": lambda net, x: Net()(x).sum(),
    "parameter that is no part": lambda net, x: (x * ln.parameter((3,))).sum(),
    "buffer that is no part": lambda net, x: ln.update_buffer(ln.Buffer((3,)), x[0]),
    "layer called with nothing": lambda net, x: net.fc(),
    "layer called with two": lambda net, x: net.fc(x, x),
    "parameter of a layer that is not there": lambda net, x: net.fc.scale,
    "running mean of a linear layer": lambda net, x: (x * net.fc.running_mean).sum(),
    "nested learner": lambda net, x: good().step(x, rate=1),
    "own op without operands": lambda net, x: op("none")(),
    "own op of a number": lambda net, x: op("number")(3),
    "attention of a matrix": lambda net, x: ln.CausalAttention(4, 2)(x),
    "full of a bad shape": lambda net, x: ln.full([-1], 0).sum(),
    "power of a tensor": lambda net, x: (x**x).sum(),
    "infinite recursion": lambda net, x: again(net, x),
    "index with two ellipses": lambda net, x: x[..., ...].sum(),
    "index by a number with a fraction": lambda net, x: x[0.5].sum(),
    "sum over an axis with a fraction": lambda net, x: x.sum(0.5),
    "condition on a parameter": lambda net, x: x.sum() if net.fc.weight else 0,
    "where of numbers": lambda net, x: ln.where(x, 1, 0),
    "gather with float ids": lambda net, x: ln.gather(x, x).sum(),
    "scale_images of floats": lambda net, x: ln.scale_images(x).sum(),
    "mask_targets of floats": lambda net, x: ln.mask_targets(x, x).sum(),
    "loss whose count is a matrix": lambda net, x: ln.Loss(x.sum(), x),
    "binary cross-entropy of other shapes": lambda net, x: ln.binary_cross_entropy(net(x), x),
    "learner in its own loss": lambda net, x: ln.Learner(net, lambda x: net(x).sum(), {"x": x}),
    "parameter of a net that is gone": lambda net, x: (x * gone()).sum(),
    "own op whose decomposition is a number": lambda net, x: op("decomposed", decompose=lambda x: 3)(x).sum(),
}


def again(net: Net, x: ln.Tensor) -> typing.Any:
    return again(net, x) + x


def op(name: str, **functions: typing.Any) -> ln.OwnOp:
    functions.setdefault("kernel", lambda x, y: None)
    functions.setdefault("decompose", lambda x: x)
    return ln.OwnOp(f"misuse {name} {time.time_ns()}", **functions)


def trained_op(**functions: typing.Any) -> None:
    made = op("trained", **functions)
    learner = recorded(lambda net, x: made(net(x)).sum())
    learner.step(X, rate=1e-3)


CALLED: dict[str, typing.Callable[[], typing.Any]] = {
    "module outside of a loss": lambda: Net()(X),
    "function outside of a loss": lambda: ln.full([2], 1),
    "relu of an array": lambda: ln.relu(X),
    "loss of arrays": lambda: ln.cross_entropy(X, IDS),
    "loss outside": lambda: ln.Loss(X),
    "tensor kept after the recording": lambda: (recorded(keep), ln.relu(KEPT[-1])),
    "shape of a tensor that was kept": lambda: (recorded(keep), KEPT[-1].shape),
    "tensor made by hand": lambda: ln.Tensor(),
    "parameter of no size": lambda: fit_parameter((0,)),
    "parameter of negative size": lambda: fit_parameter((-1, 2)),
    "parameter of seven axes": lambda: ln.parameter((1,) * 7),
    "parameter with values of another size": lambda: fit_parameter((3,), ln.init.values([1, 2])),
    "parameter with a number as init": lambda: ln.parameter((3,), 0.1),  # type: ignore[arg-type]
    "linear of no size": lambda: fit_layer(ln.Linear(0, 2)),
    "linear of negative size": lambda: fit_layer(ln.Linear(3, -2)),
    "linear of a text": lambda: ln.Linear("3", 2),  # type: ignore[arg-type]
    "dropout of 2": lambda: fit_layer(ln.Dropout(2.0)),
    "attention with heads that do not fit": lambda: fit_layer(ln.CausalAttention(3, 2)),
    "group norm with groups that do not fit": lambda: fit_layer(ln.GroupNorm(2, 3)),
    "replaced weight": lambda: setattr(ln.Linear(2, 2), "weight", X),
    "bert of no folder": lambda: fit_layer(ln.PretrainedBert("nothing")),
    "model is a function": lambda: ln.Learner(lambda x: x, lambda x: x, (X,)),  # type: ignore[arg-type]
    "model is a class": lambda: ln.Learner(Net, lambda x: x.sum(), (X,)),  # type: ignore[arg-type]
    "model without parameters": lambda: ln.Learner(ln.Module(), lambda x: x.sum(), (X,)),
    "module without forward": lambda: fit_module(ln.Module()),
    "loss is no function": lambda: ln.Learner(Net(), 3, (X,)),  # type: ignore[arg-type]
    "loss takes what is not there": lambda: ln.Learner(Net(), lambda x, y: x.sum(), {"x": X}),
    "inputs are an array": lambda: ln.Learner(Net(), lambda x: x.sum(), X),
    "inputs are nothing": lambda: ln.Learner(Net(), lambda x: x.sum(), None),
    "inputs are empty": lambda: ln.Learner(Net(), lambda x: x.sum(), {}),
    "input is a text": lambda: ln.Learner(Net(), lambda x: x.sum(), {"x": "text"}),
    "input is a ragged list": lambda: ln.Learner(Net(), lambda x: x.sum(), {"x": [[1.0], [1.0, 2.0]]}),
    "input is complex": lambda: ln.Learner(Net(), lambda x: x.sum(), {"x": X.astype(complex)}),
    "input of objects": lambda: ln.Learner(Net(), lambda x: x.sum(), {"x": np.array([object()])}),
    "too many inputs": lambda: ln.Learner(Net(), lambda x: x.sum(), (X, X, X)),
    "input whose name is a number": lambda: ln.Learner(Net(), lambda x: x.sum(), {3: X}),
    "output whose name is a number": lambda: ln.Learner(Net(), lambda x: (x.sum(), {0: x}), {"x": X}),
    "state whose name is a number": lambda: good().load_state_dict({1: X}),  # type: ignore[dict-item]
    "initializer is a number": lambda: ln.parameter((2,), 0),  # type: ignore[arg-type]
    "initializer is an array": lambda: ln.parameter((2,), np.ones(2)),  # type: ignore[arg-type]
    "initializer is a function": lambda: ln.parameter((2,), ln.init.zeros),  # type: ignore[arg-type]
    "shape is a number": lambda: ln.parameter(4),  # type: ignore[arg-type]
    "precision that is not there": lambda: good(precision="fp4"),
    "device that is not there": lambda: good(device="tpu"),
    "no such option": lambda: good(momentum=1),
    "optimizer is a text": lambda: good(optimizer="adam"),
    "optimizer is a class": lambda: good(optimizer=ln.Adam),
    "beta of 2": lambda: good(optimizer=ln.Adam(beta1=2)),
    "negative threads": lambda: good(threads=-1),
    "accumulate of 0": lambda: good(accumulate=0),
    "memory of 10 bytes": lambda: good(memory=10),
    "negative memory": lambda: good(memory=-1),
    "group is a text": lambda: good(groups=["fc.*"]),
    "group that matches nothing": lambda: good(groups=[ln.Group(["nothing"], frozen=True)]),
    "all frozen": lambda: good(groups=[ln.Group(["*"], frozen=True)]),
    "storage that is not there": lambda: ln.Group(["*"], storage="fp4"),
    "shares nothing of it": lambda: good(shares=[good()]),
    "schedule that is not there": lambda: ln.Schedule("sometimes"),
    "step without a rate": lambda: good().step(X),  # type: ignore[call-arg]
    "step with a negative rate": lambda: good().step(X, rate=-1),
    "step with a rate that is no number": lambda: good().step(X, rate=float("nan")),
    "step with a text as rate": lambda: good().step(X, rate="fast"),  # type: ignore[arg-type]
    "step of another shape": lambda: good().step(X[:, :2], rate=1),
    "step of another number of rows": lambda: good().step(X[:2], rate=1),
    "step of another name": lambda: good().step(z=X, rate=1),
    "step with a field that was not planned": lambda: good().step(x=X, w=X, rate=1),
    "step of nothing": lambda: good().step(rate=1),
    "step of None": lambda: good().step(None, rate=1),
    "step of a text": lambda: good().step("x", rate=1),
    "step of too many": lambda: good().step(X, X, X, rate=1),
    "step of a list of arrays": lambda: good().step([X, X], rate=1),
    "step without training": lambda: good(training=False).step(X, rate=1),
    "step with too few micro-batches": lambda: good(accumulate=2).step([{"x": X}], rate=1),
    "integers that do not fit": lambda: ids_learner().step(IDS + 2**40, rate=1),
    "floats where ids are wanted": lambda: ids_learner().step(IDS + 0.5, rate=1),
    "ids out of range": lambda: ids_learner().step(IDS + 99, rate=1),
    "negative ids": lambda: ids_learner().step(IDS - 1, rate=1),
    "predict of another shape": lambda: good().predict(X[:, :1]),
    "predict of nothing": lambda: good().predict(),
    "fit of nothing": lambda: good().fit(None),
    "fit of an empty dict": lambda: good().fit({}),
    "fit of other names": lambda: good().fit({"z": X}, batch=4),
    "fit with too few samples": lambda: good().fit({"x": X}, batch=5),
    "fit of no epochs": lambda: good().fit({"x": X}, batch=4, epochs=0),
    "fit with a text as rate": lambda: good().fit({"x": X}, batch=4, rate="fast"),  # type: ignore[arg-type]
    "fit with a rate that fails": lambda: good().fit({"x": X}, batch=4, rate=lambda step: 1 / 0),
    "fit with a rate that is None": lambda: good().fit({"x": X}, batch=4, rate=lambda step: None),  # type: ignore[arg-type,return-value]
    "fit with patience alone": lambda: good().fit({"x": X}, batch=4, patience=1),
    "fit with a callback that fails": lambda: good().fit({"x": X}, batch=4, callbacks=[lambda event: 1 / 0]),
    "fit with a callback that is none": lambda: good().fit({"x": X}, batch=4, callbacks=[3]),  # type: ignore[list-item]
    "fit in a callback": lambda: nested_fit(),
    "metric that is not there": lambda: good().evaluate({"x": X}, ["f1"], batch=4),
    "metric that fails": lambda: good().evaluate({"x": X}, [lambda batch, outputs: 1 / 0], batch=4),
    "metric that gives an array": lambda: good().evaluate({"x": X}, [lambda batch, outputs: batch["x"]], batch=4),
    "accuracy without logits": lambda: good().evaluate({"x": X}, ["accuracy"], batch=4),
    "metric that gives a text": lambda: good().evaluate({"x": X}, [lambda batch, outputs: "good"], batch=4),
    "accuracy without labels": lambda: good().evaluate({"x": X}, ["accuracy"], batch=4),
    "gradient before a step": lambda: good().gradient("fc.weight"),
    "gradient of nothing": lambda: good().gradient("nothing"),
    "state of other shapes": lambda: good().load_state_dict({"fc.weight": X, "fc.bias": X}),
    "state of other names": lambda: good().load_state_dict({"w": X}),
    "state of texts": lambda: good().load_state_dict({"fc.weight": "a", "fc.bias": "b"}),
    "load of no file": lambda: good().load("nothing.safetensors"),
    "load of a file that is none": lambda: good().load(__file__),
    "load_state of no file": lambda: good().load_state("nothing"),
    "save into no folder": lambda: good().save("/nothing/here.safetensors"),
    "load_bert of a layer": lambda: good().load_bert(ln.Linear(1, 1)),  # type: ignore[arg-type]
    "learner without __init__": lambda: ln.Learner.__new__(ln.Learner).step(X, rate=1),
    "dataset of a number": lambda: ln.Dataset(3),
    "dataset of unequal fields": lambda: ln.Dataset(x=X, y=X[:2]),
    "dataset with a name twice": lambda: ln.Dataset(x=X).add("x", X),
    "dataset index": lambda: ln.Dataset(x=X)[4],
    "dataset split": lambda: ln.Dataset(x=X).split(2.0),
    "dataset select": lambda: ln.Dataset(x=X).select([7]),
    "idx of no files": lambda: ln.Dataset.idx("a", "b"),
    "image folder of no folder": lambda: ln.Dataset.image_folder("nothing"),
    "loader of no rows": lambda: ln.Loader({"x": X}, batch=0),
    "loader of an empty dataset": lambda: ln.Loader(ln.Dataset()),
    "loader with negative workers": lambda: ln.Loader({"x": X}, workers=-1),
    "loader of short buckets": lambda: list(ln.Loader({"x": [[1, 2, 3], [1]]}, batch=1, buckets=[2])),
    "dataset function of another shape": lambda: made_by(lambda i: {"x": [1]}),
    "dataset function of no dict": lambda: made_by(lambda i: 3),
    "load of no model": lambda: ln.load("nothing"),
    "load of a file": lambda: ln.load(__file__),
    "load of None": lambda: ln.load(None),  # type: ignore[arg-type]
    "load with many threads": lambda: ln.load("nothing", threads=10**6),
    "train of no task": lambda: ln.train("nothing"),
    "train without data": lambda: ln.train("translate", run="run"),
    "train of empty rows": lambda: ln.train("translate", [], "run"),
    "train of unequal rows": lambda: ln.train("translate", [("a", "b"), ("a",)], "run"),
    "train of no file": lambda: ln.train("language", "nothing.txt", "run"),
    "train with an unknown key": lambda: ln.train("translate", [("a", "b")], "run", widht=3),
    "train of source alone": lambda: ln.train("translate", source=["a"], run="run"),
    "plan of no task": lambda: ln.plan("nothing"),
    "report of nothing": lambda: ln.report(),
    "report of no run": lambda: ln.report("nothing"),
    "evaluate no run": lambda: ln.evaluate("nothing"),
    "own op without a kernel": lambda: ln.OwnOp("op without a kernel", kernel=None, decompose=None),  # type: ignore[arg-type]
    "own op without a name": lambda: ln.OwnOp("", kernel=lambda x, y: None, decompose=lambda x: x),
    "own op named as one of the library": lambda: ln.OwnOp("matmul", kernel=lambda x, y: None, decompose=lambda x: x),
    "own op whose kernel fails": lambda: trained_op(kernel=lambda x, y: 1 / 0, gradient=lambda i, o, g: g),
    "own op whose gradient fails": lambda: trained_op(gradient=lambda i, o, g: 1 / 0),
    "own op without gradient": lambda: trained_op(),
    "own op whose types fail": lambda: trained_op(infer=lambda x: 1 / 0),
    "own op whose types are nothing": lambda: trained_op(infer=lambda x: 3),
    "own op that writes its input": lambda: trained_op(kernel=lambda x, y: x.fill(0), gradient=lambda i, o, g: g),
    "generator of no decoder": lambda: ln.TextGenerator(Net()),  # type: ignore[arg-type]
    "decoder without states": lambda: ln.TextGenerator(decoder(ln.Decoder)),
    "generator without weights": lambda: ln.TextGenerator(writer()).generate([[0]]),
    "generator of an id out of range": lambda: writing([[99]]),
    "generator of an empty prompt": lambda: writing([[]]),
    "generator of texts": lambda: writing([["a"]]),
    "ctrl-c in fit": lambda: interrupted(),
    "a learner in two threads": lambda: in_two_threads(),
    "layer of a learner that is gone": lambda: freed().fc(X),
    "callback that exits": lambda: good().fit({"x": X}, batch=4, callbacks=[lambda event: sys.exit(3)]),
    "callback that interrupts": lambda: good().fit({"x": X}, batch=4, callbacks=[raising(KeyboardInterrupt)]),
    "callback that recurses": lambda: good().fit({"x": X}, batch=4, callbacks=[lambda event: again(event, event)]),  # type: ignore[arg-type]
    "callback that takes nothing": lambda: good().fit({"x": X}, batch=4, callbacks=[lambda: None]),  # type: ignore[list-item]
    "rate that exits": lambda: good().fit({"x": X}, batch=4, rate=lambda step: sys.exit(3)),
    "rate that trains": lambda: training_rate(),
    "metric that gives three": lambda: good().evaluate({"x": X}, [lambda batch, outputs: (1, 2, 3)], batch=4),
    "dataset function that exits": lambda: made_by(lambda i: sys.exit(3)),
    "dataset function of another type": lambda: made_by(lambda i: {"x": np.array(["a", "b"])}),
    "dataset function of another name": lambda: made_by(lambda i: {"y": [1, 2]}),
    "field without a value": lambda: ln.Dataset(x=None),
    "field of unsigned integers that do not fit": lambda: ln.Dataset(x=np.array([2**64 - 1], np.uint64)),
    "field of bytes that do not fit": lambda: ln.Dataset().add("x", [256], "uint8"),
    "field of negative bytes": lambda: ln.Dataset().add("x", [-1], "uint8"),
    "field of float16 where ids are wanted": lambda: ids_learner().step(IDS.astype(np.float16) + 0.5, rate=1),
    "field of dates": lambda: ln.Dataset(x=np.array(["2026-01-01"], "datetime64[D]")),
    "field of long doubles": lambda: ln.Dataset(x=np.ones(3, np.longdouble)),
    "field of records": lambda: ln.Dataset(x=np.zeros(3, [("a", "f4")])),
    "field of seven axes": lambda: ln.Dataset(x=np.zeros((1,) * 7, np.float32)),
    "array that lies": lambda: ln.Dataset(x=Lying()),
    "state of a shape that does not fit": lambda: good().state_dict()["fc.weight"].__setitem__(slice(None), X[0, :2]),
    "core that is taken": lambda: ln.Learner.__new__(ln.Learner)._core.step([], 1.0),
    "own op whose kernel exits": lambda: trained_op(kernel=lambda x, y: sys.exit(3), gradient=lambda i, o, g: g),
    "own op whose kernel takes too few": lambda: trained_op(kernel=lambda x: None, gradient=lambda i, o, g: g),
    "own op whose gradient is too few": lambda: trained_op(gradient=lambda i, o, g: ()),
    "own op whose gradient is a number": lambda: trained_op(gradient=lambda i, o, g: 1.0),
    "own op whose infer gives another type": lambda: trained_op(infer=lambda x: [("complex64", (2,))]),
    "generator that exits": lambda: writing([[0]], listener=lambda row, token: sys.exit(3)),
    "generator that begins again": lambda: writing_in_writing(),
    "generator of a learner of another net": lambda: ln.TextGenerator(writer()).take(good()),
}  # fmt: skip


def made_by(function: typing.Any) -> None:
    list(ln.Loader(ln.Dataset.from_function(3, {"x": ("float32", (2,))}, function)))


def fit_module(module: ln.Module) -> None:
    class Around(ln.Module):
        def __init__(self) -> None:
            self.part, self.fc = module, ln.Linear(3, 3)

    net = Around()
    ln.Learner(net, lambda x: net.part(net.fc(x)).sum(), {"x": X})


fit_layer = fit_module


def fit_parameter(shape: tuple[int, ...], init: ln.Initializer | None = None) -> None:
    class Around(ln.Module):
        def __init__(self) -> None:
            self.part = ln.parameter(shape, init)

    net = Around()
    ln.Learner(net, lambda x: (x * net.part).sum(), {"x": X})


def ids_learner() -> ln.Learner:
    table = ln.Embedding(9, 2)
    return ln.Learner(table, lambda ids: table(ids).sum(), {"ids": IDS})


def nested_fit() -> None:
    learner = good()
    learner.fit({"x": X}, batch=4, epochs=2, callbacks=[lambda event: learner.step(X, rate=1), lambda event: 1 / 0])


class Writer(ln.Decoder):
    def __init__(self) -> None:
        self.vocab_size, self.max_length = 5, 8
        self.table = ln.Embedding(5, 4)

    def states(self, tokens: ln.Tensor, positions: ln.Tensor) -> ln.Tensor:
        return self.table(tokens)

    def head(self) -> ln.LayerParameter:
        return self.table.weight


def writer() -> Writer:
    return Writer()


def writing_learner() -> tuple[Writer, ln.Learner]:
    made = Writer()
    ids = np.zeros((1, 4), np.int32)
    return made, ln.Learner(made, lambda tokens, targets: ln.decoder_loss(made, tokens, targets), (ids, ids))


def writing(prompts: typing.Any, **options: typing.Any) -> None:
    made, learner = writing_learner()
    ln.TextGenerator(made).take(learner).generate(prompts, max_tokens=2, **options)


def decoder(kind: type[ln.Decoder]) -> ln.Decoder:
    made = kind()
    made.vocab_size, made.max_length = 5, 8
    made.table = ln.Embedding(5, 4)  # type: ignore[attr-defined]
    return made


def raising(kind: type[BaseException]) -> typing.Callable[[typing.Any], None]:
    def call(event: typing.Any) -> None:
        raise kind

    return call


def gone() -> typing.Any:
    weight = Net().fc.weight
    gc.collect()
    return weight


def freed() -> Net:
    net = Net()
    ln.Learner(net, lambda x: net(x).sum(), {"x": X})
    gc.collect()
    return net


class Lying:
    """Says that it is an array, and is none."""

    __array_interface__ = {"shape": (1 << 40,), "typestr": "<f4", "version": 3, "data": None}

    def __dlpack__(self, **options: typing.Any) -> typing.Any:
        raise BufferError("no")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def training_rate() -> None:
    learner = good()
    learner.fit({"x": X}, batch=4, rate=lambda step: learner.step(X, rate=1).loss)


def writing_in_writing() -> None:
    made, learner = writing_learner()
    generator = ln.TextGenerator(made).take(learner)
    generator.generate([[0]], max_tokens=2, listener=lambda row, token: generator.generate([[0]]))


def interrupted() -> None:
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    endless(good())


def in_two_threads() -> None:
    learner = good()
    errors: list[Exception] = []

    def train() -> None:
        try:
            learner.fit({"x": X}, batch=4, epochs=20_000)
        except ln.UserError as error:  # whichever thread comes second
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        while thread.is_alive():
            learner.step(X, rate=0)
    finally:
        thread.join()
    raise errors[0]


@pytest.mark.parametrize("name", RECORDED)
def test_while_a_loss_is_recorded(name: str) -> None:
    with pytest.raises(Exception) as found:  # noqa: B017
        recorded(RECORDED[name])
    check(found.value)


@pytest.mark.parametrize("name", CALLED)
def test_of_calls(name: str) -> None:
    with pytest.raises(BaseException) as found:  # noqa: B017
        CALLED[name]()
    check(found.value)


NAMED: dict[str, tuple[typing.Callable[[], typing.Any], str]] = {
    "a loss without parameters": (lambda: ln.Learner(Net(), lambda x: (x * x).mean(), (X,)), "nothing to learn"),
    "a loss of frozen parameters": (
        lambda: good(groups=[ln.Group(["*weight"], frozen=True), ln.Group(["*bias"], frozen=True)]),
        "nothing is left to train",
    ),
    "a seed below 0": (lambda: good(seed=-1), "seed = -1"),
    "threads as a text": (lambda: good(threads="2"), "threads = '2'"),
    "a field that is given twice": (lambda: good().step(X, x=X, rate=1), '"x" is given twice'),
    "a prediction of nothing": (lambda: good().predict(), "predict.. was given nothing; the loss takes x"),
    "a prediction of no rows": (lambda: good().predict(x=X[:0]), "predict.. was given no rows"),
    "fewer samples than a batch": (lambda: good().fit({"x": X[:2]}), "2 samples, and a batch has 4"),
    "a rate that is None": (lambda: good().fit({"x": X}, rate=lambda step: None), "learning rate returned a NoneType"),
    "a split that is none": (lambda: ln.evaluate("run", split="foo"), 'no split "foo"'),
    "metrics of no run": (lambda: ln.read_metrics("nowhere"), "'nowhere' is no run"),
    "groups that are texts": (lambda: good(groups=["a"]), "groups has a str; a list of linnet.Group"),
    "shares that are numbers": (lambda: good(shares=[3]), "shares has a int; a list of linnet.Learner"),
    "a model that is None": (lambda: ln.Learner(None, lambda x: x.sum(), (X,)), "a model is a linnet.Module, and None"),
    "micro-batches that are arrays": (lambda: good().step([X, X], rate=1), "micro-batches has dicts, and a ndarray"),
    "a sample's shape that is a number": (
        lambda: ln.Dataset.from_function(3, {"x": ("float32", 3)}, lambda i: {}),
        r"""the type of "x" is .*; \(dtype, shape\) is wanted""",
    ),
    "a ragged prediction": (lambda: good().predict([[1.0, 2.0], [3.0]]), '"x" is no array'),
    "a prediction without outputs": (lambda: recorded(lambda net, x: net(x).sum()).predict(X), "has no outputs"),
    "a layout that is none": (lambda: good().state_dict(layout="tosch"), "no layout 'tosch'"),
    "a layout of a state that is none": (lambda: good().load_state_dict({}, layout="Torch"), "no layout 'Torch'"),
    "a fit of no epochs": (lambda: good().fit({"x": X}, epochs=0), "epochs must be at least 1"),
    "metrics without validation": (lambda: good().fit({"x": X}, metrics=["accuracy"]), "needs validation data"),
    "a filter of three sizes": (lambda: ln.Conv2d(2, 3, (1, 2, 3)), r"\(rows, columns\), and \(1, 2, 3\) was given"),
    "a loop over a tensor": (lambda: recorded(RECORDED["loop over a tensor"]), r"split\(x, sizes, axis\) cuts it"),
    "a mean over rows without rows": (
        lambda: ln.Learner(net := Net(), lambda x: ln.mse_loss(net.fc.weight, net.fc.weight * x), {"x": np.float32(1)}),
        "no input before has any",
    ),
    "rows that are numbers": (lambda: ln.train("language", [1, 2], "run"), "row 0 is a int"),
    "data that is a number": (lambda: ln.train("language", 3, "run"), "the data is a int"),
    "class numbers that are floats": (
        lambda: recorded(lambda net, x: ln.cross_entropy(net(x), x[:, 0])),
        r'targets f32\[4\], expected int32 targets \(.astype\("int32"\) makes them\) of shape \[4\]',
    ),
    "an update of a buffer outside of training": (
        lambda: ln.Learner(counter := Counter(), lambda x: counter(x), {"x": X[:4]}),
        r"^test_misuse.py:\d+: buffer calls is updated in a graph that does not train; do it under `if linnet.is_train",
    ),
    "a tensor of seven axes": (
        lambda: recorded(lambda net, x: x.reshape(1, 1, 1, 1, 1, 1, -1).sum()),
        r"^test_misuse.py:\d+: a tensor has more than 6 axes",
    ),
    "a sample of another field": (
        lambda: ln.Dataset.from_function(3, {"x": ("float32", (3,))}, lambda i: {"y": np.zeros(2, np.float32)})[1],
        r"sample 1 as y f32\[2\]; x f32\[3\] is wanted",
    ),
    "a sample that fails": (
        lambda: ln.Dataset.from_function(3, {"x": ("float32", (3,))}, lambda i: {}["bad row"])[1],
        "at sample 1: KeyError: 'bad row'",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_wrong_is_named(name: str) -> None:
    call, message = NAMED[name]
    with pytest.raises((ln.UserError, ln.ShapeError), match=message) as found:
        call()
    check(found.value)


def check(error: BaseException) -> None:
    """One line that is no broken invariant, and a process in which training works."""
    assert not isinstance(error, (ln.InternalError, SystemError)), repr(error)
    if isinstance(error, ln.Error):
        assert "\n" not in str(error) and str(error)
    assert good().step(X, rate=1e-3).finite


def test_there_are_enough() -> None:
    assert len(RECORDED) + len(CALLED) >= 150


def test_arrays_that_a_kernel_keeps_stay_what_they_are() -> None:
    kept: list[np.ndarray] = []

    def kernel(x: np.ndarray, y: np.ndarray) -> None:
        y[...] = x
        kept.extend((x, y))

    trained_op(kernel=kernel, gradient=lambda inputs, outputs, gradients: gradients)
    gc.collect()
    before = [array.copy() for array in kept]
    good().step(X, rate=1)
    for array, copy in zip(kept, before):
        np.testing.assert_array_equal(array, copy)
        assert not array.flags.writeable or array is not kept[0]


def test_a_callback_may_drop_the_learner() -> None:
    holder = [good()]
    holder[0].fit({"x": X}, batch=4, epochs=3, callbacks=[lambda event: holder.clear()])
    assert good().step(X, rate=1).finite


def test_a_callback_may_fork() -> None:
    learner, codes = good(threads=2), []

    def fork(event: ln.FitEvent) -> None:
        child = os.fork()
        if child == 0:
            try:
                other = good(threads=2)
                os._exit(0 if other.step(X, rate=1e-3).finite else 1)
            finally:
                os._exit(2)
        codes.append(os.waitpid(child, 0)[1])

    learner.fit({"x": X}, batch=4, epochs=3, callbacks=[fork])
    assert codes == [0, 0, 0]


def test_threads_share_a_loader_and_a_stream(llama: str) -> None:
    """Each batch and each piece goes to one of the threads, or a thread is told that another one is at it."""
    loader = ln.Loader({"x": np.arange(4000, dtype=np.int32).reshape(1000, 4)}, batch=1, workers=2)
    model = ln.load(llama)
    stream = model.stream("5 6 7", max_tokens=40, temperature=0)
    rows: list[np.ndarray] = []
    pieces: list[str] = []

    def read() -> None:
        for _ in range(250):
            try:
                rows.append(loader.next()["x"])
            except ln.UserError as error:
                assert "at once" in str(error)
        pieces.extend(stream)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((row == row[0, 0] + np.arange(4)).all() for row in rows)
    assert len({int(row[0, 0]) for row in rows}) == len(rows)
    assert len("".join(pieces)) == len(model.generate("5 6 7", max_tokens=40, temperature=0))


def test_a_model_may_be_closed_in_a_forked_child(llama: str) -> None:
    model = ln.load(llama)
    stream = model.stream("5 6 7", max_tokens=20)
    next(stream)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            stream.close()
            model.close()
            with ln.load(llama) as other:
                code = 0 if other.generate("5 6 7", max_tokens=2) else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert "".join(stream)


def test_words_of_the_library_are_those_that_errors_replace():
    """errors.py replaces phrases of the C++ library: one that the library no longer says is found."""
    from linnet.errors import _WORDS

    root = pathlib.Path(__file__).resolve().parents[2]
    files = sorted((root / "src").rglob("*.cpp"))
    source = re.sub(r'"\s*"', "", "\n".join(path.read_text() for path in files))
    for words, _ in _WORDS:
        assert words in source, words


def test_a_model_that_is_a_layer_has_no_path_in_messages() -> None:
    images, conv = np.ones((2, 8, 8, 2), np.float32), ln.Conv2d(3, 4, 3)
    with pytest.raises(ln.ShapeError, match="at least as large as a filter$"):
        ln.Learner(conv, lambda x: conv(x).mean(), {"x": images})


def test_a_second_derivative_that_is_not_there_is_said() -> None:
    def loss(net: Net, x: ln.Tensor) -> ln.Tensor:
        first = ln.gradients((ln.softmax(net(x)) ** 2).sum(), [x])[0]
        return (first * first).sum()

    with pytest.raises(ln.ShapeError, match="softmax_grad: the op has no gradient, so there is no second derivative"):
        recorded(loss)


def test_a_size_given_to_a_convolution_of_one_size_is_named() -> None:
    with pytest.raises(ln.UserError, match="ConvReluPool's mean has a number for each channel, and 3 was given"):
        ln.ConvReluPool(4, 6, 3)  # type: ignore[arg-type]


def test_slices_of_a_dataset_are_lists_of_samples() -> None:
    data = ln.Dataset(x=np.arange(5, dtype=np.int32))
    assert [int(sample["x"]) for sample in data[-4:4:2]] == [1, 3]
    with pytest.raises(TypeError, match="a whole number or a slice, and a list was given"):
        data[[1, 2]]  # type: ignore[call-overload]


def test_messages_speak_of_arguments_and_not_of_options() -> None:
    os.mkdir("run")
    pathlib.Path("run/config.toml").write_text("")
    with pytest.raises(ln.UserError, match="resume=True goes on with it, run= names another"):
        ln.train("translate", [("a", "b")] * 40, "run")
    with pytest.raises(ln.UserError, match="^no_key=1: unknown key"):
        ln.train("translate", [("a", "b")] * 40, "other", no_key=1)
    with pytest.raises(ln.UserError, match="; text_column= and label_column= say which$"):
        ln.plan("classify", {name: ["x", "y"] for name in "abc"})
    with pytest.raises(ln.UserError, match='is called "--set rate"'):  # what the user wrote stays
        ln.plan("--set rate")

"""Training by hand: values, memory, files, sharing, signals, forks."""

import copy
import gc
import gzip
import json
import locale
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import typing
import warnings

import linnet as ln
import numpy as np
import pytest

X = np.random.default_rng(1).normal(size=(16, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32)).astype(np.float32)


class Net(ln.Module):
    def __init__(self, width: int = 8) -> None:
        self.layers = [ln.Linear(3, width), ln.Linear(width, 1)]
        self.scale = ln.parameter((1,), ln.init.ones())

    def forward(self, x: ln.Tensor) -> ln.Tensor:
        return self.layers[1](ln.tanh(self.layers[0](x))) * self.scale


def learner_of(net: ln.Module | None = None, **options: typing.Any) -> ln.Learner:
    net = net or Net()

    def loss(x: ln.Tensor, y: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        answer = net(x)
        return ln.mse_loss(answer, y), {"answer": answer}

    return ln.Learner(net, loss, (X, Y), **options)


def test_names_are_pytorchs() -> None:
    names = {"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "scale"}
    assert set(learner_of().state_dict()) == names


def test_views_are_no_copies() -> None:
    learner = learner_of()
    first, second = learner.state_dict()["scale"], learner.state_dict()["scale"]
    assert first.ctypes.data == second.ctypes.data
    before = learner.predict(x=X)["answer"]
    first *= 2
    learner.push()
    np.testing.assert_allclose(learner.predict(x=X)["answer"], 2 * before, rtol=1e-6)


def test_views_keep_the_memory() -> None:
    view = learner_of().state_dict()["layers.0.weight"]
    gc.collect()
    assert np.isfinite(view).all()


def test_step_is_that_of_the_formula() -> None:
    """Plain gradient descent on a linear layer against NumPy."""
    layer = ln.Linear(3, 1, bias=False)
    learner = ln.Learner(layer, lambda x, y: ln.mse_loss(layer(x), y), (X, Y), optimizer=ln.Sgd())
    weight = learner.state_dict()["weight"].copy()
    result = learner.step(X, Y, rate=0.1)
    error = X @ weight.T - Y
    gradient = 2 * error.T @ X / len(X)
    assert abs(result.loss - float((error**2).mean())) < 1e-6
    np.testing.assert_allclose(learner.gradient("weight"), gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.state_dict()["weight"], weight - 0.1 * gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "float32"])
def test_floats_are_converted(dtype: str) -> None:
    learner = learner_of()
    found = learner.predict(x=X.astype(dtype))["answer"]
    np.testing.assert_allclose(found, learner.predict(x=X.astype(dtype).astype("float32"))["answer"])


def test_any_strides_lists_and_fewer_and_more_rows() -> None:
    learner = learner_of()
    whole = learner.predict(x=X)["answer"]
    np.testing.assert_array_equal(learner.predict(x=np.asfortranarray(X))["answer"], whole)
    np.testing.assert_array_equal(learner.predict(x=X.tolist())["answer"], whole)
    np.testing.assert_array_equal(learner.predict(x=X[:5])["answer"], whole[:5])
    many = learner.predict(x=np.concatenate([X, X, X[:3]]))["answer"]
    np.testing.assert_array_equal(many, np.concatenate([whole, whole, whole[:3]]))


def test_state_has_the_same_bits(tmp_path: typing.Any) -> None:
    first, second = learner_of(optimizer=ln.AdamW()), learner_of(optimizer=ln.AdamW(), seed=7)
    for _ in range(3):
        first.step(X, Y, rate=1e-2)
    first.save_state("state")
    with pytest.raises(ln.UserError):
        second.load_state("state")  # of another seed
    second = learner_of(optimizer=ln.AdamW())
    second.load_state("state")
    assert second.steps == 3
    assert first.step(X, Y, rate=1e-2) == second.step(X, Y, rate=1e-2)


def test_state_dict_round_trip() -> None:
    first, second = learner_of(), learner_of(seed=2)
    report = second.load_state_dict({name: value.copy() for name, value in first.state_dict().items()})
    assert len(report.taken) == 5
    np.testing.assert_array_equal(first.predict(x=X)["answer"], second.predict(x=X)["answer"])
    with pytest.raises(ln.UserError):
        second.load_state_dict({"scale": np.ones(1)})
    assert second.load_state_dict({"scale": np.ones(1), "other": np.ones(1)}, strict=False).unused == ["other"]


@pytest.mark.parametrize("wrong", [["a", "b"], np.ones(2, complex), [[1.0], [1.0, 2.0]], None])
def test_a_state_that_is_wrong_changes_nothing(wrong: typing.Any) -> None:
    net = ln.Linear(3, 2)
    learner = ln.Learner(net, lambda x: net(x).sum(), {"x": X[:4]})
    before = learner.state_dict()["weight"].copy()
    with pytest.raises(ln.UserError, match='^"bias" '):
        learner.load_state_dict({"weight": np.full_like(before, 7), "bias": wrong})
    np.testing.assert_array_equal(learner.state_dict()["weight"], before)


def test_fit_validates_and_calls_back() -> None:
    learner = learner_of(optimizer=ln.Adam())
    events: list[ln.FitEvent] = []
    report = learner.fit(
        {"x": np.tile(X, (4, 1)), "y": np.tile(Y, (4, 1))},
        batch=16,
        epochs=30,
        rate=lambda step: 2e-2 / step**0.5,
        validation={"x": X, "y": Y},
        metrics=[lambda batch, outputs: float(np.abs(outputs["answer"] - batch["y"]).mean())],
        callbacks=[events.append],
    )
    assert report.reason == "epochs" and report.steps == 120 == len(events)
    assert events[-1].loss < events[0].loss
    assert report.best and report.best.metrics["<lambda>"] < 1
    stopped = learner.fit({"x": X, "y": Y}, epochs=9, callbacks=[lambda event: False])  # in batches of 16, as planned
    assert stopped.reason == "callback" and stopped.steps == 1


def test_an_exception_in_a_callback_is_raised_and_the_learner_goes_on() -> None:
    learner = learner_of()

    def fail(event: ln.FitEvent) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        learner.fit({"x": X, "y": Y}, batch=16, callbacks=[fail])
    assert learner.steps == 1
    assert learner.step(X, Y, rate=0).finite


def test_ctrl_c_stops_after_the_step() -> None:
    learner = learner_of()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        learner.fit({"x": X, "y": Y}, batch=16, epochs=10**7)
    assert learner.steps > 0
    learner.step(X, Y, rate=1e-3)


def test_ctrl_c_stops_an_evaluation_and_a_validation() -> None:
    learner = learner_of()
    many = {"x": np.ones((400_000, 3), np.float32), "y": np.ones((400_000, 1), np.float32)}
    for run in (lambda: learner.evaluate(many), lambda: learner.fit({"x": X, "y": Y}, validation=many)):
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            run()
        timer.join()
    assert learner.step(X, Y, rate=0.1).finite


def test_other_threads_run_while_a_step_computes() -> None:
    wide = Net(4096)
    x = np.zeros((512, 3), np.float32)
    learner = ln.Learner(wide, lambda x: ln.square(wide(x)).mean(), (x,))
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(10):
        learner.step(x, rate=0)
    done.set()
    thread.join()
    assert counted > 10


def test_two_threads_train_at_once() -> None:
    results: dict[int, float] = {}

    def train(seed: int) -> None:
        learner = learner_of(seed=seed)
        for _ in range(50):
            results[seed] = learner.step(X, Y, rate=1e-2).loss

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = learner_of(seed=2)
    for _ in range(50):
        loss = alone.step(X, Y, rate=1e-2).loss
    assert results[2] == loss


def test_a_forked_child_computes_the_same() -> None:
    wide = Net(2048)
    x = np.ones((256, 3), np.float32)
    learner = ln.Learner(wide, lambda x: ln.square(wide(x)).mean(), (x,), threads=2)
    learner.step(x, rate=1e-3)
    loader = ln.Loader({"x": X}, batch=4, shuffle=True)
    loader.next()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            result = learner.step(x, rate=1e-3)
            loader.next()
            del learner, loader
            gc.collect()
            os.write(write, repr(result.loss).encode())
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert float(os.read(read, 100)) == learner.step(x, rate=1e-3).loss


def test_shared_parameters_follow_the_learner_that_trains_them() -> None:
    net = Net()
    trained = learner_of(net)
    reader = ln.Learner(net, lambda x: (net(x).sum(), {"answer": net(x)}), (X,), training=False, shares=[trained])
    for _ in range(3):
        trained.step(X, Y, rate=0.1)
    np.testing.assert_array_equal(reader.predict(x=X)["answer"], trained.predict(x=X)["answer"])


def test_shared_parameters_follow_changes_without_a_step(tmp_path: typing.Any) -> None:
    net = ln.Linear(3, 1)
    first = ln.Learner(net, lambda x, y: ln.mse_loss(net(x), y), (X, Y))
    second = ln.Learner(net, lambda x: (x.mean(), {"p": net(x)}), dict(x=X), training=False, shares=[first])

    def expect_the_same() -> None:
        weight, bias = (first.state_dict()[name] for name in ("weight", "bias"))
        np.testing.assert_allclose(second.predict(x=X)["p"], X @ weight.T + bias, atol=1e-4)

    expect_the_same()
    first.load_state_dict({name: np.full_like(value, 2) for name, value in first.state_dict().items()})
    expect_the_same()
    first.state_dict()["weight"][...] = 5
    first.push()
    expect_the_same()
    first.step(X, Y, rate=0.1)
    expect_the_same()
    first.save_state(str(tmp_path / "state"))
    first.step(X, -Y, rate=0.1)
    expect_the_same()
    first.load_state(str(tmp_path / "state"))
    expect_the_same()


def test_containers_of_containers_and_copies_of_modules() -> None:
    class Nested(ln.Module):
        def __init__(self) -> None:
            self.parts = [[ln.Linear(3, 2)], [ln.Linear(2, 1), {"gain": ln.parameter((1,))}]]

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            (first,), (second, more) = self.parts
            return typing.cast(ln.Tensor, second(first(x)) * more["gain"])

    net = Nested()
    twin = copy.deepcopy(net)
    learners = [learner_of(net), learner_of(twin)]
    assert set(learners[0].state_dict()) == {
        "parts.0.0.weight",
        "parts.0.0.bias",
        "parts.1.0.weight",
        "parts.1.0.bias",
        "parts.1.1.gain",
    }
    results = [learner.step(X, Y, rate=0.1) for learner in learners]
    assert results[0] == results[1] and net.parts is not twin.parts


def test_numbers_and_arrays_beside_tensors() -> None:
    net = Net()

    def loss(x: ln.Tensor, y: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        h = net.layers[0](x)
        outputs = {
            "product": np.ones((2, 16), np.float32) @ h,
            "above": ln.maximum(h, 0.0),
            "below": ln.minimum(0.5, h),
            "chosen": ln.where(h > 0, h, -1.0),
            "h": h,
        }
        return ln.mse_loss(net(x), y), outputs

    found = ln.Learner(net, loss, (X, Y)).predict(X, Y)
    h = found["h"]
    np.testing.assert_allclose(found["product"], np.ones((2, 16)) @ h, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["above"], np.maximum(h, 0))
    np.testing.assert_array_equal(found["below"], np.minimum(h, 0.5))
    np.testing.assert_array_equal(found["chosen"], np.where(h > 0, h, -1))


def test_an_op_may_be_defined_again() -> None:
    def double(name: str, factor: float) -> ln.OwnOp:
        def kernel(x: typing.Any, y: typing.Any) -> None:
            y[...] = factor * x

        return ln.OwnOp(name, kernel=kernel, decompose=lambda x: x * factor)

    def product(op: ln.OwnOp) -> typing.Any:
        net = Net()
        return ln.Learner(net, lambda x, y: (ln.mse_loss(net(x), y), {"z": op(x)}), (X, Y)).predict(X, Y)["z"]

    first, second = (double("times_in_a_notebook", factor) for factor in (2.0, 3.0))
    np.testing.assert_array_equal(product(second), 3 * X)
    np.testing.assert_array_equal(product(first), 2 * X)


def test_a_part_used_twice_has_one_name() -> None:
    class Tied(ln.Module):
        def __init__(self) -> None:
            self.table = ln.Embedding(5, 4)
            self.again = self.table

        def forward(self, ids: ln.Tensor) -> ln.Tensor:
            return self.table(ids) @ self.again.weight.T

    net = Tied()
    ids = np.array([[0, 1, 4]], np.int64)
    learner = ln.Learner(net, lambda ids: ln.cross_entropy(net(ids), ids), {"ids": ids})
    assert list(learner.state_dict()) == ["table.weight"]
    first = learner.step(ids, rate=0.1).loss
    assert learner.step(ids, rate=0.1).loss < first
    # PyTorch's state has such weights by both names.
    weights = np.ones((5, 4), np.float32)
    learner.load_state_dict({"table.weight": weights, "again.weight": weights})
    np.testing.assert_array_equal(learner.state_dict()["table.weight"], weights)
    with pytest.raises(ln.UserError, match="the model has no again.weight"):
        learner.load_state_dict({"table.weight": weights, "again.weight": weights.copy()})


def test_errors_name_the_line_of_python() -> None:
    net = Net()
    with pytest.raises(ln.ShapeError, match=r"test_learner.py:\d+: .*\(in layers.0\)"):
        ln.Learner(net, lambda x: net(x).sum(), (np.zeros((2, 5), np.float32),))
    with pytest.raises(ln.UserError, match=r"test_learner.py:\d+: .*outside of a loss"):
        net(X)


def test_a_loss_that_is_not_finite_names_its_line() -> None:
    net = Net()
    learner = ln.Learner(net, lambda x: ln.log(net(x) * 0.0 - 1.0).sum(), {"x": X})
    with pytest.raises(ln.NumericError, match="test_learner.py"):
        learner.fit({"x": X}, batch=16)


def test_a_learner_in_a_cycle_is_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            self.net = Net()
            self.learner = ln.Learner(self.net, self.loss, (X, Y))

        def loss(self, x: ln.Tensor, y: ln.Tensor) -> ln.Loss:
            return ln.mse_loss(self.net(x), y)

    import weakref

    owner = Owner()
    alive = weakref.ref(owner.learner)
    del owner
    gc.collect()
    assert alive() is None


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_learners_that_are_dropped_leave_nothing() -> None:
    def some(count: int) -> None:
        for _ in range(count):
            learner_of(threads=1).step(X, Y, rate=1e-3)
        gc.collect()

    some(100)
    before = resident()
    some(300)
    assert resident() - before < 4 << 20


def test_datasets() -> None:
    data = ln.Dataset(tokens=[[1, 2], [3], [4, 5, 6]], labels=[0, 1, 0])
    assert len(data) == 3 and data[1]["tokens"].tolist() == [3]
    batches = list(ln.Loader(data, batch=2, buckets=[4]))
    assert batches[0]["tokens"].shape == (2, 4) and batches[1]["labels"].tolist() == [0]
    made = ln.Dataset.from_function(5, {"x": ("float32", (2,))}, lambda i: {"x": [i, i * i]})
    assert made[3]["x"].tolist() == [3, 9]
    with pytest.raises(ln.UserError, match="mine"):
        list(ln.Loader(ln.Dataset.from_function(5, {"x": ("float32", (1,))}, broken), batch=1))


def test_datasets_of_files(bert: str, tmp_path: pathlib.Path) -> None:
    plain, packed = tmp_path / "a.tsv", tmp_path / "a.tsv.gz"
    plain.write_bytes(b"1\tgood film\n0\tbad\n")
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf1\tgood film\r\n\r\n0\tbad\r\n"))
    read = [ln.Dataset.tsv(str(path), bert, 1, 0)[:] for path in (plain, packed)]
    assert [int(row["labels"]) for row in read[1]] == [1, 0]
    assert [row["tokens"].tolist() for row in read[0]] == [row["tokens"].tolist() for row in read[1]]
    with pytest.raises(ln.UserError, match=r"a.tsv:1: text_column = 7 is not there: the line has 2 columns"):
        ln.Dataset.tsv(str(plain), bert, text_column=7, label_column=0)
    text = tmp_path / "text.gz"
    text.write_bytes(gzip.compress(b"good film " * 20))
    assert ln.Dataset.text(str(text), bert, 4)[8]["tokens"].tolist() == [5, 7, 5, 7]
    plain.write_bytes(b"1\tgood\n0\tcaf\xe9\n")
    with pytest.raises(ln.UserError, match="a.tsv:2: invalid UTF-8 at byte 6"):
        ln.Dataset.tsv(str(plain), bert, 1, 0)
    with pytest.raises(ln.UserError, match="it is a directory, a text file is needed"):
        ln.Dataset.tsv(str(tmp_path), bert)
    with pytest.raises(ln.UserError, match="it is a directory, a text file is needed"):
        ln.Dataset.text(str(tmp_path), bert, 4)


def broken(index: int) -> dict[str, typing.Any]:
    raise ValueError("mine")


def test_the_last_batch_counts_as_it_is() -> None:
    data = {"x": X[:11], "y": Y[:11]}
    net = Net()
    batches = ln.Loader(data, batch=8)
    learner = ln.Learner(net, lambda x, y: (ln.square(net(x) - y).mean(), {"answer": net(x)}), batches)
    errors = (learner.predict(x=X[:11], y=Y[:11])["answer"] - Y[:11]) ** 2
    assert learner.evaluate(batches).loss == pytest.approx((errors[:8].mean() + errors[8:].mean()) / 2, rel=1e-5)
    mean = learner.evaluate(batches, [lambda batch, outputs: float(outputs["answer"].mean())])
    answers = learner.predict(x=X[:11], y=Y[:11])["answer"]
    assert next(iter(mean.metrics.values())) == pytest.approx(answers.mean(), rel=1e-5)
    few = ln.Learner(net, lambda x, y: ln.square(net(x) - y).mean(), (X[:8], Y[:8]))
    with pytest.raises(ln.UserError, match="planned"):
        few.evaluate(data)
    assert learner_of(net).evaluate({"x": X[:11], "y": Y[:11]}).count == 11

    class Normed(ln.Module):
        def __init__(self) -> None:
            self.norm, self.out = ln.BatchNorm(1, momentum=1.0), ln.Linear(1, 1)

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            return self.out(self.norm(x.reshape(-1, 1, 1, 1)))

    normed = Normed()
    rows = ln.Loader({"x": np.arange(11, 17, dtype=np.float32)[:, None]}, batch=4)
    trained = ln.Learner(normed, lambda x: ln.square(normed(x)).mean(), rows)
    for batch in rows:
        trained.step(batch, rate=0.0)
    assert trained.state_dict()["norm.running_mean"] == pytest.approx(15.5)


def test_outputs_of_no_rows_come_for_whole_batches_alone() -> None:
    net = Net()
    learner = ln.Learner(net, lambda x: (net(x).mean(), {"mean": net(x).mean(), "answer": net(x)}), (X[:8],))
    assert learner.predict(X[:8])["mean"] == pytest.approx(learner.predict(X[:8])["answer"].mean(), rel=1e-5)
    for rows in (3, 16):
        with pytest.raises(ln.UserError, match='"mean"'):
            learner.predict(X[:rows])


def test_a_parameter_has_one_learner_that_trains_it() -> None:
    net = Net()
    with pytest.raises(ln.UserError, match="freeze"):
        learner_of(net, shares=[learner_of(net)])


def test_random_numbers_differ_between_parts() -> None:
    net = Net()
    learner = ln.Learner(net, lambda x: (net(x).mean(), {"noise": net(x) * 0.0 + ln.random_normal((8, 1))}), (X[:8],))
    noise = learner.predict(X)["noise"]
    assert len(np.unique(noise)) == 16


def test_modules_show_their_parts() -> None:
    net = Net()
    net.itself = net  # type: ignore[attr-defined]
    text = repr(net)
    assert "Linear(3, 8)" in text and "Linear(8, 1)" in text and "..." in text


def test_schedules_that_end_need_their_end() -> None:
    with pytest.raises(ln.UserError, match="max_steps"):
        ln.Schedule("cosine", peak=1.0)
    assert ln.Schedule("constant", peak=1.0, warmup_steps=50)(25) == 0.5


def test_arrays_without_names_go_in_the_order_of_the_loss() -> None:
    net = Net()

    def loss(x: ln.Tensor, target: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        return ln.mse_loss(net(x), target), {"x": x + 0.0, "answer": net(x)}

    def any_of(x: ln.Tensor, **others: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        return loss(x, others["target"])

    fields = {"target": Y[:4], "x": X[:4]}
    for function in (loss, any_of):
        for inputs in (ln.Loader(fields, batch=4), fields, [fields]):
            learner = ln.Learner(net, function, inputs)
            np.testing.assert_array_equal(learner.predict(X[:4], Y[:4])["x"], X[:4])
            assert learner.step(X[:4], Y[:4], rate=0).loss == learner.step(fields, rate=0).loss


@pytest.mark.parametrize("classes", [1, 3, 5])
def test_predict_cuts_the_fields_that_have_rows(classes: int) -> None:
    """Weights of classes and a number beside samples, with more and fewer rows than the four planned."""
    net = ln.Linear(3, classes)
    weights = np.arange(1, classes + 1, dtype=np.float32)

    def loss(w: ln.Tensor, x: ln.Tensor, beta: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        answer = net(x) * w * beta
        return answer.mean(), {"answer": answer}

    learner = ln.Learner(net, loss, {"w": weights, "x": X[:4], "beta": np.float32(1)})
    expected = X @ learner.state_dict()["weight"].T * weights * 2
    for rows in (1, 2, 4, 5, 7, 16):
        found = learner.predict(w=weights, x=X[:rows], beta=2)["answer"]
        np.testing.assert_allclose(found, expected[:rows], rtol=1e-5, atol=1e-6)
    with pytest.raises(ln.UserError, match='"x" 9, "y" 8'):
        learner_of().predict(X[:9], Y[:8])


def test_a_schedule_that_has_ended_is_warned_of() -> None:
    learner = learner_of()
    schedule = ln.Schedule("cosine", peak=0.1, max_steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.fit({"x": X, "y": Y}, max_steps=2, rate=schedule)
    with pytest.warns(UserWarning, match="the rate is 0"):
        learner.fit({"x": X, "y": Y}, max_steps=2, rate=schedule)


def test_fit_and_evaluate_convert_as_steps_do() -> None:
    net = ln.Linear(3, 2)
    batch = {"x": X[:4], "labels": np.zeros(4, np.int32)}
    learner = ln.Learner(net, lambda x, labels: ln.cross_entropy(net(x), labels), batch)
    others = {"x": np.arange(24).reshape(8, 3), "labels": np.zeros(8, bool)}
    assert learner.fit(others, rate=0).steps == 2
    assert learner.evaluate({**others, "labels": np.zeros(8)}).count == 8
    with pytest.raises(ln.UserError, match="fractional"):
        learner.evaluate({**others, "labels": np.full(8, 0.5)})
    with pytest.raises(ln.UserError, match=r'"labels" has the integer 2147483648\.0, which does not fit int32'):
        learner.step({**batch, "labels": np.full(4, 2**31, np.float32)}, rate=0)
    for call in (learner.evaluate, lambda data: learner.fit(batch, validation=data)):
        with pytest.raises(ln.NumericError, match="the loss counts no row; are all its labels negative"):
            call({**batch, "labels": np.full(4, -1)})


def test_false_of_numpy_stops() -> None:
    assert learner_of().fit({"x": X, "y": Y}, epochs=5, callbacks=[lambda event: np.False_]).steps == 1


def test_filters_of_a_file_that_fits_both_layouts() -> None:
    weight = np.random.default_rng(3).normal(size=(8, 3, 3, 3)).astype(np.float32)
    names = {"weight": weight, "bias": np.zeros(8, np.float32)}
    header, data = {}, b""
    for name, value in names.items():
        header[name] = {
            "dtype": "F32",
            "shape": value.shape,
            "data_offsets": [len(data), len(data) + value.nbytes],
        }
        data += value.tobytes()
    text = json.dumps(header).encode()
    with open("weights.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    net = ln.Conv2d(3, 8, 3)
    learner = ln.Learner(net, lambda x: net(x).sum(), (np.ones((1, 4, 4, 3), np.float32),))
    with pytest.raises(ln.UserError, match='give layout="torch" or layout="linnet"'):
        learner.load("weights.safetensors")
    with pytest.raises(ln.UserError, match="no layout 'tosch'"):
        learner.load("weights.safetensors", layout="tosch")
    learner.load("weights.safetensors", layout="torch")
    np.testing.assert_array_equal(learner.state_dict(layout="torch")["weight"], weight)
    learner.load("weights.safetensors", layout="linnet")
    np.testing.assert_array_equal(learner.state_dict()["weight"], weight)

    class Cube(ln.Module):
        def __init__(self) -> None:
            self.cube = ln.parameter((3, 3, 3))

    cube = Cube()
    other = ln.Learner(cube, lambda x: (cube.cube * x).sum(), (np.float32(1),))
    with pytest.raises(ln.UserError, match='"cube" has 3 axes and is no filter'):
        other.load("weights.safetensors", layout="torch")


def test_initial_values_have_the_shape_of_the_parameter() -> None:
    def made(values: typing.Any) -> typing.Any:
        net = ln.Linear(3, 2, init=ln.init.values(values))
        return ln.Learner(net, lambda x: net(x).sum(), (X,)).state_dict()["weight"]

    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(made(values), values)
    np.testing.assert_array_equal(made(values.ravel()), values)
    with pytest.raises(ln.UserError, match=r"\[2, 3\] is initialized with values of shape \[3, 2\]"):
        made(values.T)


def test_a_kernel_may_return_what_it_has_filled() -> None:
    def product(kernel: typing.Callable[..., typing.Any]) -> typing.Any:
        op = ln.OwnOp("doubled in place", kernel=kernel, decompose=lambda x: x * 2.0)
        net = ln.Linear(3, 1)
        return ln.Learner(net, lambda x: (net(x).sum(), {"z": op(x)}), (X,)).predict(X)["z"]

    np.testing.assert_array_equal(product(lambda x, y: np.multiply(x, 2, out=y)), 2 * X)
    with pytest.raises(ln.UserError, match="doubled in place.* returned a ndarray; it fills its outputs"):
        product(lambda x, y: 2 * x)


def test_modules_with_functions_are_copied() -> None:
    op = ln.OwnOp("copied", kernel=lambda x, y: np.copyto(y, x), decompose=lambda x: x)
    net = ln.Sequential(ln.Linear(3, 1), ln.relu, op)
    twin = copy.deepcopy(net)
    parts = [[getattr(model, str(i)) for i in range(3)] for model in (net, twin)]
    assert parts[0][0] is not parts[1][0] and parts[0][1] is parts[1][1] and parts[0][2] is parts[1][2]
    assert pickle.loads(pickle.dumps(ln.relu)) is ln.relu


def test_sequences_may_be_arrays() -> None:
    rows = [np.array([1, 2]), np.array([3])]
    for values in (rows, [row.tolist() for row in rows], np.array(rows, object)):
        (batch,) = ln.Loader({"ids": values}, batch=2)
        assert batch["ids"].tolist() == [[1, 2], [3, 0]] and batch["ids_length"].tolist() == [2, 1]


def test_a_program_ends_while_threads_make_samples() -> None:
    program = """
import time, linnet as ln, numpy as np

def sample(index):
    time.sleep(0.002)
    return {"x": np.ones(4, np.float32)}

data = ln.Dataset.from_function(100_000, {"x": ("float32", (4,))}, sample)
loader = ln.Loader(data, batch=4, workers=2)
loader.next()
"""
    for _ in range(5):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_norm_that_overflows_is_named() -> None:
    layer = ln.Linear(3, 1)
    learner = ln.Learner(layer, lambda x: (1e25 * layer(x)).mean(), {"x": X})
    with pytest.raises(ln.NumericError, match="the norm of the gradients, whose squares overflow"):
        learner.fit({"x": X})


def test_a_column_of_lists_is_an_array_where_they_are_alike() -> None:
    """As data frames have them."""
    column = np.empty(2, object)
    column[:] = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(ln.Dataset(ids=column)[1]["ids"], [3, 4])
    column[1] = [3]
    assert ln.Dataset(ids=column)[1]["ids_length"] == 1


def test_fit_and_evaluate_read_arrays_where_they_are() -> None:
    program = """
import resource
import linnet as ln, numpy as np
x, y = np.ones((1 << 15, 1024), np.float32), np.ones((1 << 15, 1), np.float32)
layer = ln.Linear(1024, 1)
learner = ln.Learner(layer, lambda x, y: ln.mse_loss(layer(x), y), (x[:1024], y[:1024]))
learner.evaluate({"x": x[:2048], "y": y[:2048]})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
learner.evaluate({"x": x, "y": y})
learner.fit({"x": x, "y": y}, max_steps=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.PIPE)
    assert int(found.stdout) < 64 << 10, "of 128 MiB"


def test_objects_show_themselves() -> None:
    assert repr(ln.Adam(beta1=0.8)) == "linnet.Adam(beta1=0.8, beta2=0.999, epsilon=1e-08, weight_decay=0)"
    assert repr(ln.Schedule("linear", peak=0.5, max_steps=9)) == "linnet.Schedule(linear, peak=0.5, final=0)"
    assert repr(ln.Group(["a.*", "b"], frozen=True)) == "linnet.Group(a.*, b; frozen)"
    assert repr(ln.Loader({"x": X}, batch=8)) == "linnet.Loader(2 batches, next: epoch 0, batch 0)"


def test_numbers_have_a_point_in_every_locale() -> None:
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        pytest.skip("the locale de_DE.UTF-8 is not installed")
    try:
        assert repr(ln.Schedule("constant", peak=0.5)) == "linnet.Schedule(constant, peak=0.5, final=0)"
        with pytest.raises(ln.UserError, match=r"-1\.5"):
            learner_of().step(X, Y, rate=-1.5)
        ln.train("translate", [("a", "b")] * 20, "run", steps=2, d_model=16, num_heads=2, num_layers=1, d_ff=32,
                 tokenizer="word", metric="loss")  # fmt: skip
        with ln.load("run") as model:
            loss = float(re.findall(r"loss ([0-9.]+)", model.info["run"])[-1])
        assert loss != int(loss)
    finally:
        locale.setlocale(locale.LC_ALL, before)


def test_a_second_fit_goes_on_with_the_order_of_the_first(tmp_path: typing.Any) -> None:
    rows = np.eye(40, dtype=np.float32)  # the gradient shows which rows were seen

    def made() -> ln.Learner:
        net = ln.Linear(40, 1, bias=False, init=ln.init.zeros())
        return ln.Learner(net, lambda x: net(x).sum(), {"x": rows[:32]}, optimizer=ln.Sgd())

    def weights(learner: ln.Learner) -> typing.Any:
        return learner.state_dict()["weight"].copy()

    whole, parts, resumed = made(), made(), made()
    epochs: list[int] = []
    whole.fit({"x": rows}, epochs=10, rate=0.1)
    for _ in range(5):
        parts.fit({"x": rows}, rate=0.1, on_epoch=lambda event: epochs.append(event.epoch))
    parts.save_state(str(tmp_path / "state"))
    resumed.load_state(str(tmp_path / "state"))
    for learner in (parts, resumed):
        for _ in range(5):
            learner.fit({"x": rows}, rate=0.1)
        np.testing.assert_array_equal(weights(learner), weights(whole))
    assert epochs == [0, 1, 2, 3, 4] and (weights(whole) != 0).all()


def test_fits_in_a_loop_leave_out_no_batch() -> None:
    rows = np.eye(16, dtype=np.float32)

    def seen(epochs: int, calls: int) -> typing.Any:
        net = ln.Linear(16, 1, bias=False, init=ln.init.zeros())
        learner = ln.Learner(net, lambda x: net(x).sum(), {"x": rows[:4]}, optimizer=ln.Sgd(), accumulate=3)
        for _ in range(calls):
            learner.fit({"x": rows}, epochs=epochs, rate=0.1)
        return learner.steps, learner.state_dict()["weight"]

    (steps, whole), (more, parts) = seen(3, 1), seen(1, 3)
    assert steps == more == 4 and (whole == whole[0, 0]).all()  # each row was seen as often as the others
    np.testing.assert_array_equal(parts, whole)


def test_a_batch_norm_may_be_called_twice_in_a_loss() -> None:
    norm = ln.BatchNorm(3)
    learner = ln.Learner(norm, lambda a, b: (norm(a) * norm(b)).mean(), {"a": X, "b": 2 * X + 1})
    learner.step(X, 2 * X + 1, rate=0.0)
    mean, variance = X.mean(0), X.var(0, ddof=1)
    state = learner.state_dict()
    np.testing.assert_allclose(state["running_mean"], 0.09 * mean + 0.1 * (2 * mean + 1), rtol=1e-4)
    np.testing.assert_allclose(state["running_var"], 0.81 + 0.09 * variance + 0.4 * variance, rtol=1e-4)


def test_a_buffer_is_read_as_it_was_updated() -> None:
    class Counter(ln.Module):
        def __init__(self) -> None:
            self.calls, self.scale = ln.Buffer((1,)), ln.parameter((1,), ln.init.ones())

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            if ln.is_training():
                ln.update_buffer(self.calls, self.calls + 1)
            return (x * self.scale).mean() + self.calls.mean()

    net = Counter()
    learner = ln.Learner(net, lambda x: net(x) + net(x), {"x": np.zeros((2, 1), np.float32)})
    assert learner.step(x=np.zeros((2, 1), np.float32), rate=0.0).loss == pytest.approx(3)
    assert learner.state_dict()["calls"] == 2

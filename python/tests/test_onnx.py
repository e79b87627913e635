"""ONNX files: what a learner computes is written as one, and the network of one is a part of a model."""

import typing
from pathlib import Path

import linnet as ln
import numpy as np
import pytest

Arrays = dict[str, np.ndarray]
NUMBERS = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return NUMBERS.normal(size=shape).astype(np.float32)


class Parts(ln.Module):
    def __init__(self, **parts: typing.Any) -> None:
        for name, part in parts.items():
            setattr(self, name, part)


def learner_of(model: ln.Module, outputs: typing.Callable[..., typing.Any], arrays: Arrays) -> ln.Learner:
    def loss(**fields: ln.Tensor) -> tuple[ln.Tensor, dict[str, typing.Any]]:
        found = outputs(**fields)
        return ln.full((), 0.0), found if isinstance(found, dict) else {"output": found}

    return ln.Learner(model, loss, arrays, training=False)


UP = ln.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1)
WORDS, ATTENTION = ln.Embedding(9, 8), ln.MultiHeadAttention(8, 2)
GROUPS = ln.GroupNorm(2, 4)
IDS = NUMBERS.integers(0, 9, (3, 5)).astype(np.int32)
OPEN: dict[str, typing.Any] = {"x": {0: "batch", 1: "length"}}

# Outputs, their inputs, parts of the model, and open axes. The file is read with other sizes of those that are open.
CASES: dict[str, tuple[typing.Any, Arrays, ln.Module, typing.Any]] = {
    "transposed convolution": (lambda x: UP(x), {"x": floats(3, 4, 5, 3)}, Parts(up=UP), None),
    "cumsum": (lambda x: ln.cumsum(x, 1), {"x": floats(3, 5, 2)}, ln.Linear(1, 1), OPEN),
    "top_k": (lambda x: dict(zip(["values", "ids"], ln.top_k(x, 3))), {"x": floats(3, 6)}, ln.Linear(1, 1), None),
    "sort": (lambda x: ln.sort(x, descending=True), {"x": floats(3, 5, 4)}, ln.Linear(1, 1), OPEN),
    "one_hot": (lambda x: ln.one_hot(x, 9), {"x": IDS - 1}, ln.Linear(1, 1), OPEN),
    "scatter_add": (
        lambda x, ids: ln.scatter_add(x, ids, 9),
        {"x": floats(3, 5, 2), "ids": IDS},
        ln.Linear(1, 1),
        {**OPEN, "ids": OPEN["x"]},
    ),
    "mean over what counts": (
        lambda x, n: (x * ln.sequence_mask(n, x.shape[1])[:, :, None]).sum(1) / n[:, None] - x.mean(1),
        {"x": floats(3, 5, 2), "n": np.array([5, 1, 3], np.int32)},
        ln.Linear(1, 1),
        {**OPEN, "n": {0: "batch"}},
    ),
    "attention": (
        lambda x: ATTENTION(WORDS(x), causal=True) + ln.positions(x)[:, :, None],
        {"x": IDS},
        Parts(words=WORDS, attention=ATTENTION),
        OPEN,
    ),
    "groups of an open image": (
        lambda x: ln.global_avg_pool(GROUPS(x)),
        {"x": floats(2, 5, 4, 4)},
        Parts(groups=GROUPS),
        {"x": {0: "batch", 1: "height", 2: "width"}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_exported_computes_the_same_at_other_sizes(name: str, tmp_path: Path) -> None:
    outputs, arrays, model, axes = CASES[name]
    path = str(tmp_path / "net.onnx")
    learner_of(model, outputs, arrays).export_onnx(path, outputs, arrays, open_axes=axes)
    rows = {key: value[:2] for key, value in arrays.items()}
    if "length" in str(axes):
        rows = {key: value[:, :4] if value.ndim > 1 else np.minimum(value, 4) for key, value in rows.items()}
    wanted = learner_of(model, outputs, rows).predict(rows)
    body = ln.OnnxModule(path)

    def named(**fields: ln.Tensor) -> typing.Any:
        return body(fields)

    found = learner_of(Parts(body=body, other=ln.Linear(1, 1)), named, rows).predict(rows)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5)


def test_a_file_is_trained_and_written_again(tmp_path: Path) -> None:
    path, x = str(tmp_path / "net.onnx"), floats(4, 3)
    first = ln.Linear(3, 2)
    learner = learner_of(first, lambda x: first(x), {"x": x})
    learner.export_onnx(path, lambda x: first(x))
    model = Parts(body=ln.OnnxModule(path), head=ln.Linear(2, 1))

    def outputs(x: ln.Tensor) -> ln.Tensor:
        return model.head(model.body(x))

    def loss(x: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        y = outputs(x)
        return ln.square(y - 1.0).mean(), {"output": y}

    trained = ln.Learner(model, loss, {"x": x})
    name = "body.weight.transposed"
    begun = trained.state_dict(layout="torch")
    np.testing.assert_array_equal(begun[name].T, learner.state_dict()["weight"])
    for _ in range(50):
        last = trained.step(x, rate=0.05)
    assert last.loss < 0.1 and not np.array_equal(trained.state_dict()[name], begun[name])
    trained.export_onnx(path, outputs)
    again = ln.OnnxModule(path)
    found = learner_of(Parts(body=again), lambda x: again(x), {"x": x}).predict(x)
    np.testing.assert_allclose(found["output"], trained.predict(x)["output"], rtol=1e-5, atol=1e-6)


def test_mistakes_name_what_is_wrong(tmp_path: Path) -> None:
    path, model = str(tmp_path / "net.onnx"), ln.Linear(3, 2)
    learner = learner_of(model, lambda x: model(x), {"x": floats(4, 3)})
    with pytest.raises(ln.UserError, match="the outputs take y, and the inputs are x"):
        learner.export_onnx(path, lambda y: y)
    with pytest.raises(ln.UserError, match='"output" is a int; outputs of a file are tensors'):
        learner.export_onnx(path, lambda x: 3)
    with pytest.raises(ln.UserError, match='of "z", which is no input'):
        learner.export_onnx(path, lambda x: model(x), open_axes={"z": {0: "batch"}})
    with pytest.raises(ZeroDivisionError):
        learner.export_onnx(path, lambda x: 1 // 0)
    # Steps are unrolled in the file, so that their number cannot stay open: the line is that of the program.
    steps, memory = floats(2, 4, 3), ln.LSTM(3, 5)
    with pytest.raises(ln.UserError, match=r"depends on the sizes of its inputs, first in test_onnx\.py:\d+: "):
        learner_of(memory, lambda x: memory(x), {"x": steps}).export_onnx(
            path, lambda x: memory(x), {"x": steps}, open_axes={"x": {1: "length"}}
        )
    with pytest.raises(ln.UserError, match="cannot read"):
        learner_of(Parts(body=ln.OnnxModule(path + ".none")), lambda x: x, {"x": floats(4, 3)})
    assert not (tmp_path / "net.onnx").exists()

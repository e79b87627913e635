"""Functions of tensors: the numbers of NumPy and PyTorch's definitions."""

import typing

import linnet as ln
import numpy as np
import pytest

X = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)
Y = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)
IDS = np.array([2, 0, 2, 1], np.int64)
IMAGES = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)


def computed(function: typing.Callable[..., typing.Any], **arrays: typing.Any) -> list[np.ndarray]:
    """What a function of tensors gives for these arrays."""
    count = 0

    def loss(**tensors: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        nonlocal count
        found = function(**tensors)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        count = len(results)
        return ln.full((), 0.0), {f"result{i}": value for i, value in enumerate(results)}

    learner = ln.Learner(ln.Linear(1, 1), loss, arrays, training=False)
    answer = learner.predict(arrays)
    return [answer[f"result{i}"] for i in range(count)]


def rolled(x: np.ndarray) -> np.ndarray:
    return np.log(np.exp(x).sum(0))


FUNCTIONS: dict[str, tuple[typing.Callable[..., typing.Any], typing.Callable[..., typing.Any]]] = {
    "comparisons": (
        lambda x, y: (x > y) + 2 * (x >= 0.5) + 4 * (x < y) + 8 * (x <= 0) + 16 * (x == x) + 32 * (x != 1),
        lambda x, y: (x > y) + 2 * (x >= 0.5) + 4 * (x < y) + 8 * (x <= 0) + 16 * (x == x) + 32 * (x != 1),
    ),
    "arrays among tensors": (lambda x, y: np.arange(6.0) * x + Y - X[:1], lambda x, y: np.arange(6) * x + Y - X[:1]),
    "whole numbers in arithmetic": (
        lambda x, y: np.arange(6) * x + np.int64(2) * y - 3 * (IDS[:, None] == x.astype("int32")),
        lambda x, y: np.arange(6) * x + 2 * y - 3 * (IDS[:, None] == x.astype(np.int32)),
    ),
    "where of numbers": (lambda x, y: ln.where(X > y, 1, -0.5), lambda x, y: np.where(x > y, 1, -0.5)),
    "abs": (lambda x, y: ln.abs(x), lambda x, y: np.abs(x)),
    "logical": (
        lambda x, y: ln.logical_or(ln.logical_and(x > y, x < y), ln.logical_not(x < y)),
        lambda x, y: ~(x < y),
    ),
    "leaky_relu": (lambda x, y: ln.leaky_relu(x, 0.1), lambda x, y: np.where(x > 0, x, 0.1 * x)),
    "selu": (lambda x, y: ln.selu(x), lambda x, y: 1.0507009874 * np.where(x > 0, x, 1.6732632424 * (np.exp(x) - 1))),
    "elu": (lambda x, y: ln.elu(x, 2.0), lambda x, y: np.where(x > 0, x, 2 * (np.exp(x) - 1))),
    "softmax of columns": (lambda x, y: ln.softmax(x, axis=0), lambda x, y: np.exp(x - rolled(x))),
    "log_softmax of columns": (lambda x, y: ln.log_softmax(x, 0), lambda x, y: x - rolled(x)),
    "logsumexp of columns": (lambda x, y: ln.logsumexp(x, axis=0), lambda x, y: rolled(x)),
    "argmax of columns": (lambda x, y: ln.argmax(x, axis=0), lambda x, y: x.argmax(0)),
    "sort": (lambda x, y: ln.sort(x), lambda x, y: np.sort(x)),
    "argsort": (lambda x, y: ln.argsort(x, descending=True), lambda x, y: np.argsort(-x)),
    "einsum": (lambda x, y: ln.einsum("ij,kj->ik", x, y), lambda x, y: x @ y.T),
    "einsum of all other axes": (
        lambda x, y: ln.einsum("...ij,kj->...ik", x.reshape(2, 2, 2, 3), y.reshape(8, 3)),
        lambda x, y: np.einsum("...ij,kj->...ik", x.reshape(2, 2, 2, 3), y.reshape(8, 3)),
    ),
    "einsum without a result": (
        lambda x, y: ln.einsum("b...a,...c", x.reshape(2, 3, 4), y.reshape(3, 8)),
        lambda x, y: np.einsum("b...a,...c", x.reshape(2, 3, 4), y.reshape(3, 8)),
    ),
    "cumsum": (lambda x, y: ln.cumsum(x, 1), lambda x, y: np.cumsum(x, 1)),
    "tril": (lambda x, y: ln.tril(x, 1), lambda x, y: np.tril(x, 1)),
    "pad": (
        lambda x, y: ln.pad(x, 1, 2, 1, value=3),
        lambda x, y: np.pad(x, ((0, 0), (2, 1)), constant_values=3),
    ),
    "arange": (lambda x, y: x + ln.arange(6), lambda x, y: x + np.arange(6)),
    "sum of both axes": (lambda x, y: x.sum((0, 1)), lambda x, y: x.sum()),
    "var": (lambda x, y: x.var(axis=0, keepdims=True), lambda x, y: x.var(0, keepdims=True)),
    "max of all": (lambda x, y: x.max(keepdims=True), lambda x, y: x.max(keepdims=True)),
    "min": (lambda x, y: x.min(-1), lambda x, y: x.min(-1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_numpy(name: str) -> None:
    ours, theirs = FUNCTIONS[name]
    (answer,) = computed(ours, x=X, y=Y)
    expected = theirs(X, Y)
    assert answer.shape == np.shape(expected)
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


def test_rows_are_picked_and_added_up() -> None:
    values, places = computed(lambda x: ln.top_k(x, 2), x=X)
    order = np.argsort(-X)[:, :2]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(X, order, 1))
    (sums,) = computed(lambda x, ids: ln.scatter_add(x, ids, 4), x=X, ids=IDS)
    expected = np.zeros((4, 6), np.float32)
    np.add.at(expected, IDS, X)
    np.testing.assert_allclose(sums, expected, rtol=1e-6)
    (mask,) = computed(lambda ids: ln.sequence_mask(ids, 3), ids=IDS)
    np.testing.assert_array_equal(mask, [[1, 1, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0]])


def test_images_change_their_size() -> None:
    doubled, nearest, smooth = computed(
        lambda x: (ln.upsample(x), ln.resize(x, 8, 8, smooth=False), ln.resize(x, 2, 2)), x=IMAGES
    )
    np.testing.assert_array_equal(doubled, IMAGES.repeat(2, 1).repeat(2, 2))
    np.testing.assert_array_equal(nearest, doubled)
    np.testing.assert_allclose(smooth[0, 0, 0], IMAGES[0, :2, :2].mean((0, 1)))
    ones, sums = computed(
        lambda x: (
            ln.conv_transpose2d(x, ln.full((2, 2, 2, 1), 1.0), stride=2),
            ln.conv1d(x.reshape(1, 16, 2), ln.full((1, 3, 2), 1.0), padding=1),
        ),
        x=IMAGES,
    )
    np.testing.assert_allclose(ones, IMAGES.sum(-1, keepdims=True).repeat(2, 1).repeat(2, 2))
    np.testing.assert_allclose(sums[0, 1:-1, 0], np.convolve(IMAGES.reshape(16, 2).sum(1), np.ones(3), "valid"))


def test_gradients_are_tensors() -> None:
    def penalty(x: ln.Tensor) -> list[ln.Tensor]:
        (first,) = ln.gradients(ln.sin(x).sum(), [x])
        return [first, *ln.gradients(first.sum(), [x])]

    first, second = computed(penalty, x=X)
    np.testing.assert_allclose(first, np.cos(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, -np.sin(X), rtol=1e-5, atol=1e-6)


def test_random_numbers_follow_from_the_seed() -> None:
    def draw(seed: int) -> np.ndarray:
        net = ln.Linear(6, 1)

        def loss(x: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
            noise = ln.random_normal((200, 6)) + ln.random_uniform((200, 6), 4, 6)
            return net(x).sum(), {"noise": noise}

        learner = ln.Learner(net, loss, (X,), seed=seed)
        return np.stack([learner.predict(X)["noise"], learner.predict(X)["noise"]])

    one = draw(1)
    np.testing.assert_array_equal(one, draw(1))
    assert not np.array_equal(one, draw(2))
    assert abs(one.mean() - 5) < 0.15 and abs(one.std() - np.sqrt(1 + 1 / 3)) < 0.1


def test_layers_of_sequences_and_of_sizes_that_differ() -> None:
    class Net(ln.Module):
        def __init__(self) -> None:
            self.conv = ln.Conv2d(2, 3, (1, 3), padding=(0, 1))
            self.grow = ln.ConvTranspose2d(3, 2, 2, stride=2, output_padding=1)
            self.line = ln.Conv1d(2, 4, 3, padding=1)
            self.lstm, self.gru = ln.LSTM(4, 5), ln.GRU(5, 3)

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            y = self.grow(self.conv(x))
            return self.gru(self.lstm(self.line(y.reshape(1, -1, 2))))

    net = Net()

    def loss(x: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        y = net(x)
        return ln.square(y - 0.5).mean(), {"y": y}

    learner = ln.Learner(net, loss, (IMAGES / 32,), optimizer=ln.Adam())
    first = learner.step(IMAGES / 32, rate=1e-2).loss
    for _ in range(40):
        last = learner.step(IMAGES / 32, rate=1e-2).loss
    assert last < 0.5 * first
    assert learner.predict(IMAGES / 32)["y"].shape == (1, 81, 3)
    state = learner.state_dict()
    assert state["conv.weight"].shape == (3, 1, 3, 2)
    assert state["lstm.weight_ih_l0"].shape == (20, 4) and state["gru.bias_hh_l0"].shape == (9,)


def test_parameters_have_the_methods_of_tensors() -> None:
    class Net(ln.Module):
        def __init__(self) -> None:
            self.table = ln.parameter((2, 3), ln.init.values(X[:2, :3]))
            self.line = ln.Linear(3, 2)

    net = Net()

    def loss(x: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        penalty = net.table.mean(0).sum() + net.line.weight.reshape(3, 2).max()
        return penalty, {"table": net.table.transpose(0, 1).reshape(-1) + x, "weight": net.line.weight.sum(axis=0)}

    assert net.table.shape == (2, 3)
    learner = ln.Learner(net, loss, (np.zeros(6, np.float32),))
    answer, weight = learner.predict(np.zeros(6, np.float32)), learner.state_dict()["line.weight"]
    np.testing.assert_array_equal(answer["table"], X[:2, :3].T.ravel())
    np.testing.assert_allclose(answer["weight"], weight.sum(0), rtol=1e-6)
    learner.step(np.zeros(6, np.float32), rate=0.0)
    np.testing.assert_allclose(learner.gradient("table"), np.full((2, 3), 0.5))


def test_arrays_of_other_types_are_converted() -> None:
    (answer,) = computed(
        lambda x, ids, mask: ln.where(mask.astype("float32"), x, ln.gather(x, ids)), x=X, ids=IDS, mask=X > 0
    )
    np.testing.assert_array_equal(answer, np.where(X > 0, X, X[IDS]))
    (half,) = computed(lambda x: x * 2, x=X.astype(np.float16))
    np.testing.assert_array_equal(half, X.astype(np.float16).astype(np.float32) * 2)
    (turned,) = computed(lambda x: x * 1, x=X.T[::2])
    np.testing.assert_array_equal(turned, X.T[::2])

"""Weights to PyTorch and back: networks of the same names give the same logits. Skipped without PyTorch."""

import typing

import linnet as ln
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional


def test_signs_that_a_tensor_has_put_off() -> None:
    imaginary = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    np.testing.assert_array_equal(ln.Dataset(x=imaginary.reshape(2, 1))[0]["x"], [-2.0])


def learner_of(net: ln.Module, **batch: typing.Any) -> ln.Learner:
    def loss(**tensors: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        answer = net(**tensors)
        return ln.square(answer).sum(), {"answer": answer}

    return ln.Learner(net, loss, batch)


def compare(net: ln.Module, peer: typing.Any, batch: dict[str, typing.Any], peers: typing.Any) -> None:
    learner = learner_of(net, **batch)
    peer.load_state_dict(
        {name: torch.from_numpy(v) for name, v in learner.state_dict(layout="torch").items()}, strict=False
    )
    with torch.no_grad():
        expected = peer(peers).numpy()
    np.testing.assert_allclose(learner.predict(batch)["answer"].reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    # And back, from other weights.
    other = learner_of(net, **batch)
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.mul_(0.9)
        expected = peer(peers).numpy()
    other.load_state_dict(peer.state_dict(), layout="torch")
    np.testing.assert_allclose(other.predict(batch)["answer"].reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_tied_weights_of_a_file_have_two_names(tmp_path: typing.Any) -> None:
    peer = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    peer[1].weight = peer[0].weight
    torch.save(peer.state_dict(), tmp_path / "tied.pt")

    class Net(ln.Module):
        def __init__(self) -> None:
            self.layers = [ln.Embedding(5, 4)]

        def forward(self, ids: ln.Tensor) -> ln.Tensor:
            return self.layers[0](ids) @ self.layers[0].weight.T

    learner = learner_of(Net(), ids=np.array([1, 4]))
    assert learner.load(str(tmp_path / "tied.pt"), prefix="layers.").taken == ["layers.0.weight"]
    np.testing.assert_array_equal(learner.state_dict()["layers.0.weight"], peer[0].weight.detach())


def test_mlp() -> None:
    class Net(ln.Module):
        def __init__(self) -> None:
            self.fc1, self.fc2 = ln.Linear(10, 32), ln.Linear(32, 4)

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            return self.fc2(ln.gelu(self.fc1(x)))

    class Peer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(10, 32), nn.Linear(32, 4)

        def forward(self, x: typing.Any) -> typing.Any:
            return self.fc2(F.gelu(self.fc1(x)))

    x = torch.randn(8, 10)
    compare(Net(), Peer(), {"x": x}, x)
    net = Net()
    learner = learner_of(net, x=x)
    half = learner.predict(x=x.bfloat16())["answer"]
    np.testing.assert_array_equal(half, learner.predict(x=x.bfloat16().float())["answer"])


def test_cnn() -> None:
    class Net(ln.Module):
        def __init__(self) -> None:
            self.conv1, self.norm = ln.Conv2d(3, 8, 3, padding=1), ln.BatchNorm(8)
            self.conv2, self.fc = ln.Conv2d(8, 16, 3, stride=2), ln.Linear(16, 5)

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            x = ln.max_pool(ln.relu(self.norm(self.conv1(x))))
            return self.fc(ln.global_avg_pool(ln.relu(self.conv2(x))))

    class Peer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.conv2, self.fc = nn.Conv2d(8, 16, 3, stride=2), nn.Linear(16, 5)

        def forward(self, x: typing.Any) -> typing.Any:
            x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
            return self.fc(F.relu(self.conv2(x)).mean((2, 3)))

    peer = Peer().eval()
    x = torch.randn(4, 3, 16, 16)
    compare(Net(), peer, {"x": x.permute(0, 2, 3, 1)}, x)


def test_gpt() -> None:
    import gpt

    class PeerAttention(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(width, heads, batch_first=True)
            self.in_proj_weight, self.in_proj_bias = self.inner.in_proj_weight, self.inner.in_proj_bias
            self.out_proj = self.inner.out_proj
            del self.inner
            self.heads = heads

        def forward(self, x: typing.Any) -> typing.Any:
            rows, length, width = x.shape
            stacked = F.linear(x, self.in_proj_weight, self.in_proj_bias)
            q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in stacked.chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            return self.out_proj(y)

    class PeerBlock(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = PeerAttention(width, heads)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: typing.Any) -> typing.Any:
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Peer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(11, 32), nn.Embedding(16, 32)
            self.blocks = nn.ModuleList(PeerBlock(32, 4) for _ in range(2))
            self.norm = nn.LayerNorm(32)

        def forward(self, ids: typing.Any) -> typing.Any:
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.norm(x) @ self.tokens.weight.T

    class Net(gpt.GPT):  # type: ignore[misc]
        def forward(self, ids: ln.Tensor) -> ln.Tensor:
            return self.states(ids, ln.positions(ids)) @ self.head().T

    ids = torch.randint(0, 11, (3, 16))
    compare(Net(11, 16, width=32, layers=2, heads=4), Peer(), {"ids": ids}, ids)


def test_filters_of_all_convolutions() -> None:
    class Net(ln.Module):
        def __init__(self) -> None:
            self.line, self.grow = ln.Conv1d(3, 6, 3), ln.ConvTranspose2d(6, 3, 3, stride=2)

        def forward(self, x: ln.Tensor) -> ln.Tensor:
            return self.grow(self.line(x).reshape(-1, 2, 4, 6)).permute(0, 3, 1, 2)

    class Peer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.line, self.grow = nn.Conv1d(3, 6, 3), nn.ConvTranspose2d(6, 3, 3, stride=2)

        def forward(self, x: typing.Any) -> typing.Any:
            return self.grow(self.line(x.transpose(1, 2)).reshape(-1, 6, 2, 4))

    x = torch.randn(4, 10, 3)
    compare(Net(), Peer(), {"x": x}, x)

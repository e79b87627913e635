"""The workloads r-*, gpt-6l, cnn-* and resnet20 for peers other than PyTorch: with_jax.py and with_tensorflow.py.

A model is written once, over the operations that each of the two peers provides (`Operations`). Initial values are
drawn with NumPy from the distributions of the PyTorch peers (transformer_r.py, gpt.py, cnn.py, resnet.py). With bf16,
products and convolutions get and return bf16, as under torch.autocast; softmax, normalization statistics, losses,
parameters and moments are fp32.
"""

import argparse
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import common
import numpy as np

WORKLOADS = re.compile(r"r-\d+|gpt-6l|cnn-\d+|resnet20")


def arguments(*more: tuple[str, dict]):
    """more: further options of the peer."""
    parser = argparse.ArgumentParser(description="a training workload in JAX or TensorFlow")
    parser.add_argument("workload", help="r-64, gpt-6l, cnn-128, resnet20")
    parser.add_argument("--data", required=True, help="file of `linnet bench NAME --write-data`")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="timed, after warm-up")
    parser.add_argument("--dropout", type=float, default=0.1, help="of r-*")
    for name, about in more:
        parser.add_argument(name, **about)
    options = parser.parse_args()
    if not WORKLOADS.fullmatch(options.workload):
        parser.error(f"no workload {options.workload}; there are r-N, gpt-6l, cnn-N, resnet20")
    return options


class Operations:
    """What the models use. Activations are [B, S, d] or [B, H, W, C], weights [in, out] or [H, W, in, out].

    Each peer adds bf16 (the type), cast, reshape, take (rows of a table), product (einsum of two operands, in bf16
    where mixed), relu, gelu (tanh form), softmax, rsqrt, where, sum, mean, mean_of_image, cross_entropy, dropout, conv,
    max_pool, batch_norm.
    """

    mixed = False  # products and convolutions in bf16

    def half(self, x):
        return self.cast(x, self.bf16) if self.mixed else x

    def full(self, x):
        return self.cast(x, "float32")

    def linear(self, x, values: dict, name: str):
        weight, bias = values[name + ".weight"], values[name + ".bias"]
        y = self.product("bsi,io->bso" if len(x.shape) == 3 else "bi,io->bo", x, weight)
        return y + self.cast(bias, y.dtype)

    def layer_norm(self, x, values: dict, name: str):
        x = self.full(x)
        x = x - self.mean(x, -1)
        return x * self.rsqrt(self.mean(x * x, -1) + 1e-5) * values[name + ".weight"] + values[name + ".bias"]

    def attend(self, q, k, v, mask, p: float):
        """softmax(q k' / sqrt(d)) v for [B, S, H, d]; mask: bool, true where a key is seen."""
        scores = self.full(self.product("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k))
        weights = self.softmax(self.where(mask, scores, -math.inf))
        return self.product("bhqk,bkhd->bqhd", self.dropout(weights, p), v)


@dataclass
class Optimizer:
    kind: str  # "adam" (AdamW where decay is set) or "sgd" with momentum
    rate: float
    second: float = 0.999  # of the second moment
    momentum: float = 0.9
    decay: float = 0.0  # adam: decoupled, of matrices only; sgd: L2, of everything
    clip: float = 0.0  # largest global norm of the gradient; 0: any


@dataclass
class Model:
    """One workload: initial values by name, the loss, and how it is trained."""

    optimizer: Optimizer
    fields: tuple[str, ...]  # of the file with the batches, in the order of the loss' arguments
    per_step: int
    unit: str
    values: dict = field(default_factory=dict)
    statistics: dict = field(default_factory=dict)  # running mean and variance of batch normalization
    loss: Callable | None = None  # (operations, values, statistics, *batch) -> loss, new statistics
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def uniform(self, shape, bound: float):
        return self.random.uniform(-bound, bound, shape).astype(np.float32)

    def normal(self, shape, deviation: float):
        return (self.random.standard_normal(shape) * deviation).astype(np.float32)

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        """PyTorch's default."""
        self.values[name + ".weight"] = self.uniform((inputs, outputs), inputs**-0.5)
        self.values[name + ".bias"] = self.uniform(outputs, inputs**-0.5)

    def norm(self, name: str, width: int) -> None:
        self.values[name + ".weight"] = np.ones(width, np.float32)
        self.values[name + ".bias"] = np.zeros(width, np.float32)

    def convolution(self, name: str, size: int, inputs: int, outputs: int) -> None:
        shape = (size, size, inputs, outputs)
        self.values[name + ".weight"] = self.uniform(shape, (size * size * inputs) ** -0.5)


def attention(op: Operations, values: dict, name: str, heads: int, x, mask=None, memory=None, p: float = 0.0):
    """Multi-head attention; without a mask, causal; with a memory, keys and values are the memory's."""
    weight, bias = values[name + ".in.weight"], values[name + ".in.bias"]
    d = weight.shape[0]
    parts = [(x, 0, 3)] if memory is None else [(x, 0, 1), (memory, 1, 3)]
    found = []
    for source, begin, end in parts:
        part = {"part.weight": weight[:, begin * d:end * d], "part.bias": bias[begin * d:end * d]}
        y = op.linear(source, part, "part")
        shape = (-1, x.shape[1], heads, d // heads)
        found += [op.reshape(y[..., i * d:(i + 1) * d], shape) for i in range(end - begin)]
    mixed = op.attend(*found, np.tri(x.shape[1], dtype=bool) if mask is None else mask, p)
    return op.full(op.linear(op.reshape(mixed, (-1, x.shape[1], d)), values, name + ".out"))


def transformer_r(sequence: int, p: float) -> Model:
    d, heads, inner, layers, vocabulary, batch = 256, 8, 1024, 2, 256, 16
    model = Model(Optimizer("adam", 1e-4), ("source", "source_lengths", "target_in", "target_out", "target_lengths"),
                  batch, "samples/s")
    for name in ("source", "target"):
        model.values[name] = model.normal((vocabulary, d), 1)
    for part, attentions in (("encoder", ["self"]), ("decoder", ["self", "cross"])):
        for layer in range(layers):
            shapes = {"up": (d, inner), "down": (inner, d)}
            for name in attentions:
                shapes |= {f"{name}.in": (d, 3 * d), f"{name}.out": (d, d)}
                model.norm(f"{part}.{layer}.{name}.norm", d)
            model.norm(f"{part}.{layer}.norm", d)
            for name, (inputs, outputs) in shapes.items():
                model.linear(f"{part}.{layer}.{name}", inputs, outputs)
                xavier = math.sqrt(6 / (inputs + outputs))
                model.values[f"{part}.{layer}.{name}.weight"] = model.uniform((inputs, outputs), xavier)
        model.norm(f"{part}.norm", d)
    model.linear("head", d, vocabulary)
    angle = np.arange(sequence)[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
    positions = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(sequence, d).astype(np.float32)

    def block(op, values, name, x, mask, memory=None, memory_mask=None):
        mixed = attention(op, values, name + ".self", heads, x, mask, p=p)
        x = op.layer_norm(x + op.dropout(mixed, p), values, name + ".self.norm")
        if memory is not None:
            mixed = attention(op, values, name + ".cross", heads, x, memory_mask, memory, p)
            x = op.layer_norm(x + op.dropout(mixed, p), values, name + ".cross.norm")
        hidden = op.dropout(op.relu(op.linear(x, values, name + ".up")), p)
        y = op.full(op.linear(hidden, values, name + ".down"))
        return op.layer_norm(x + op.dropout(y, p), values, name + ".norm")

    def loss(op, values, statistics, source, source_lengths, target_in, target_out, target_lengths):
        columns = np.arange(sequence, dtype=np.int32)
        source_mask = (columns < source_lengths[:, None])[:, None, None, :]
        target_mask = (columns < target_lengths[:, None])[:, None, None, :] & np.tri(sequence, dtype=bool)
        memory = op.take(values["source"], source) * d**0.5 + positions
        for layer in range(layers):
            memory = block(op, values, f"encoder.{layer}", memory, source_mask)
        memory = op.layer_norm(memory, values, "encoder.norm")
        x = op.take(values["target"], target_in) * d**0.5 + positions
        for layer in range(layers):
            x = block(op, values, f"decoder.{layer}", x, target_mask, memory, source_mask)
        logits = op.full(op.linear(op.layer_norm(x, values, "decoder.norm"), values, "head"))
        kept = op.full(target_out != 0)  # 0: padding
        return op.sum(op.cross_entropy(logits, target_out) * kept) / op.sum(kept), statistics

    model.loss = loss
    return model


def gpt_6l() -> Model:
    layers, d, heads, vocabulary, batch, sequence = 6, 384, 6, 65, 8, 256
    model = Model(Optimizer("adam", 3e-4, second=0.95, decay=0.1, clip=1.0), ("tokens", "targets"),
                  batch * sequence, "tokens/s")
    model.values |= {"tokens": model.normal((vocabulary, d), 0.02), "positions": model.normal((sequence, d), 0.02)}
    for layer in range(layers):
        shapes = {"attention.in": (d, 3 * d), "attention.out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
        for name, shape in shapes.items():
            # What adds to the residual stream starts smaller.
            deviation = 0.02 / math.sqrt(2 * layers) if name in ("attention.out", "down") else 0.02
            model.values[f"{layer}.{name}.weight"] = model.normal(shape, deviation)
            model.values[f"{layer}.{name}.bias"] = np.zeros(shape[1], np.float32)
        model.norm(f"{layer}.norm1", d)
        model.norm(f"{layer}.norm2", d)
    model.norm("norm", d)

    def loss(op, values, statistics, tokens, targets):
        x = op.take(values["tokens"], tokens) + values["positions"]
        for layer in map(str, range(layers)):
            x = x + attention(op, values, layer + ".attention", heads, op.layer_norm(x, values, layer + ".norm1"))
            hidden = op.gelu(op.linear(op.layer_norm(x, values, layer + ".norm2"), values, layer + ".up"))
            x = x + op.full(op.linear(hidden, values, layer + ".down"))
        logits = op.product("bsd,vd->bsv", op.layer_norm(x, values, "norm"), values["tokens"])
        return op.mean(op.cross_entropy(op.full(logits), targets), None), statistics

    model.loss = loss
    return model


def cnn(batch: int) -> Model:
    model = Model(Optimizer("adam", 1e-3), ("images", "labels"), batch, "samples/s")
    model.convolution("conv", 3, 1, 16)
    model.values["conv.bias"] = model.uniform(16, 1 / 3)
    model.linear("dense", 14 * 14 * 16, 10)

    def loss(op, values, statistics, images, labels):
        x = op.conv(op.half(op.full(images) * (1 / 255)), op.half(values["conv.weight"]), 1)
        # In this order, which gives the same, relu has a quarter of the values.
        x = op.relu(op.max_pool(x + op.half(values["conv.bias"])))
        logits = op.full(op.linear(op.reshape(x, (batch, -1)), values, "dense"))
        return op.mean(op.cross_entropy(logits, labels), None), statistics

    model.loss = loss
    return model


def resnet20() -> Model:
    batch = 128
    model = Model(Optimizer("sgd", 0.02, decay=1e-4), ("images", "labels"), batch, "samples/s")

    def add(name, size, inputs, outputs):
        model.convolution(name, size, inputs, outputs)
        model.norm(name + ".norm", outputs)
        model.statistics[name + ".mean"] = np.zeros(outputs, np.float32)
        model.statistics[name + ".variance"] = np.ones(outputs, np.float32)

    add("first", 3, 3, 16)
    blocks, inputs = [], 16
    for stage, width in enumerate((16, 32, 64)):
        for index in range(3):
            name, stride = f"{stage}.{index}", 2 if stage > 0 and index == 0 else 1
            add(name + ".1", 3, inputs, width)
            add(name + ".2", 3, width, width)
            if inputs != width:
                add(name + ".shortcut", 1, inputs, width)
            blocks.append((name, stride, inputs != width))
            inputs = width
    model.linear("head", inputs, 10)

    def loss(op, values, statistics, images, labels):
        updated = {}

        def normalized(name, x, stride=1):
            x = op.conv(x, op.half(values[name + ".weight"]), stride)
            y, mean, variance = op.batch_norm(x, values[name + ".norm.weight"], values[name + ".norm.bias"])
            count = x.shape[0] * x.shape[1] * x.shape[2]
            for key, new in (("mean", mean), ("variance", variance * (count / (count - 1)))):
                updated[f"{name}.{key}"] = 0.9 * statistics[f"{name}.{key}"] + 0.1 * new
            return y

        x = op.relu(normalized("first", op.half(op.full(images) * (1 / 255))))
        for name, stride, shortcut in blocks:
            y = normalized(name + ".2", op.relu(normalized(name + ".1", x, stride)))
            x = op.relu(y + (normalized(name + ".shortcut", x, stride) if shortcut else x))
        logits = op.full(op.linear(op.mean_of_image(x), values, "head"))
        return op.mean(op.cross_entropy(logits, labels), None), updated

    model.loss = loss
    return model


def create(options) -> Model:
    name, _, size = options.workload.partition("-")
    if name == "r":
        return transformer_r(int(size), options.dropout)
    return {"gpt": gpt_6l, "cnn": lambda: cnn(int(size)), "resnet20": resnet20}[name]()


class WholeStep(common.Gradients):
    """A training step in one call, which returns the loss."""

    apart = False

    def __init__(self, step: Callable):
        self.step = step

    def forward(self, batch):
        return self.step(*batch)

    def backward(self, loss) -> None:
        pass


def read_batches(options, model: Model, move: Callable) -> list[tuple]:
    """One tuple of arrays per batch, each through move()."""
    from safetensors.numpy import load_file

    whole = load_file(options.data)
    return [tuple(move(value) for value in batch) for batch in zip(*(whole[name] for name in model.fields))]


def report(options, model: Model, step: Callable, batches: list[tuple], about: dict, after_import: float) -> None:
    """Trains and prints the line of JSON; step(*batch) -> loss; about: the package and its version."""
    workload = common.Workload(parameters=list(model.values.values()), gradients=WholeStep(step), update=lambda: None,
                               batches=batches, per_step=model.per_step, unit=model.unit)
    fields = common.measure(workload, options.seconds, split=False)
    fields["memory_mb"] = round(fields.pop("steady_mb") - after_import, 1)  # of steady training
    fields["memory_with_warmup_mb"] = round(fields.pop("peak_mb") - after_import, 1)  # and with the compiler's
    print(json.dumps(about | {"workload": options.workload, "precision": options.precision,
                              "threads": options.threads} | fields))

"""Trains one workload in JAX (optax, XLA on the CPU) for some seconds and prints one line of JSON, as peer.py does.

    PYTHON bench/peers/with_jax.py r-64 --data FILE [--precision bf16] [--threads 2] [--seconds 5]

The whole step is one jit whose parameters, moments and statistics are donated. Dropout's bits are a hash of step and
element, as in PyTorch's "tuned" mode: XLA fuses it, and JAX's own generators are slower.
"""

import os

import common
import others

options = others.arguments(("--xla", {"action": "append", "default": [], "help": "another of XLA's flags, to try"}))
# Both are read when JAX is imported; the size of XLA's pool of threads is NPROC, or else the processors it may use.
os.environ["XLA_FLAGS"] = " ".join(["--xla_cpu_multi_thread_eigen=true", *options.xla])
os.environ["NPROC"] = str(options.threads)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402


class Operations(others.Operations):
    bf16 = jnp.bfloat16
    mixed = options.precision == "bf16"
    reshape, relu, rsqrt = staticmethod(jnp.reshape), staticmethod(jax.nn.relu), staticmethod(lax.rsqrt)
    where, sum = staticmethod(jnp.where), staticmethod(jnp.sum)
    gelu = staticmethod(jax.nn.gelu)  # by default the tanh form

    def __init__(self, seed):
        self.seed, self.sites = seed, 0

    def cast(self, x, dtype):
        return jnp.asarray(x).astype(dtype)

    def product(self, spec, a, b):
        """The result is fp32 with bf16, too: XLA on the CPU is slower with a result in bf16."""
        return jnp.einsum(spec, self.half(a), self.half(b), preferred_element_type=jnp.float32)

    def take(self, table, rows):
        return table[rows]

    def mean(self, x, axis):
        return jnp.mean(x, axis, keepdims=axis is not None)

    def cross_entropy(self, logits, labels):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)

    def attend(self, q, k, v, mask, p):
        """Divides after the last product; jax.nn.dot_product_attention is slower and has no dropout."""
        scores = jnp.where(mask, self.product("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k), -np.inf)
        weights = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
        mixed = self.product("bhqk,bkhd->bqhd", self.dropout(weights, p), v)
        return mixed / weights.sum(-1).swapaxes(1, 2)[..., None]

    def dropout(self, x, p: float):
        """1 / (1 - p) times what is kept, by 24 bits of the hash in blocks.py."""
        if p == 0:
            return x
        self.sites += 1
        h = lax.iota(jnp.uint32, x.size).reshape(x.shape) + (self.seed + np.uint32(self.sites * 0x9E3779B1 % 2**32))
        h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D)
        h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
        h = h ^ (h >> 16)
        return x * jnp.where((h & 0xFFFFFF) >= round(p * 2**24), 1 / (1 - p), 0.0).astype(x.dtype)

    def conv(self, x, weight, stride):
        edge = weight.shape[0] // 2
        return lax.conv_general_dilated(x, weight, (stride, stride), [(edge, edge)] * 2,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def max_pool(self, x):
        rows = jnp.maximum(x[:, ::2], x[:, 1::2])
        return jnp.maximum(rows[:, :, ::2], rows[:, :, 1::2])

    def batch_norm(self, x, weight, bias):
        """-> normalized x, mean, variance"""
        wide = self.full(x)
        mean = wide.mean((0, 1, 2))
        variance = (wide * wide).mean((0, 1, 2)) - mean * mean
        scale = weight * lax.rsqrt(variance + 1e-5)
        return (wide * scale + (bias - mean * scale)).astype(x.dtype), mean, variance

    def mean_of_image(self, x):
        return jnp.mean(x, (1, 2))


def optimizer_of(about: others.Optimizer):
    if about.kind == "sgd":
        return optax.chain(optax.add_decayed_weights(about.decay), optax.sgd(about.rate, about.momentum))
    if not about.decay:
        return optax.adam(about.rate, b2=about.second)
    adam = optax.adamw(about.rate, b2=about.second, weight_decay=about.decay,
                       mask=lambda values: {name: value.ndim >= 2 for name, value in values.items()})
    return optax.chain(optax.clip_by_global_norm(about.clip), adam)


def main() -> None:
    after_import = common.memory_mb("VmRSS")
    common.reset_peak()
    common.keep_freed_memory()
    model = others.create(options)
    optimizer = optimizer_of(model.optimizer)

    def step(state, *batch):
        values, moments, statistics, seed = state

        def loss_of(values):
            return model.loss(Operations(seed), values, statistics, *batch)

        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(values)
        updates, moments = optimizer.update(gradients, moments, values)
        return (optax.apply_updates(values, updates), moments, statistics, seed + np.uint32(0x3C6EF35F)), loss

    compiled = jax.jit(step, donate_argnums=0)
    values = jax.tree.map(jnp.array, model.values)
    state = (values, optimizer.init(values), jax.tree.map(jnp.array, model.statistics), jnp.uint32(0))

    def train(*batch):
        nonlocal state
        state, loss = compiled(state, *batch)
        return loss

    others.report(options, model, train, others.read_batches(options, model, jnp.array),
                  {"peer": "jax", "version": jax.__version__}, after_import)


if __name__ == "__main__":
    main()

"""Trains one workload in TensorFlow on the CPU for some seconds and prints one line of JSON, as peer.py does.

    PYTHON bench/peers/with_tensorflow.py r-64 --data FILE [--precision bf16] [--threads 2] [--seconds 5]

The whole step is one tf.function, run as a graph with oneDNN's kernels; --jit compiles it by XLA, which is slower.
"""

import os

import common
import others

options = others.arguments(("--jit", {"action": "store_true", "help": "by XLA instead of op by op"}))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read at import: errors only

import tensorflow as tf  # noqa: E402


class Operations(others.Operations):
    bf16 = tf.bfloat16
    mixed = options.precision == "bf16"
    cast, reshape, where = staticmethod(tf.cast), staticmethod(tf.reshape), staticmethod(tf.where)
    relu, softmax, rsqrt = staticmethod(tf.nn.relu), staticmethod(tf.nn.softmax), staticmethod(tf.math.rsqrt)
    sum, take = staticmethod(tf.reduce_sum), staticmethod(tf.gather)

    def product(self, spec, a, b):
        return tf.einsum(spec, self.half(a), self.half(b))

    def gelu(self, x):
        return tf.nn.gelu(x, approximate=True)

    def mean(self, x, axis):
        return tf.reduce_mean(x, axis, keepdims=axis is not None)

    def mean_of_image(self, x):
        return tf.reduce_mean(x, (1, 2))

    def cross_entropy(self, logits, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def dropout(self, x, p: float):
        return tf.nn.dropout(x, p) if p else x

    def conv(self, x, weight, stride):
        """Padding before a stride is an op of its own: gradients of convolutions with explicit padding are slow."""
        edge = weight.shape[0] // 2
        if stride == 1 or not edge:
            return tf.nn.conv2d(x, weight, stride, "SAME")
        return tf.nn.conv2d(tf.pad(x, [[0, 0], [edge, edge], [edge, edge], [0, 0]]), weight, stride, "VALID")

    def max_pool(self, x):
        return tf.nn.max_pool2d(x, 2, 2, "VALID")

    def batch_norm(self, x, weight, bias):
        """-> normalized x, mean, variance"""
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, weight, bias, epsilon=1e-5)
        count = x.shape[0] * x.shape[1] * x.shape[2]
        return y, mean, variance * ((count - 1) / count)  # TensorFlow returns the unbiased variance


class Update:
    """Adam, AdamW or SGD by TensorFlow's own kernels, one for each tensor."""

    def __init__(self, about: others.Optimizer, values: dict):
        self.about = about
        zeros = {name: tf.zeros_like(value) for name, value in values.items()}
        self.first = {name: tf.Variable(zero) for name, zero in zeros.items()}
        self.second = {name: tf.Variable(zero) for name, zero in zeros.items()} if about.kind == "adam" else {}
        self.powers = [tf.Variable(about.momentum), tf.Variable(about.second)]  # both to the power of the step's number

    def __call__(self, values: dict, gradients: dict) -> None:
        about = self.about
        if about.clip:
            clipped, _ = tf.clip_by_global_norm(list(gradients.values()), about.clip)
            gradients = dict(zip(gradients, clipped))
        for name, value in values.items():
            if about.kind == "sgd":
                tf.raw_ops.ResourceApplyMomentum(
                    var=value.handle, accum=self.first[name].handle, lr=about.rate, momentum=about.momentum,
                    grad=gradients[name] + about.decay * value)
                continue
            if about.decay and len(value.shape) >= 2:
                value.assign(value * (1 - about.rate * about.decay))
            tf.raw_ops.ResourceApplyAdam(
                var=value.handle, m=self.first[name].handle, v=self.second[name].handle, beta1_power=self.powers[0],
                beta2_power=self.powers[1], lr=about.rate, beta1=about.momentum, beta2=about.second, epsilon=1e-8,
                grad=gradients[name])
        self.powers[0].assign(self.powers[0] * about.momentum)
        self.powers[1].assign(self.powers[1] * about.second)


def main() -> None:
    after_import = common.memory_mb("VmRSS")
    common.reset_peak()
    common.keep_freed_memory()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    tf.random.set_seed(1)
    model = others.create(options)
    values = {name: tf.Variable(value) for name, value in model.values.items()}
    statistics = {name: tf.Variable(value, trainable=False) for name, value in model.statistics.items()}
    update = Update(model.optimizer, values)

    @tf.function(jit_compile=options.jit)
    def step(*batch):
        with tf.GradientTape() as tape:
            read = {name: tf.convert_to_tensor(value) for name, value in values.items()}
            tape.watch(read)
            loss, updated = model.loss(Operations(), read, statistics, *batch)
        update(values, {name: tf.convert_to_tensor(g) for name, g in tape.gradient(loss, read).items()})
        for name, value in updated.items():
            statistics[name].assign(value)
        return loss

    others.report(options, model, lambda *batch: step(*batch).numpy(), others.read_batches(options, model, tf.constant),
                  {"peer": "tensorflow", "version": tf.__version__}, after_import)


if __name__ == "__main__":
    main()

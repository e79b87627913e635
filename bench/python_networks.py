"""What bench/python_speed.py measures in a process of its own: a run by task, or steps by hand on a network in Python.

    python_networks.py task PRESET RUN THREADS SETTINGS_AS_JSON
    python_networks.py hand r-64|gpt-6l BATCHES.safetensors THREADS STEPS

The networks have the sizes and the order of ops of those of `linnet bench`.
"""

import json
import struct
import sys
import time

import linnet as ln
import numpy as np


class Layer(ln.Module):
    """A layer of an encoder or a decoder. Post-LN: x = norm(x + dropout(f(x))); pre-LN: x = x + f(norm(x))."""

    def __init__(self, width, heads, hidden, dropout=0.0, crosses=False, pre=False):
        self.self_attn = ln.MultiHeadAttention(width, heads, dropout=dropout)
        if crosses:
            self.cross_attn = ln.MultiHeadAttention(width, heads, dropout=dropout)
        self.linear1, self.linear2 = ln.Linear(width, hidden), ln.Linear(hidden, width)
        self.dropout = ln.Dropout(dropout)
        count = 3 if crosses else 2
        for i in range(1, count + 1):
            setattr(self, f"norm{i}", ln.LayerNorm(width))
            setattr(self, f"dropout{i}", ln.Dropout(dropout))
        self.crosses, self.pre = crosses, pre

    def feed(self, x):
        hidden = self.linear1(x)
        return self.linear2(self.dropout(ln.gelu_tanh(hidden) if self.pre else ln.relu(hidden)))

    def forward(self, x, lengths=None, memory=None, memory_lengths=None, causal=False):
        parts = [lambda y: self.self_attn(y, lengths=lengths, causal=causal)]
        if self.crosses:
            parts.append(lambda y: self.cross_attn(y, memory, lengths=memory_lengths))
        for i, part in enumerate([*parts, self.feed], 1):
            norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
            x = x + dropout(part(norm(x))) if self.pre else norm(x + dropout(part(x)))
        return x


class Stack(ln.Module):
    def __init__(self, count, width, **options):
        self.layers = [Layer(width, **options) for _ in range(count)]
        self.norm = ln.LayerNorm(width)

    def forward(self, x, **options):
        for layer in self.layers:
            x = layer(x, **options)
        return self.norm(x)


class Head(ln.Module):
    def __init__(self, width, vocabulary):
        self.weight = ln.parameter((vocabulary, width), ln.init.xavier_uniform())
        self.bias = ln.parameter((vocabulary,), ln.init.zeros())

    def forward(self, x, targets):
        return ln.linear_cross_entropy(x, self.weight, targets, self.bias)


class Translator(ln.Module):
    def __init__(self, width=256, heads=8, hidden=1024, layers=2, vocabulary=256, length=64, dropout=0.1):
        angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
        table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, width)
        self.positions = ln.Buffer((length, width), ln.init.values(table))
        self.embedding_dropout = ln.Dropout(dropout)
        sizes = dict(heads=heads, hidden=hidden, dropout=dropout)
        self.encoder, self.decoder = Stack(layers, width, **sizes), Stack(layers, width, crosses=True, **sizes)
        self.head = Head(width, vocabulary)
        self.source_embedding = ln.Embedding(vocabulary, width, scaled=True)
        self.target_embedding = ln.Embedding(vocabulary, width, scaled=True)

    def forward(self, source, source_lengths, target_in, target_out, target_lengths):
        embed = lambda table, ids: self.embedding_dropout(table(ids) + self.positions)  # noqa: E731
        memory = self.encoder(embed(self.source_embedding, source), lengths=source_lengths)
        states = self.decoder(embed(self.target_embedding, target_in), lengths=target_lengths, memory=memory,
                              memory_lengths=source_lengths, causal=True)  # fmt: skip
        return self.head(states, ln.mask_targets(target_out, target_lengths))


class GPT(ln.Module):
    def __init__(self, width=384, heads=6, layers=6, vocabulary=65, length=256):
        small = ln.init.normal(0.02)
        self.tokens, self.positions = ln.Embedding(vocabulary, width, small), ln.Embedding(length, width, small)
        self.layers = [Layer(width, heads, 4 * width, pre=True) for _ in range(layers)]
        self.norm = ln.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, causal=True)
        return ln.linear_cross_entropy(self.norm(x), self.tokens.weight, targets)


def read(path):
    """int32 tensors of a safetensors file."""
    with open(path, "rb") as file:
        whole = file.read()
    size = struct.unpack("<Q", whole[:8])[0]
    entries = json.loads(whole[8 : 8 + size])
    return {
        name: np.frombuffer(whole[8 + size :], np.int32)[entry["data_offsets"][0] // 4 : entry["data_offsets"][1] // 4]
        .reshape(entry["shape"])
        for name, entry in entries.items() if name != "__metadata__"
    }  # fmt: skip


def by_hand(name, path, threads, steps):
    batches = read(path)
    count = len(next(iter(batches.values())))
    if name == "r-64":
        net, rate = Translator(), 1e-4
        options = dict(optimizer=ln.Adam())
    else:
        net, rate = GPT(), 3e-4
        options = dict(optimizer=ln.AdamW(beta2=0.95, weight_decay=0.1), clip_norm=1.0)
    taken = [{key: value[i] for key, value in batches.items()} for i in range(count)]
    learner = ln.Learner(net, lambda **fields: net(**fields), taken[0], threads=threads, **options)
    losses, seconds, processor = [], [], []
    for step in range(2 + steps):
        began, used = time.perf_counter(), time.process_time()
        losses.append(learner.step(taken[step % count], rate=rate).loss)
        seconds.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return {
        "steps_per_second": 1 / float(np.median(seconds[2:])),
        "processor_ms": 1000 * float(np.median(processor[2:])),
        "losses": [losses[0], losses[-1]],
    }


if __name__ == "__main__":
    if sys.argv[1] == "task":
        preset, run, threads, settings = sys.argv[2:]
        ln.train(preset, run=run, threads=int(threads), **json.loads(settings))
    else:
        print(json.dumps(by_hand(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))

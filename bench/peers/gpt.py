"""GPT-2's architecture: pre-LN, GELU (tanh form), learned positions, tied head, no dropout; AdamW 3e-4, clipped at 1.

gpt-6l: 6 layers, d 384, 6 heads, vocabulary 65, 8 x 256 tokens. gpt2-124m: 12, 768, 12, 50257, 2 x 1024;
gpt2-124m-8: 8 x 1024.
"""

import dataclasses
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import blocks
import training
from blocks import Attention, Dropout
from common import Workload


@dataclass(frozen=True)
class Shape:
    layers: int
    d: int
    heads: int
    vocab: int
    batch: int
    sequence: int
    dropout: float = 0


SHAPES = {"gpt-6l": Shape(6, 384, 6, 65, 8, 256), "gpt2-124m": Shape(12, 768, 12, 50257, 2, 1024),
          "gpt2-124m-8": Shape(12, 768, 12, 50257, 8, 1024)}


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        d = shape.d
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = Attention(d, shape.heads, shape.dropout)
        self.dropout = Dropout(shape.dropout)
        self.linear1, self.linear2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x), causal=True))
        return x + self.dropout(self.linear2(F.gelu(self.linear1(self.norm2(x)), approximate="tanh")))


class Model(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.d)
        self.positions = nn.Embedding(shape.sequence, shape.d)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.d)
        self.apply(self.initialize)
        for block in self.blocks:  # what adds to the residual stream starts smaller
            for linear in (block.attention.out_proj, block.linear2):
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * shape.layers))

    @staticmethod
    def initialize(module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def logits(self, tokens):
        x = self.dropout(self.tokens(tokens) + self.positions.weight[:tokens.shape[-1]])
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)

    def forward(self, tokens, targets):
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())


def made_up(shape: Shape, count: int = 4) -> dict:
    text = torch.randint(shape.vocab, (count, shape.batch, shape.sequence + 1))
    return {"tokens": text[..., :-1], "targets": text[..., 1:]}


def create(options) -> Workload:
    shape = SHAPES[options.workload]
    if options.batch:
        shape = dataclasses.replace(shape, batch=options.batch)
    blocks.ATTENTION = options.attention
    model = Model(shape).to(options.device)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(training.decayed(model, 0.1), lr=3e-4, betas=(0.9, 0.95), **training.optimizer_settings(options))

    return Workload(
        parameters=parameters, gradients=training.gradients(model, options),
        update=training.clipped_step(parameters, optimizer),
        batches=training.batches(options, ("tokens", "targets"), lambda: made_up(shape)),
        per_step=shape.batch * shape.sequence, unit="tokens/s")

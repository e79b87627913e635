"""BERT-base as a masked language model: 12 layers, d 768, 12 heads, ff 3072, GELU (erf), post-LN, 4 x 512;
bert-base-32: 32 x 512.

Vocabulary 30522, learned positions and token types (all 0), dropout 0.1; lengths in [256, 512] with padding masked. The
head (dense, GELU, norm, tied decoder with a bias) sees the masked positions only. AdamW 1e-4, clipped at 1.
"""

import torch
import torch.nn.functional as F
from torch import nn

import blocks
import training
from blocks import Attention, Dropout
from common import Workload

LAYERS, D, HEADS, FF, VOCAB, BATCH, SEQUENCE = 12, 768, 12, 3072, 30522, 4, 512
UNUSED, MASK, FIRST_WORD = -1, 103, 1000
PREDICTED = 77  # rows of the head for each sample: 15% of the tokens, the last unused where lengths are short


class Layer(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        self.attention = Attention(D, HEADS, p)
        self.linear1, self.linear2 = nn.Linear(D, FF), nn.Linear(FF, D)
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-12), nn.LayerNorm(D, eps=1e-12)
        self.dropout1, self.dropout2 = Dropout(p), Dropout(p)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout1(self.attention(x, mask)))
        return self.norm2(x + self.dropout2(self.linear2(F.gelu(self.linear1(x)))))


class Model(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        self.tokens, self.positions, self.types = nn.Embedding(VOCAB, D), nn.Embedding(512, D), nn.Embedding(2, D)
        self.norm, self.dropout = nn.LayerNorm(D, eps=1e-12), Dropout(p)
        self.layers = nn.ModuleList(Layer(p) for _ in range(LAYERS))
        self.dense, self.dense_norm = nn.Linear(D, D), nn.LayerNorm(D, eps=1e-12)
        self.decoder_bias = nn.Parameter(torch.zeros(VOCAB))
        self.register_buffer("columns", torch.arange(SEQUENCE))
        self.apply(self.initialize)

    @staticmethod
    def initialize(module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, tokens, lengths, positions, targets):
        mask = (self.columns < lengths[:, None])[:, None, None, :]
        x = self.dropout(self.norm(self.tokens(tokens) + self.positions.weight[:SEQUENCE] + self.types.weight[0]))
        for layer in self.layers:
            x = layer(x, mask)
        predicted = self.dense_norm(F.gelu(self.dense(x.flatten(0, 1)[positions])))
        logits = F.linear(predicted, self.tokens.weight, self.decoder_bias)
        return F.cross_entropy(logits, targets, ignore_index=UNUSED)


def made_up(batch: int, count: int = 4) -> dict:
    """Random words, 15% of each row masked."""
    tokens = torch.randint(FIRST_WORD, VOCAB, (count, batch, SEQUENCE))
    lengths = torch.randint(SEQUENCE // 2, SEQUENCE + 1, (count, batch))
    positions = torch.zeros(count, batch * PREDICTED, dtype=torch.long)
    targets = torch.full((count, batch * PREDICTED), UNUSED)
    for index in range(count):
        chosen = torch.cat([row * SEQUENCE + torch.randperm(length)[: int(0.15 * length)]
                            for row, length in enumerate(lengths[index].tolist())])
        positions[index, : len(chosen)] = chosen
        targets[index, : len(chosen)] = tokens[index].flatten()[chosen]
        tokens[index].view(-1)[chosen] = MASK
    return {"tokens": tokens, "lengths": lengths, "positions": positions, "targets": targets}


def create(options) -> Workload:
    Dropout.hashed = options.mode == "tuned"
    model = Model(options.dropout).to(options.device)
    batch = options.batch or (32 if options.workload == "bert-base-32" else BATCH)
    blocks.ATTENTION = options.attention
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(training.decayed(model, 0.01), lr=1e-4, **training.optimizer_settings(options))

    step = training.clipped_step(parameters, optimizer)

    def update():
        step()
        Dropout.next_step()

    return Workload(
        parameters=parameters, gradients=training.gradients(model, options), update=update,
        batches=training.batches(options, ("tokens", "lengths", "positions", "targets"), lambda: made_up(batch)),
        per_step=batch, unit="samples/s")

"""Reference Transformer R: d 256, 8 heads, ff 1024, 2+2 layers, ReLU, post-LN, vocabulary 256, batch 16, Adam 1e-4.

The sums of torch.nn.Transformer (its defaults, with scaled embeddings, sinusoidal positions and a linear head), written
out because this is the faster: one mask instead of several added up, one product for a memory's keys and values.
Lengths are uniform in [S / 2, S]; the loss is the token mean of the cross-entropy over what is not padding.
"""

import torch
import torch.nn.functional as F
from torch import nn

import training
from blocks import Attention, Dropout
from common import Workload

D, HEADS, FF, LAYERS, BATCH, VOCAB = 256, 8, 1024, 2, 16, 256
PAD, BEGIN, END, FIRST_WORD = 0, 2, 3, 4


class Layer(nn.Module):
    """Encoder layer, or decoder layer with attention to a memory."""

    def __init__(self, cross: bool, p: float):
        super().__init__()
        self.self_attention = Attention(D, HEADS, p)
        self.cross_attention = Attention(D, HEADS, p) if cross else None
        self.linear1, self.linear2 = nn.Linear(D, FF), nn.Linear(FF, D)
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3 if cross else 2))
        self.dropouts = nn.ModuleList(Dropout(p) for _ in range(4 if cross else 3))

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.norms[0](x + self.dropouts[0](self.self_attention(x, mask)))
        if memory is not None:
            x = self.norms[2](x + self.dropouts[3](self.cross_attention(x, memory_mask, memory)))
        hidden = self.dropouts[1](F.relu(self.linear1(x)))
        return self.norms[1](x + self.dropouts[2](self.linear2(hidden)))


def sinusoids(length: int):
    """PE[p, 2i] = sin(p / 10000^(2i/d)), PE[p, 2i+1] = cos(the same), [length, D]."""
    angle = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, D, 2) / D)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(length, D)


class Model(nn.Module):
    def __init__(self, sequence: int, p: float):
        super().__init__()
        self.source_embedding, self.target_embedding = nn.Embedding(VOCAB, D), nn.Embedding(VOCAB, D)
        self.encoder = nn.ModuleList(Layer(False, p) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(Layer(True, p) for _ in range(LAYERS))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        for layer in (*self.encoder, *self.decoder):
            for parameter in layer.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)
        self.head = nn.Linear(D, VOCAB)
        self.register_buffer("positions", sinusoids(sequence))
        self.register_buffer("columns", torch.arange(sequence))
        self.register_buffer("causal", torch.ones(sequence, sequence, dtype=torch.bool).tril())

    def forward(self, source, source_lengths, target_in, target_out, target_lengths):
        source_mask = (self.columns < source_lengths[:, None])[:, None, None, :]
        target_mask = (self.columns < target_lengths[:, None])[:, None, None, :] & self.causal
        memory = self.source_embedding(source) * D**0.5 + self.positions
        for layer in self.encoder:
            memory = layer(memory, source_mask)
        memory = self.encoder_norm(memory)
        x = self.target_embedding(target_in) * D**0.5 + self.positions
        for layer in self.decoder:
            x = layer(x, target_mask, memory, source_mask)
        logits = self.head(self.decoder_norm(x))
        return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD)


def made_up(sequence: int, count: int = 16) -> dict:
    """Uniformly random tokens and lengths."""
    columns = torch.arange(sequence)

    def rows():
        lengths = torch.randint(max(1, sequence // 2), sequence + 1, (count, BATCH))
        return torch.randint(FIRST_WORD, VOCAB, (count, BATCH, sequence)), lengths

    source, source_lengths = rows()
    words, target_lengths = rows()
    target_in = torch.cat([torch.full((count, BATCH, 1), BEGIN), words[..., :-1]], dim=2)
    target_out = words.masked_fill(columns == target_lengths[..., None] - 1, END)
    return {
        "source": source.masked_fill(columns >= source_lengths[..., None], PAD), "source_lengths": source_lengths,
        "target_in": target_in.masked_fill(columns >= target_lengths[..., None], PAD),
        "target_out": target_out.masked_fill(columns >= target_lengths[..., None], PAD),
        "target_lengths": target_lengths,
    }


def create(options) -> Workload:
    sequence = int(options.workload.removeprefix("r-"))
    Dropout.hashed = options.mode == "tuned"
    model = Model(sequence, options.dropout).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **training.optimizer_settings(options))

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        Dropout.next_step()

    names = ("source", "source_lengths", "target_in", "target_out", "target_lengths")
    return Workload(
        parameters=list(model.parameters()), gradients=training.gradients(model, options), update=update,
        batches=training.batches(options, names, lambda: made_up(sequence)), per_step=BATCH, unit="samples/s")

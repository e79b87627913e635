"""Adapters of rank 16 beside every linear layer of a frozen Llama of SmolLM-135M's sizes; 8 x 1024 tokens, AdamW 2e-4.

As PEFT trains them: the frozen weights are bf16, the adapters fp32. lora-135m-int4 is the same here: PyTorch has no
weights of 4 bits that it differentiates through.
"""

import torch
import torch.nn.functional as F
from torch import nn

import training
from common import Workload

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY = 30, 576, 9, 3, 1536, 49152
BATCH, LENGTH, RANK, SCALE = 8, 1024, 16, 2.0
HEAD = WIDTH // HEADS


class Adapted(nn.Module):
    """y = x W^T + scale * (x A^T) B^T."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(outputs, inputs, dtype=torch.bfloat16), requires_grad=False)
        self.a = nn.Parameter(torch.empty(RANK, inputs))
        self.b = nn.Parameter(torch.zeros(outputs, RANK))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) + SCALE * F.linear(F.linear(x, self.a), self.b)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH), requires_grad=False)

    def forward(self, x):
        return F.rms_norm(x.float(), (WIDTH,), self.weight, 1e-6).to(x.dtype)


def turned(x, cosine, sine):
    """Rotary positions."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.query, self.output = Adapted(WIDTH, WIDTH), Adapted(WIDTH, WIDTH)
        self.key, self.value = Adapted(WIDTH, KV_HEADS * HEAD), Adapted(WIDTH, KV_HEADS * HEAD)
        self.gate, self.up, self.down = Adapted(WIDTH, HIDDEN), Adapted(WIDTH, HIDDEN), Adapted(HIDDEN, WIDTH)

    def forward(self, x, cosine, sine):
        n = self.norm1(x)
        query, key, value = (layer(n).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        query, key = turned(query, cosine, sine), turned(key, cosine, sine)
        key, value = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (key, value))
        query, key = query.to(value.dtype), key.to(value.dtype)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Parameter(0.02 * torch.randn(VOCABULARY, WIDTH, dtype=torch.bfloat16), requires_grad=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        angles = torch.outer(torch.arange(LENGTH), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.tokens)
        if not torch.is_autocast_enabled(tokens.device.type):
            x = x.float()
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = F.linear(self.norm(x), self.tokens.to(x.dtype))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def create(options) -> Workload:
    if options.mode == "tuned":  # its gradients are those of all parameters
        raise SystemExit("peer: there are no gradients of some parameters alone in the mode tuned")
    batch = options.batch or BATCH

    def made_up(count: int = 4) -> dict:
        text = torch.randint(VOCABULARY, (count, batch, LENGTH + 1))
        return {"tokens": text[..., :-1], "targets": text[..., 1:]}

    model = Model().to(options.device)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=2e-4, betas=(0.9, 0.95), weight_decay=0.0, **training.optimizer_settings(options))

    return Workload(
        parameters=parameters, gradients=training.gradients(model, options),
        update=training.clipped_step(parameters, optimizer),
        batches=training.batches(options, ("tokens", "targets"), made_up), per_step=batch * LENGTH, unit="tokens/s")

"""Attention and dropout as the Transformer peers share them."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Dropout(nn.Module):
    """Dropout with PyTorch's generator, or (`Dropout.hashed`) with bits from a hash of seed and element.

    On a CPU PyTorch draws the bits one after the other on one thread, up to half of a training step. A hash is
    pointwise arithmetic: the compiler vectorizes it, gives it to all threads, fuses it with what is around it, and can
    compute it again in the backward pass instead of storing a mask.
    """

    hashed = False
    seed = torch.zeros((), dtype=torch.int32)
    sites = 0

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        Dropout.sites += 1
        self.site = Dropout.sites * 0x9E3779B1 % 2**31

    def forward(self, x):
        if not Dropout.hashed or self.p == 0:
            return F.dropout(x, self.p, self.training)
        return x * scaled_mask(x.shape, self.p, Dropout.seed + self.site).to(x.dtype)

    @classmethod
    def next_step(cls) -> None:
        """Other bits from here on."""
        cls.seed.add_(0x3C6EF35F)


def scaled_mask(shape, p: float, seed):
    """1 / (1 - p) where an element is kept, else 0: 24 bits of a 32-bit multiply, xor and shift hash."""
    h = torch.arange(math.prod(shape), dtype=torch.int32).view(shape) + seed
    h = (h ^ ((h >> 16) & 0xFFFF)) * 0x7FEB352D
    h = (h ^ ((h >> 15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    h = h ^ ((h >> 16) & 0xFFFF)
    return torch.where((h & 0xFFFFFF) >= round(p * 2**24), 1 / (1 - p), 0.0)


ATTENTION = "usual"  # or "steps", with the matrix of scores in memory, or "sdpa"


def attend(q, k, v, mask, dropout: Dropout, causal: bool = False):
    """softmax(q k' / sqrt(d)) v for [B, H, S, d]; mask: bool, true where a key is seen, or None.

    Without dropout PyTorch has a flash kernel for the CPU; with dropout it has not, and these are the steps it takes. On
    a GPU it has kernels for both.
    """
    if not dropout.training:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
    if ATTENTION == "sdpa" or (ATTENTION == "usual" and (dropout.p == 0 or q.is_cuda)):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout.p, is_causal=causal)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if causal and mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is None:
        return dropout(scores.softmax(-1)).to(v.dtype) @ v
    return dropout(scores.masked_fill(~mask, -math.inf).softmax(-1)).to(v.dtype) @ v


class Attention(nn.Module):
    """Multi-head attention: one product for queries, keys and values, or one for queries, one for a memory's two."""

    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.d, self.heads = d, heads
        self.in_proj, self.out_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.dropout = Dropout(dropout)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.d // self.heads)).transpose(1, 2)

    def forward(self, x, mask=None, memory=None, causal=False):
        if memory is None:
            q, k, v = self.in_proj(x).split(self.d, -1)
        else:
            weight, bias, d = self.in_proj.weight, self.in_proj.bias, self.d
            q = F.linear(x, weight[:d], bias[:d])
            k, v = F.linear(memory, weight[d:], bias[d:]).split(d, -1)
        mixed = attend(self.split(q), self.split(k), self.split(v), mask, self.dropout, causal)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))

"""A GPT from nothing, character by character: python gpt.py [TEXT_FILE] [STEPS]"""

import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab_size: int, max_length: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(max_length, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)  # the output layer shares the table


def endless(loader: DataLoader) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


@torch.inference_mode()
def generate(gpt: nn.Module, tokens: torch.Tensor, count: int, temperature: float) -> torch.Tensor:
    for _ in range(count):
        probabilities = F.softmax(gpt(tokens)[:, -1] / temperature, dim=-1)
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)], dim=1)
    return tokens


def main(text: str, steps: int, length: int = 64) -> tuple[float, str]:
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    ids = torch.tensor([number[letter] for letter in text])
    gpt = GPT(len(letters), max_length=4 * length)

    chunks = ids.unfold(0, length + 1, length)
    batches = endless(DataLoader(chunks, batch_size=16, shuffle=True, drop_last=True))
    matrices = [p for p in gpt.parameters() if p.dim() > 1]
    others = [p for p in gpt.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    warmup = max(steps // 20, 1)
    schedule = SequentialLR(
        optimizer,
        [LinearLR(optimizer, 1 / warmup, total_iters=warmup), CosineAnnealingLR(optimizer, steps - warmup, 1e-4)],
        milestones=[warmup],
    )
    for step in range(1, steps + 1):
        batch = next(batches)
        logits = gpt(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    gpt.eval()
    (written,) = generate(gpt, ids[None, :1], 100, temperature=0.8)
    sample = "".join(letters[i] for i in written[1:].tolist())
    print(sample)
    return loss.item(), sample


if __name__ == "__main__":
    data = open(sys.argv[1], encoding="utf-8").read() if len(sys.argv) > 1 else "the quick brown fox jumps. " * 400
    main(data, int(sys.argv[2]) if len(sys.argv) > 2 else 300)

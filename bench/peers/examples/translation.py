"""A translator of one's own pairs: python translation.py [STEPS]. It learns to spell numbers out."""

import math
import os
import sys
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

ONES = "zero one two three four five six seven eight nine".split()
PAD, UNKNOWN, BEGIN, END = range(4)
Pairs = list[tuple[str, str]]


def pairs(first: int, last: int) -> Pairs:
    return [(" ".join(str(n)), " ".join(ONES[int(digit)] for digit in str(n))) for n in range(first, last)]


class Vocabulary:
    def __init__(self, texts: list[str]) -> None:
        self.words = ["<pad>", "<unk>", "<s>", "</s>", *sorted({word for text in texts for word in text.split()})]
        self.number = {word: i for i, word in enumerate(self.words)}

    def encode(self, text: str) -> torch.Tensor:
        return torch.tensor([BEGIN, *(self.number.get(word, UNKNOWN) for word in text.split()), END])

    def decode(self, ids: list[int]) -> str:
        ids = ids[: ids.index(END)] if END in ids else ids
        return " ".join(self.words[i] for i in ids)


class Translator(nn.Module):
    def __init__(
        self, vocab_size: int, d_model: int, num_heads: int, num_layers: int, d_ff: int, max_seq_len: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.transformer = nn.Transformer(
            d_model, num_heads, num_layers, num_layers, d_ff, dropout=0.1, batch_first=True, norm_first=True
        )
        self.dropout = nn.Dropout(0.1)
        angles = torch.arange(max_seq_len)[:, None] * torch.exp(
            torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model)
        )
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1), persistent=False)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.positions[: tokens.shape[1]])

    def encode(self, source: torch.Tensor) -> torch.Tensor:
        return self.transformer.encoder(self.embed(source), src_key_padding_mask=source == PAD)

    def decode(self, target: torch.Tensor, memory: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
        states = self.transformer.decoder(
            self.embed(target), memory, tgt_mask=mask, memory_key_padding_mask=source == PAD, tgt_is_causal=True
        )
        return F.linear(states, self.embedding.weight, self.bias)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.decode(target, self.encode(source), source)

    @torch.inference_mode()
    def greedy(self, source: torch.Tensor, max_length: int = 30) -> list[list[int]]:
        memory = self.encode(source)
        target = torch.full((len(source), 1), BEGIN)
        ended = torch.zeros(len(source), dtype=torch.bool)
        while target.shape[1] < max_length and not ended.all():
            best = self.decode(target, memory, source)[:, -1].argmax(-1, keepdim=True)
            target = torch.cat([target, best], 1)
            ended |= best[:, 0] == END
        return target[:, 1:].tolist()


def loader(data: Pairs, vocabulary: Vocabulary, **options: object) -> DataLoader:
    encoded = [(vocabulary.encode(source), vocabulary.encode(target)) for source, target in data]

    def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        return [pad_sequence(column, batch_first=True, padding_value=PAD) for column in zip(*rows)]

    return DataLoader(encoded, batch_size=32, collate_fn=collate, **options)


def endless(batches: DataLoader) -> Iterator[list[torch.Tensor]]:
    while True:
        yield from batches


def loss_of(model: Translator, source: torch.Tensor, target: torch.Tensor, smoothing: float) -> torch.Tensor:
    logits = model(source, target[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=smoothing)


@torch.inference_mode()
def evaluate(model: Translator, vocabulary: Vocabulary, batches: DataLoader) -> tuple[float, float]:
    """The mean loss, and the share of targets that are translated exactly."""
    model.eval()
    losses, right = [], 0
    for source, target in batches:
        losses.append(loss_of(model, source, target, 0.0).item())
        for found, wanted in zip(model.greedy(source), target[:, 1:].tolist()):
            right += vocabulary.decode(found) == vocabulary.decode(wanted)
    model.train()
    return sum(losses) / len(losses), right / len(batches.dataset)


def main(run: str, steps: int) -> str:
    train, valid = pairs(100, 2000), pairs(2000, 2100)
    vocabulary = Vocabulary([text for pair in train for text in pair])
    settings = dict(vocab_size=len(vocabulary.words), d_model=64, num_heads=4, num_layers=2, d_ff=128, max_seq_len=32)
    model = Translator(**settings)
    batches, held_out = endless(loader(train, vocabulary, shuffle=True)), loader(valid, vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)
    warmup = max(steps // 4, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
    )
    os.makedirs(run, exist_ok=True)
    best, begin = math.inf, time.perf_counter()
    for step in range(1, steps + 1):
        loss = loss_of(model, *next(batches), 0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % (steps // 2) == 0:
            valid_loss, right = evaluate(model, vocabulary, held_out)
            print(f"step {step}: validation loss {valid_loss:.3f}, right {100 * right:.1f}%")
            if valid_loss < best:
                best = valid_loss
                torch.save({"settings": settings, "words": vocabulary, "model": model.state_dict()}, f"{run}/model.pt")
    print(f"{steps} steps in {time.perf_counter() - begin:.1f} s")

    saved = torch.load(f"{run}/model.pt", weights_only=False)
    model = Translator(**saved["settings"]).eval()
    model.load_state_dict(saved["model"])
    (ids,) = model.greedy(saved["words"].encode("1 2 3")[None])
    answer = saved["words"].decode(ids)
    print(answer)
    return answer


if __name__ == "__main__":
    main("runs/numbers", int(sys.argv[1]) if len(sys.argv) > 1 else 400)

"""A GPT from nothing, character by character: python gpt.py [TEXT_FILE] [STEPS]"""

import sys

import linnet as ln
import numpy as np


class Block(ln.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.norm1, self.norm2 = ln.LayerNorm(width), ln.LayerNorm(width)
        self.attention = ln.CausalAttention(width, heads)
        self.up, self.down = ln.Linear(width, 4 * width), ln.Linear(4 * width, width)

    def forward(self, x: ln.Tensor) -> ln.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(ln.gelu_tanh(self.up(self.norm2(x))))


class GPT(ln.Decoder):
    def __init__(self, vocab_size: int, max_length: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        self.vocab_size, self.max_length = vocab_size, max_length
        self.tokens = ln.Embedding(vocab_size, width, init=ln.init.normal(0.02))
        self.positions = ln.Embedding(max_length, width, init=ln.init.normal(0.02))
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm = ln.LayerNorm(width)

    def states(self, tokens: ln.Tensor, positions: ln.Tensor) -> ln.Tensor:
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def head(self) -> ln.LayerParameter:
        return self.tokens.weight  # the output layer shares the table


def main(text: str, steps: int, length: int = 64) -> tuple[float, str]:
    letters = sorted(set(text))
    ids = np.array([letters.index(letter) for letter in text], dtype=np.int32)
    gpt = GPT(len(letters), max_length=4 * length)

    def loss(tokens: ln.Tensor, targets: ln.Tensor) -> ln.Loss:
        return ln.decoder_loss(gpt, tokens, targets)

    batches = ln.Loader(ln.Dataset.chunks(ids, length), batch=16, shuffle=True, drop_last=True)
    learner = ln.Learner(gpt, loss, batches, optimizer=ln.AdamW(weight_decay=0.1), clip_norm=1.0)
    rate = ln.Schedule("cosine", peak=1e-3, final=1e-4, warmup_steps=steps // 20, max_steps=steps)
    for step in range(1, steps + 1):
        result = learner.step(batches.next(), rate=rate(step))
        if step % 50 == 0:
            print(f"step {step}: loss {result.loss:.3f}")

    writer = ln.TextGenerator(gpt).take(learner)
    (written,) = writer.generate([[int(ids[0])]], max_tokens=100, temperature=0.8)
    sample = "".join(letters[i] for i in written)
    print(sample)
    return result.loss, sample


if __name__ == "__main__":
    data = open(sys.argv[1], encoding="utf-8").read() if len(sys.argv) > 1 else "the quick brown fox jumps. " * 400
    main(data, int(sys.argv[2]) if len(sys.argv) > 2 else 300)

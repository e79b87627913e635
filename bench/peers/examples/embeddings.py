"""Searching texts by their meaning: python embeddings.py FOLDER [QUERY], a sentence encoder such as
all-MiniLM-L6-v2."""

import sys

import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

TEXTS = [
    "A dog runs across the field.",
    "The bank raised its interest rates.",
    "Two cats sleep on a sofa.",
    "The court rejected the appeal.",
    "Children play football in the park.",
]


def main(folder: str, query: str) -> list[tuple[float, str]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def embed(texts: list[str]) -> torch.Tensor:
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    likeness = embed(TEXTS) @ embed([query])[0]
    found = sorted(zip(likeness.tolist(), TEXTS), reverse=True)
    for value, text in found:
        print(f"{value:.3f}  {text}")
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "a puppy outside")

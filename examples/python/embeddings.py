"""Searching texts by their meaning: python embeddings.py FOLDER [QUERY], a sentence encoder such as
all-MiniLM-L6-v2."""

import sys

import linnet as ln
import numpy as np

TEXTS = [
    "A dog runs across the field.",
    "The bank raised its interest rates.",
    "Two cats sleep on a sofa.",
    "The court rejected the appeal.",
    "Children play football in the park.",
]


def main(folder: str, query: str) -> list[tuple[float, str]]:
    with ln.load(folder) as model:
        rows = model.embed(TEXTS)
        wanted = model.embed(query)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    likeness = rows @ (wanted / np.linalg.norm(wanted))
    found = sorted(zip(likeness.tolist(), TEXTS), reverse=True)
    for value, text in found:
        print(f"{value:.3f}  {text}")
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "a puppy outside")

"""Writes files of MNIST's format whose classes are easy to tell apart: a bright square at a place of its own, in noise.

    python3 make_mnist.py FOLDER
"""

import gzip
import os
import random
import struct
import sys


def image(draw, label):
    pixels = bytearray(draw.randrange(60) for _ in range(28 * 28))
    row, column = 2 + label // 5 * 12 + draw.randrange(3), 1 + label % 5 * 5 + draw.randrange(2)
    for i in range(6):
        for j in range(4):
            pixels[(row + i) * 28 + column + j] = 200 + draw.randrange(50)
    return bytes(pixels)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    draw = random.Random(1)
    for name, count in ("train", 1000), ("t10k", 200):
        labels = bytes(draw.randrange(10) for _ in range(count))
        with gzip.open(os.path.join(folder, f"{name}-images-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, 28, 28) + b"".join(image(draw, label) for label in labels))
        with gzip.open(os.path.join(folder, f"{name}-labels-idx1-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + labels)


if __name__ == "__main__":
    main(*sys.argv[1:])

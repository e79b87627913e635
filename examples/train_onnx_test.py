#!/usr/bin/env python3
"""Trains an exported classifier by examples/train_onnx.cpp on one batch: train_onnx_test.py LINNET TRAIN_ONNX MODEL OUT"""

import json
import os
import struct
import subprocess
import sys


def save(path, tensors):
    """Writes int64 tensors as safetensors: {name: (shape, values)}."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}q", *values)
        header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main(linnet, train, model, out):
    os.makedirs(out, exist_ok=True)
    subprocess.run([linnet, "export", model, "--onnx", out, "--overwrite"], check=True)
    rows, length = 4, 5
    ids = [1 + (7 * i) % 11 for i in range(rows * length)]
    batch = {name: ([rows, length], values) for name, values in
             (("input_ids", ids), ("attention_mask", [1] * len(ids)), ("token_type_ids", [0] * len(ids)))}
    batch["labels"] = ([rows], [0, 1, 0, 1])
    save(os.path.join(out, "batch.safetensors"), batch)
    lines = subprocess.run([train, os.path.join(out, "model.onnx"), os.path.join(out, "batch.safetensors"), "logits",
                            "20", "1e-3"], check=True, capture_output=True, text=True).stdout.split()
    first, last = float(lines[0]), float(lines[-1])
    print("the loss fell" if len(lines) == 20 and last < 0.5 * first else f"losses: {lines}")


main(*sys.argv[1:])

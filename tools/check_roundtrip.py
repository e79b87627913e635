#!/usr/bin/env python3
"""Loads model folders, and what `linnet convert` makes of them, in transformers and compares them bit for bit.

    tools/check_roundtrip.py build/release/bin/linnet FOLDER...    needs torch, transformers and safetensors

For each folder: every parameter and buffer of the model transformers makes of it, its configuration and its other files;
the same after conversion to shards, and the same rounding as transformers' own to F16 and BF16.
"""

import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers

DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16}


def load(folder, dtype=None):
    with open(os.path.join(folder, "config.json")) as file:
        architecture = json.load(file)["architectures"][0]
    model, report = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True, **({"dtype": dtype} if dtype else {"dtype": "auto"}))
    assert not report["missing_keys"] and not report["mismatched_keys"], report
    return model, report


def bits(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def compare(before, after, dtype=None):
    ours, theirs = after.state_dict(), before.state_dict()
    assert list(ours) == list(theirs)
    for name in theirs:
        if dtype:  # transformers keeps some of T5 in float32, whatever the file holds
            theirs[name] = theirs[name].to(dtype).to(theirs[name].dtype)
        assert ours[name].dtype == theirs[name].dtype and torch.equal(bits(ours[name]), bits(theirs[name])), name
    return len(ours)


def companions(folder):
    kept = (".json", ".txt", ".model", ".spm")
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))
            if name.endswith(kept) and name != "config.json" and not name.endswith(".index.json")}


def check(linnet, folder):
    before, report = load(folder)
    with tempfile.TemporaryDirectory() as out:
        run = lambda *options: subprocess.run([linnet, "convert", folder, out, *options], check=True,
                                              stderr=subprocess.DEVNULL)
        run()
        after, report_after = load(out)
        assert not report_after["unexpected_keys"]
        count = compare(before, after)
        assert before.config.to_dict() | {"_name_or_path": out} == after.config.to_dict() | {"_name_or_path": out}
        for name, data in companions(folder).items():
            with open(os.path.join(out, name), "rb") as file:
                assert file.read() == data, name
        size = os.path.getsize(os.path.join(out, "model.safetensors"))
        run("--shard-gb", f"{size / 3 / 1e9:.9f}")
        assert not os.path.exists(os.path.join(out, "model.safetensors"))
        compare(before, load(out)[0])
        for name, dtype in DTYPES.items():
            run("--dtype", name)
            compare(load(folder, dtype)[0], load(out)[0], dtype)
    print(f"{folder}: {count} tensors the same, also in shards, F16 and BF16")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for folder in sys.argv[2:]:
        check(sys.argv[1], folder)

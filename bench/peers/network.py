"""A network of timm, or an LSTM, in ONNX Runtime (a run) and PyTorch (a run, a training step), with random weights.

    network.py make NAME FOLDER --batch 8        FOLDER/run.onnx, train.onnx, run.safetensors, train.safetensors
    network.py MODE NAME FOLDER --batch 8 [--seconds 1] [--threads 2]      one line of JSON

MODE: ort (the file in ONNX Runtime), train-eager, train-compile (a step of SGD; images channels last). Batch normalization
has random statistics. "lstm" is one of 2 layers of 256 over 100 steps, with a linear layer behind its last step.
"""

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import statistics
import time
import warnings
from pathlib import Path

import common

MODES = ("ort", "train-eager", "train-compile")
RATE = 0.001
FEWEST = 5  # runs


def created(name: str):
    """-> the network, the shape of an input without its batch"""
    import torch

    torch.manual_seed(1)
    if name == "lstm":
        class Recurrent(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.LSTM(256, 256, 2, batch_first=True)
                self.head = torch.nn.Linear(256, 10)

            def forward(self, x):
                return self.head(self.body(x)[0][:, -1])

        return Recurrent(), (100, 256)
    import timm

    model = timm.create_model(name, pretrained=False)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model, model.default_cfg.get("input_size", (3, 224, 224))


@contextlib.contextmanager
def silent():
    """The exporters write pages to the standard output, some of them past Python."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    kept = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(null)


def make(name: str, folder: Path, batch: int) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    model, shape = created(name)
    x = torch.randn(batch, *shape)
    labels = torch.arange(batch, dtype=torch.int32) % 10
    save_file({"input": x}, folder / "run.safetensors")
    save_file({"input": x, "labels": labels}, folder / "train.safetensors")
    names = {"input_names": ["input"], "output_names": ["output"], "opset_version": 17, "dynamo": False}
    with silent():
        torch.onnx.export(model.eval(), (x,), str(folder / "run.onnx"), **names)
        torch.onnx.export(model.train(), (x,), str(folder / "train.onnx"), do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, **names)


def milliseconds(run, seconds: float) -> dict:
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < FEWEST:
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1e3)
    return {"ms": statistics.median(times), "runs": len(times)}


def ort(folder: Path, options) -> dict:
    import onnxruntime
    from safetensors.numpy import load_file

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = options.threads, 3
    session = onnxruntime.InferenceSession(str(folder / "run.onnx"), settings, providers=["CPUExecutionProvider"])
    feed = load_file(folder / "run.safetensors")
    found = milliseconds(lambda: session.run(None, feed), options.seconds)
    return found | {"version": f"ONNX Runtime {importlib.metadata.version('onnxruntime')}"}


def train(name: str, folder: Path, options) -> dict:
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    held = common.memory_mb("VmRSS")
    common.reset_peak()
    common.keep_freed_memory()
    model, shape = created(name)
    data = load_file(folder / "train.safetensors")
    x, labels = data["input"], data["labels"].long()
    if len(shape) == 3:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)
    forward = torch.compile(model, dynamic=False) if options.mode == "train-compile" else model
    losses = []

    def step():
        loss = torch.nn.functional.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())

    found = milliseconds(step, options.seconds)
    return found | {"version": torch.__version__, "memory_mb": common.memory_mb("VmHWM") - held, "losses": losses[:3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("make", *MODES))
    parser.add_argument("network")
    parser.add_argument("folder", type=Path)
    for name, default in (("batch", 1), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    if options.mode == "make":
        return make(options.network, options.folder, options.batch)
    run = ort(options.folder, options) if options.mode == "ort" else train(options.network, options.folder, options)
    print(json.dumps({"peer": True, "mode": options.mode, "batch": options.batch} | run))


if __name__ == "__main__":
    main()

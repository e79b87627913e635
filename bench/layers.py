#!/usr/bin/env python3
"""Forward and backward times of each layer of GPT-2, Linnet's beside PyTorch's.

    bench/layers.py [--workload gpt2-124m] [--threads N] [--steps 3] [--linnet build/release/bin/linnet]

PyTorch's times come from hooks around modules: a module's forward runs between its two forward hooks, its backward
between the gradient of its result and that of its operand. `linnet profile --each --json` gives the other side; modules are
put into the classes below by their names. Needs torch.
"""

import argparse
import collections
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import gpt  # noqa: E402

# Class of a layer: the end of its module's name in Linnet, and in the peer's model.
CLASSES = {
    "attention in": ((".self_attn.in_proj",), (".attention.in_proj",)),
    "attention": ((".self_attn",), (".attention",)),  # all but the projections
    "attention out": ((".self_attn.out_proj",), (".attention.out_proj",)),
    "feed-forward 1": ((".linear1",), (".linear1",)),
    "feed-forward 2": ((".linear2",), (".linear2",)),
    "norms": ((".norm1", ".norm2", "norm"), (".norm1", ".norm2", "norm")),
}


def class_of(module, side):
    for name, ends in CLASSES.items():
        if module.endswith(ends[side]):
            return name
    return "other"


def of_linnet(options):
    command = [options.linnet, "profile", options.workload, "--profiled", str(options.steps), "--threads", str(options.threads),
               "--json"]
    summary = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    times = collections.defaultdict(lambda: [0.0, 0.0])
    for row in summary["rows"]:
        if row["phase"] in ("forward", "backward"):
            times[class_of(row["module"], 0)][row["phase"] == "backward"] += row["ms"]
    return times, summary["step_ms"]


class Stopwatch:
    """Times a module's forward pass and its backward pass."""

    def __init__(self, name, module, times):
        self.name, self.times = class_of(name, 1), times
        module.register_forward_pre_hook(lambda *_: self.start())
        module.register_forward_hook(lambda *_: self.stop(0))
        module.register_full_backward_pre_hook(lambda *_: self.start())
        module.register_full_backward_hook(lambda *_: self.stop(1))

    def start(self):
        self.began = time.perf_counter()

    def stop(self, direction):
        self.times[self.name][direction] += time.perf_counter() - self.began


def of_pytorch(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    shape = gpt.SHAPES[options.workload]
    model = gpt.Model(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = gpt.made_up(shape, 1)
    tokens, targets = data["tokens"][0], data["targets"][0]
    times = collections.defaultdict(lambda: [0.0, 0.0])
    for name, module in model.named_modules():
        if class_of(name, 1) != "other":
            Stopwatch(name, module, times)
    for step in range(options.steps + 1):
        if step == 1:  # the first one allocates
            times.clear()
            began = time.perf_counter()
        loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    step_ms = 1e3 * (time.perf_counter() - began) / options.steps
    found = {name: [1e3 * seconds / options.steps for seconds in pair] for name, pair in times.items()}
    for direction in (0, 1):  # a hook on attention is around its projections, too
        found["attention"][direction] -= found["attention in"][direction] + found["attention out"][direction]
    return found, step_ms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="gpt2-124m", choices=sorted(gpt.SHAPES))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--linnet", default="build/release/bin/linnet")
    options = parser.parse_args()
    (ours, our_step), (theirs, their_step) = of_linnet(options), of_pytorch(options)
    print(f"{options.workload}, {options.threads} threads, ms a step:      Linnet                    PyTorch")
    print("                         forward backward    b/f    forward backward    b/f")
    for name in CLASSES:
        line = f"{name:22}"
        for forward, backward in (ours.get(name, [0, 0]), theirs.get(name, [0, 0])):
            line += f"  {forward:8.1f} {backward:8.1f} {backward / forward if forward else 0:6.1f}"
        print(line)
    print(f"{'the whole step':22}  {our_step:8.1f} {'':15}  {their_step:8.1f}")


main()

"""Ctrl-C at random moments of fit() and train(): each time a KeyboardInterrupt, nothing is lost, and training goes on
with the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import linnet as ln

ROUNDS = 20

FIT = """
import linnet as ln, numpy as np

class Net(ln.Module):
    def __init__(self):
        self.fc = ln.Linear(3, 64)

net = Net()
x = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)

def learner():
    return ln.Learner(net, lambda x: ln.square(net.fc(x) - 1.0).mean(), {"x": x[:4]})

trained, loader = learner(), ln.Loader({"x": x}, batch=4, shuffle=True)
for turn in range(ROUNDS):
    try:
        print("begin", flush=True)
        trained.fit(loader, epochs=10**7, rate=1e-4)
    except KeyboardInterrupt:
        trained.save_state("state", loader)
        steps, trained = trained.steps, learner()
        loader = ln.Loader({"x": x}, batch=4, shuffle=True)
        trained.load_state("state", loader)
        assert trained.steps == steps
        print("end", flush=True)
alone, loader = learner(), ln.Loader({"x": x}, batch=4, shuffle=True)
if steps:
    alone.fit(loader, epochs=10**7, max_steps=steps, rate=1e-4)
assert (alone.state_dict()["fc.weight"] == trained.state_dict()["fc.weight"]).all()
"""

SETTINGS = dict(d_model=16, num_heads=2, num_layers=1, d_ff=32, max_seq_len=16, tokenizer="word", batch_size=16,
                metric="loss", eval_every=25, save_every=10, log_every=1)  # fmt: skip

TRAIN = """
import os, linnet as ln

heard = []
for turn in range(ROUNDS):
    try:
        print("begin", flush=True)
        ln.train("translate", "pairs.tsv", "run", valid="pairs.tsv", steps=10**6, resume=os.path.exists(SAVED),
                 callbacks=[heard.append], **SETTINGS)
    except KeyboardInterrupt:
        assert not heard or os.path.exists(SAVED)
        print("end", flush=True)
"""
SAVED = "run/training_state.safetensors"


def interrupt(program: str) -> None:
    """Runs a program that says "begin" before each round and "end" when Ctrl-C has ended it."""
    rng = random.Random(7)
    names = f"ROUNDS, SAVED, SETTINGS = {ROUNDS}, {SAVED!r}, {SETTINGS!r}\n"
    # A process in the background ignores the signal.
    given = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    child = subprocess.Popen([sys.executable, "-c", given + names + program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        for _ in range(ROUNDS):
            assert child.stdout.readline() == "begin\n"
            time.sleep(rng.uniform(0, 0.3))
            os.kill(child.pid, signal.SIGINT)
            assert child.stdout.readline() == "end\n"
    assert child.returncode == 0


def test_fit() -> None:
    interrupt(FIT)


def losses(run: str) -> dict[int, float]:
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {line["step"]: line["loss"] for line in lines if line["split"] == "train"}


def test_train() -> None:
    with open("pairs.tsv", "w", encoding="utf-8") as file:
        file.writelines(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    interrupt(TRAIN)
    found = losses("run")
    steps = max(found)
    assert sorted(found) == list(range(1, steps + 1))
    # The configuration is the same: a run of another number of steps would have other learning rates.
    ln.train("translate", "pairs.tsv", "whole", valid="pairs.tsv", steps=10**6,
             callbacks=[lambda event: event.step < steps], **SETTINGS)  # fmt: skip
    assert losses("whole") == found

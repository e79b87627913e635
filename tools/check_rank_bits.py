#!/usr/bin/env python3
"""The same training on 1, 2 and 4 ranks, with ZeRO 0, 1 and 2, and stopped and resumed with fewer ranks: the same bits.

    tools/check_rank_bits.py build/release/bin/linnet [WORKLOAD]... [--steps 12] [--multi30k FOLDER] [--text FILE]
                             [--mnist FOLDER]

WORKLOAD: translation (the preset multi30k, shortened), reference (random pairs), gpt (6 layers), cnn; those whose data
is not given are left out. Each trains with data_shards = 4. Losses, gradient norms and the checksum of the weights must
be those of one process. The last run of each begins with 4 ranks and ZeRO 2, gets SIGTERM, goes on with 2 ranks and
ZeRO 1, gets SIGTERM, and ends with one rank. Needs mpirun.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYOUTS = [(2, 0), (4, 0), (2, 1), (4, 1), (2, 2), (4, 2)]  # ranks, ZeRO's stage


def workloads(options) -> dict[str, list[str] | None]:
    """Name -> what `linnet train` gets; None where its data is not given."""
    gpt = {"architecture": "gpt", "d_model": 384, "num_heads": 6, "num_layers": 6, "d_ff": 1536, "max_seq_len": 128,
           "tokenizer": "char", "vocab_size": 300, "batch_size": 8, "precision": "fp32"}
    return {
        "translation": options.multi30k and ["multi30k", *settings(data_dir=options.multi30k, batch_tokens=512)],
        "reference": ["reference", *settings(max_seq_len=64)],
        "gpt": options.text and ["text", "--data", options.text, *settings(**gpt)],
        "cnn": options.mnist and ["mnist", *settings(data_dir=options.mnist)],
    }


def settings(**values) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


class Training:
    def __init__(self, options, words: list[str], folder: Path):
        self.options, self.folder = options, folder
        steps = options.steps
        self.words = [*words, *settings(data_shards=4, max_steps=steps, warmup_steps=2, threads=1, eval_every=steps,
                                        save_every=steps, metric="loss")]

    def start(self, run: Path, ranks: int, zero: int, *more: str) -> subprocess.Popen:
        several = ["--ranks", str(ranks)] if ranks > 1 else []
        command = [self.options.linnet, "train", *self.words, *settings(zero=zero), "--run", str(run), *several, *more]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, env=os.environ | {"LINNET_LOG": "error"})

    def whole(self, ranks: int, zero: int) -> dict:
        run = self.folder / f"{ranks}-{zero}"
        ended(self.start(run, ranks, zero), {0})
        return result_of(run)

    def in_parts(self) -> dict:
        run, third = self.folder / "parts", self.options.steps // 3
        for number, (ranks, zero) in enumerate([(4, 2), (2, 1)]):
            process = self.start(run, ranks, zero, *(["--resume"] if number else []))
            while process.poll() is None and len(result_of(run)["steps"]) < (number + 1) * third:
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            ended(process, {0, 143, -signal.SIGTERM})  # the last: before the program listens
        ended(self.start(run, 1, 0, "--resume"), {0})
        return result_of(run)


def ended(process: subprocess.Popen, wanted: set[int]) -> None:
    said = process.communicate()[1].strip()
    if process.returncode not in wanted:
        sys.exit(f"{' '.join(map(str, process.args))} ended with {process.returncode}: {said}")


def result_of(run: Path) -> dict:
    """Losses and gradient norms by step, and the checksum of the weights."""
    steps, weights = {}, run / "model.safetensors"
    if (run / "metrics.jsonl").exists():
        for line in (run / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record.get("split", "train") == "train" and "loss" in record:
                steps[record["step"]] = (record["loss"], record.get("grad_norm"))
    return {"steps": steps, "weights": hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("workloads", metavar="WORKLOAD", nargs="*")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--multi30k", metavar="FOLDER")
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--mnist", metavar="FOLDER")
    options = parser.parse_args()
    all_of_them = workloads(options)
    unknown = set(options.workloads) - set(all_of_them)
    if unknown:
        parser.error(f"there is no workload '{min(unknown)}'; there are {', '.join(all_of_them)}")
    if not shutil.which("mpirun"):
        sys.exit("mpirun is missing (Debian: openmpi-bin)")
    folder = Path(tempfile.mkdtemp(prefix="linnet-rank-bits-"))
    different = 0
    for name in options.workloads or all_of_them:
        words = all_of_them[name]
        if not words:
            print(f"{name}: left out, its data is not given")
            continue
        training = Training(options, words, folder / name)
        alone = training.whole(1, 0)
        runs = {f"{ranks} ranks, ZeRO {zero}": training.whole(ranks, zero) for ranks, zero in LAYOUTS}
        runs["4 ranks, then 2, then 1"] = training.in_parts()
        wrong = [what for what, result in runs.items() if result != alone]
        different += bool(wrong)
        verdict = "NOT the bits of one process: " + "; ".join(wrong) if wrong else f"the same bits in {len(runs) + 1} runs"
        print(f"{name}: {len(alone['steps'])} steps, weights {alone['weights'][:16]}: {verdict}", flush=True)
    if not different:
        shutil.rmtree(folder)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Sets training that is driven from Python beside the program: the same steps in turns, and the same bits of loss.

    bench/python_speed.py [WORKLOAD...] [--rounds 5] [--steps 60]

Two workloads, each in two ways. By task: `linnet train` beside linnet.train(); the losses of all steps have to be the
same. By hand: `linnet bench`, whose loop is that of the C++ library, beside Learner.step() on a network that is written
in Python (bench/python_networks.py); its parameters have other names and so other first values. A busy machine changes
processor time less than steps a second. Results: bench/results/python_speed.md and .json. Exit code 1 when a loss
differs.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import study
from study import show

NETWORKS = Path(__file__).resolve().with_name("python_networks.py")
# Losses of every step are written; nothing else is, and nothing is evaluated.
RUN = {"log_every": 1, "eval_every": 10**9, "save_every": 10**9, "schedule": "constant", "warmup_steps": 0}
TASKS = {
    "r-64": ("reference", {"max_seq_len": 64}),
    "gpt-6l": ("mini-gpt", {"d_model": 384, "d_ff": 1536, "num_heads": 6, "num_layers": 6, "max_seq_len": 256,
                            "dropout": 0, "tokenizer": "char", "batch_size": 8, "precision": "fp32",
                            "sample_length": 0}),
}  # fmt: skip


def processor_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Sides:
    def __init__(self, options, folder: Path):
        self.options, self.folder = options, folder
        self.pinned = study.compare.cores(options.threads)
        self.environment = study.common.plain_environment() | {"PYTHONPATH": options.package}
        self.text = folder / "text.txt"
        documents = sorted((study.ROOT / "docs").glob("*.md"))
        letters = "\n".join(document.read_text() for document in documents)
        self.text.write_text("".join(letter for letter in letters if letter.isascii()))

    def run(self, command: list) -> tuple[str, float]:
        """What a command prints, and its processor seconds."""
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment, preexec_fn=lambda: os.sched_setaffinity(0, self.pinned))
        used = processor_seconds()
        with process:
            out, errors = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{errors.strip()}")
        return out, processor_seconds() - used

    def task(self, name: str, by_python: bool) -> dict:
        """A run by task -> steps a second behind the first ten steps, and all losses."""
        preset, settings = TASKS[name]
        settings = {**RUN, **settings, "max_steps": self.options.steps}
        if preset == "mini-gpt":
            settings["data.text"] = self.text
        run = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        if by_python:
            call = [self.options.python, NETWORKS, "task", preset, run, self.options.threads]
            call += [json.dumps(settings, default=str)]
        else:
            call = [self.options.linnet, "train", preset, "--run", run, "--threads", self.options.threads]
            call += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        _, used = self.run(call)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if line["split"] == "train"]
        begin = min(10, len(lines) // 2)
        seconds = lines[-1]["seconds"] - lines[begin - 1]["seconds"]
        return {"steps_per_second": (len(lines) - begin) / seconds, "processor_ms": 1000 * used / len(lines),
                "losses": [line["loss"] for line in lines]}

    def hand(self, name: str) -> tuple[dict, dict]:
        """`linnet bench`, then as many steps on the same batches from Python."""
        batches = self.folder / f"{name}.safetensors"
        if not batches.exists():
            self.run([self.options.linnet, "bench", name, "--write-data", batches])
        out, _ = self.run([self.options.linnet, "bench", name, "--json", "--no-parts", "--threads",
                           self.options.threads, "--seconds", self.options.seconds])
        found = json.loads(out.splitlines()[-1])
        each = {"r-64": 16, "gpt-6l": 8 * 256}[name]
        ours = {"steps_per_second": found["median"] / each, "processor_ms": found["processor_ms"]}
        out, _ = self.run([self.options.python, NETWORKS, "hand", name, batches, self.options.threads, found["steps"]])
        return ours, json.loads(out.splitlines()[-1])


def main() -> int:
    parser = study.parser("python-speed", __doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="r-64, gpt-6l (default: both)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="of a run by task")
    parser.add_argument("--seconds", type=float, default=10, help="of a round by hand, on each side")
    parser.add_argument("--package", default=str(study.ROOT / "build/release/python"), help="folder of the package")
    parser.set_defaults(python=str(study.ROOT / "build/python/bin/python"), linnet_only=True)
    options = parser.parse_args()
    runs = study.Study("python_speed", options)
    rows, differs = [], False
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(options, Path(folder))
        for name in options.workloads or TASKS:
            turns = {"task": [], "hand": []}
            for turn in range(options.rounds):
                turns["task"].append((sides.task(name, False), sides.task(name, True)))
                turns["hand"].append(sides.hand(name))
                print(f"{name}, round {turn + 1} of {options.rounds}: done", flush=True)
            for way, pairs in turns.items():
                same = [program["losses"] == python["losses"] for program, python in pairs if "losses" in program]
                differs |= not all(same)
                bits = ("yes" if all(same) else "no") if same else "-"
                rows.append({"workload": name, "way": way, "same_bits": bits} | {
                    key: [statistics.median(pair[side][key] for pair in pairs) for side in (0, 1)]
                    for key in pairs[0][0] if key != "losses"
                } | {"ratios": sorted(b["steps_per_second"] / a["steps_per_second"] for a, b in pairs)})
    text = study.table(
        ["workload", "way", "program, steps/s", "Python, steps/s", "ratio (lowest to highest round)",
         "processor ms a step", "same bits"],
        [[row["workload"], row["way"], *(show(value, 2) for value in row["steps_per_second"]),
          f"{statistics.median(row['ratios']):.3f} ({row['ratios'][0]:.3f} to {row['ratios'][-1]:.3f})",
          " / ".join(show(value, 1) for value in row["processor_ms"]), row["same_bits"]]
         for row in rows])
    runs.write("Training driven from Python beside the program", text, {"rows": rows})
    print(text)
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())

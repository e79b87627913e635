#!/usr/bin/env python3
"""Training divided between ranks in every way: the memory of each process is what its plan said before the first step.

    tools/check_rank_memory.py build/release/bin/linnet --text FILE --vocabulary FILE --source FILE --target FILE
                               [FAMILY]... [--layout LAYOUT]... [--steps 6] [--within 3]

FAMILY: gpt, llama, bert, t5, transformer; without one, all. `--text` is plain text, `--vocabulary` a BERT's vocab.txt,
`--source` and `--target` are sentences and their translations. LAYOUT: as `linnet train --parallel` takes it. What is
planned for a process is the peak that the run's first lines tell, of its stage if there is a pipeline; what is measured
is the most that the process had resident until it ended (VmHWM), last evaluation and checkpoint included. A process
that differs by more than `--within` percent fails. Needs Linux and mpirun.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYOUTS = ["tensor=2", "pipeline=2", "tensor=4", "pipeline=4", "tensor=2,pipeline=2", "data=2,pipeline=2",
           "data=2,tensor=2", "pipeline=2,interleave=2"]
FAMILIES = {"gpt": "text", "llama": "text", "bert": "bert-base", "t5": "t5-small", "transformer": "translate"}
SHAPE = {"d_model": 512, "num_heads": 8, "num_layers": 6, "d_ff": 2048, "vocab_size": 2000, "max_seq_len": 128,
         "batch_size": 8, "batch_tokens": 0, "accumulate_steps": 4, "metric": "loss", "precision": "fp32"}


def settings(**values) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def workload(family: str, options) -> list[str]:
    """What `linnet train` gets for a model of this family."""
    if family in ("gpt", "llama"):
        more = {"tokenizer": "byte_bpe", "sample_length": 0, "architecture": family}
        data = ["--data", options.text]
    elif family == "bert":
        data, more = ["--data", options.text], {"tokenizer_dir": options.vocabulary}
    else:
        data, more = ["--source", options.source, "--target", options.target], {}
    return [FAMILIES[family], *data, *settings(**(SHAPE | more))]


def sizes(layout: str) -> dict[str, int]:
    given = dict(part.split("=") for part in layout.split(","))
    return {name: int(given.get(name, 1)) for name in ("data", "tensor", "pipeline")}


def ranks_below(process: int) -> dict[int, int]:
    """Rank -> process, of those that mpirun has started and that compute."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3]) != process:  # its session
                continue
            variables = dict(line.split("=", 1) for line in (entry / "environ").read_text().split("\0") if "=" in line)
            if "OMPI_COMM_WORLD_RANK" in variables:
                found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(entry.name)
        except (OSError, ValueError, IndexError):
            continue
    return found


def high_water_mark(process: int) -> int | None:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def planned(said: str) -> list[float]:
    """The peak of each stage, or of the one there is, in megabytes."""
    return [float(value) for value in re.findall(r"^\s*peak\s+([\d.]+) MB", said, re.MULTILINE)]


def measure(options, words: list[str], layout: str, run: Path) -> tuple[list[float], dict[int, float]]:
    count = sizes(layout)["data"] * sizes(layout)["tensor"] * sizes(layout)["pipeline"]
    command = [options.linnet, "train", *words, *settings(max_steps=options.steps, warmup_steps=2, threads=1,
               eval_every=options.steps, save_every=options.steps), "--run", run, "--ranks", count, "--parallel", layout]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        marks, processes = {}, {}
        while process.poll() is None:
            if len(processes) < count:
                processes = ranks_below(process.pid)
            for rank, one in processes.items():
                marks[rank] = max(high_water_mark(one) or 0, marks.get(rank, 0))
            time.sleep(0.02)
        log.seek(0)
        said = log.read()
    if process.returncode:
        raise RuntimeError(said.strip().splitlines()[-1] if said.strip() else f"ended with {process.returncode}")
    return planned(said), {rank: mark / 1e6 for rank, mark in marks.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("families", metavar="FAMILY", nargs="*", choices=[[], *FAMILIES])
    for name in ("text", "vocabulary", "source", "target"):
        parser.add_argument(f"--{name}", required=True, type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--layout", action="append", dest="layouts")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--within", type=float, default=3, help="percent")
    options = parser.parse_args()
    if not shutil.which("mpirun"):
        sys.exit("mpirun is missing (Debian: openmpi-bin)")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="linnet-rank-memory-") as folder:
        for family in options.families or FAMILIES:
            for layout in options.layouts or LAYOUTS:
                try:
                    plans, marks = measure(options, workload(family, options), layout, Path(folder) / "run")
                except RuntimeError as error:
                    print(f"{family}, {layout}: FAILED: {error}", flush=True)
                    bad += 1
                    continue
                finally:
                    shutil.rmtree(Path(folder) / "run", ignore_errors=True)
                size = sizes(layout)
                stage_of = {rank: rank % (size["tensor"] * size["pipeline"]) // size["tensor"] for rank in marks}
                off = {rank: 100 * (mark / plans[stage_of[rank]] - 1) for rank, mark in sorted(marks.items())}
                missing = len(marks) < size["data"] * size["tensor"] * size["pipeline"]
                wrong = missing or max(map(abs, off.values())) > options.within
                bad += wrong
                figures = ", ".join(f"{marks[rank]:.1f} of {plans[stage_of[rank]]:.1f} ({off[rank]:+.1f}%)" for rank in off)
                print(f"{family}, {layout}: {'NOT as planned: ' if wrong else ''}MB measured of planned, by rank: "
                      f"{figures}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

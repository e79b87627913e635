"""What the tables of several ranks share: training runs of a few steps, and the time of their steps."""

import json
import re
import statistics
import tempfile
from pathlib import Path

SETTINGS = ["log_every=1", "eval_every=100000", "save_every=100000", "schedule=constant", "warmup_steps=0"]
SKIPPED = 3  # steps: plans, pages and the first messages


def with_settings(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def steps(runs, arguments: list, count: int, prefix: list[str] = ()) -> dict:
    """`linnet train ARGUMENTS` with `count` steps to measure -> the median step's seconds, rank 0's memory, and
    the model's parameters."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["train", *arguments, "--run", f"{folder}/run", "--steps", count + SKIPPED + 1]
        said = runs.run([*command, *with_settings(SETTINGS)], threads=False, prefix=prefix)[0].stderr
        lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
    ends = [line["seconds"] for line in lines if line["split"] == "train"]
    return {"seconds": statistics.median(after - before for before, after in zip(ends[SKIPPED:], ends[SKIPPED + 1:])),
            "memory_mb": max(line["memory_mb"] for line in lines),
            "parameters": int(re.search(r"([\d]+) parameters", said).group(1))}

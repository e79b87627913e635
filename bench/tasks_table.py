#!/usr/bin/env python3
"""Every task of `linnet train` beside the same recipe in PyTorch: transformers, sentence-transformers, TRL and PEFT.

    ./dev bench tasks --data FOLDER [--rounds 3] [--seeds 3] [--modes eager,compile] [TASK...]

Both sides get one model folder with random weights, the same batches in the same order, AdamW, fp32 and no dropout
(bench/peers/tasks.py). For each task: the greatest difference of the losses of 20 steps; the time of a step, which is
the mean of the second half of the steps; the time of the whole process, which reads the folder, trains, evaluates and
saves; its highest resident memory; and the score of the validation examples after more steps, for several seeds. In each
round Linnet's process is followed by one of each mode of PyTorch. FOLDER (or LINNET_DATA) holds
text-classification/sst2, translation/multi30k, lm/wikitext-2, images/cifar10-8000 and tokenizers/bert.
Exit code 1 if losses differ by more than 1e-4.
Results: bench/results/tasks.md and .json.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import study
from study import common, median, show

SCRIPT = study.ROOT / "bench" / "peers" / "tasks.py"
TASKS = ["one label", "several labels", "numbers", "pairs of texts", "words", "answers", "embeddings", "masked tokens",
         "next tokens", "chats, LoRA", "preferences, LoRA", "laptop chat, LoRA", "translation", "images"]
MOST = 1e-4  # difference of two losses
# Nothing is looked for outside this machine.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
           "TOKENIZERS_PARALLELISM": "false"}


def process(command: list, environment: dict, processors: set) -> dict:
    """One process from its start to its end -> what it printed, seconds, peak memory; or {"error": one line}."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        child = subprocess.Popen([str(word) for word in command], stdout=out, stderr=errors, env=environment,
                                 preexec_fn=lambda: os.sched_setaffinity(0, processors))
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        if child.returncode != 0:
            said = [line for line in errors.read().splitlines() if line.strip()]
            return {"error": (said or [f"exit code {child.returncode}"])[-1][:300]}
        return {"out": out.read(), "process_seconds": seconds, "peak_mb": usage.ru_maxrss * 1024 / 1e6,
                "processor_seconds": usage.ru_utime + usage.ru_stime}


class Tasks:
    def __init__(self, options):
        self.options = options
        self.runs = study.Study("tasks", options)
        self.theirs = common.environment(options.threads) | OFFLINE
        self.work = Path(options.work)
        self.source = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:12]

    def folder(self, task: str) -> Path:
        """Where the model and the data of a task are; made once for a version of the script."""
        folder = self.work / task.replace(", ", "-").replace(" ", "-")
        done = folder / f"made-{self.source}"
        if done.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        command = [self.options.python, SCRIPT, "make", task, folder, "--real", self.options.data]
        found = process(command, self.theirs, self.runs.pinned)
        if "error" in found:
            sys.exit(f"{task}: {found['error']}")
        done.touch()
        return folder

    def train_linnet(self, folder: Path, about: dict, steps: int, seed: int, more: dict, run: Path) -> dict:
        settings = about["settings"] | {"model.from": folder / "model", "max_steps": steps, "eval_every": steps,
                                        "seed": seed} | more
        if about["valid"]:
            settings[about["valid"][0]] = folder / about["valid"][1]
        command = [self.options.linnet, "train", about["preset"], "--run", run, "--data", folder / about["data"],
                   "--threads", self.options.threads]
        for key, value in settings.items():
            command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        return process(command, common.plain_environment(), self.runs.pinned)

    def adapter(self, folder: Path, about: dict, seed: int) -> None:
        """The adapters that Linnet begins with, for both sides: those of a step that changes nothing."""
        out = folder / f"adapter-{seed}"
        if out.exists():
            return
        run = folder / "first-run"
        shutil.rmtree(run, ignore_errors=True)
        found = self.train_linnet(folder, about, 1, seed, {"learning_rate": 1e-30}, run)
        if "error" not in found:
            command = [self.options.linnet, "export", run, "--adapter", out]
            found = process(command, common.plain_environment(), self.runs.pinned)
        if "error" in found:
            sys.exit(f"{folder.name}: {found['error']}")

    def linnet(self, folder: Path, about: dict, steps: int, seed: int) -> dict:
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        found = self.train_linnet(folder, about, steps, seed, {}, run)
        if "error" in found:
            return found
        del found["out"]
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        train, valid = ([line for line in lines if (line["split"] == "train") == trained] for trained in (True, False))
        ends = [0, *(line["seconds"] for line in train)]  # since the first step began
        return found | {"losses": [line["loss"] for line in train], "seconds": [b - a for a, b in zip(ends, ends[1:])],
                        "score": valid[-1].get(about["score"])}

    def peer(self, task: str, folder: Path, mode: str, steps: int, seed: int) -> dict:
        command = [self.options.python, SCRIPT, "train", task, folder, "--mode", mode, "--steps", steps, "--seed", seed,
                   "--threads", self.options.threads]
        found = process(command, self.theirs, self.runs.pinned)
        return found if "error" in found else json.loads(found.pop("out").splitlines()[-1]) | found

    def once(self, task: str, folder: Path, about: dict, side: str, steps: int, seed: int, turn: int) -> dict:
        key = {"task": task, "side": side, "steps": steps, "seed": seed, "round": turn, "source": self.source}
        if side == "linnet":
            return self.runs.once(key | {"build": self.runs.build},
                                  lambda: self.linnet(folder, about, steps, seed))
        return self.runs.once(key, lambda: self.peer(task, folder, side, steps, seed))

    def row(self, task: str, earlier: dict | None) -> dict:
        """With --rounds 0 the times and the differences are those of an earlier run."""
        folder = self.folder(task)
        about = json.loads((folder / "task.json").read_text())
        seeds = range(1, self.options.seeds + 1 if about["score_steps"] else 2)
        if about.get("adapter"):
            for seed in seeds:
                self.adapter(folder, about, seed)
        peers = self.options.modes if self.runs.with_peer else []
        failed = {}
        kept: dict[str, list[dict]] = {side: [] for side in ["linnet", *peers]}
        for turn in range(self.options.rounds):
            for side in kept:
                if side in failed or (side == "compile" and turn >= self.options.compile_rounds):
                    continue
                found = self.once(task, folder, about, side, self.options.steps, 1, turn)
                if "error" in found:
                    failed[side] = found["error"]
                else:
                    kept[side].append(found | {"step_seconds": later_half(found["seconds"])})
        sides = {side: summary(found) for side, found in kept.items() if found}
        scores: dict[str, list[float]] = {}
        if about["score_steps"] and self.options.seeds > 0:
            for side in [side for side in ("linnet", "eager") if side == "linnet" or side in peers]:
                scores[side] = [self.once(task, folder, about, side, about["score_steps"], seed, 0).get("score")
                                for seed in seeds]
        found = {"task": task, "library": about["library"], "score": about["score"], "score_steps": about["score_steps"],
                 "sides": sides, "scores": scores, "failed": failed,
                 "difference": self.difference(kept) if about.get("alike", True) else None,
                 "timed": self.runs.build}
        if self.options.rounds == 0 and earlier:
            found |= {field: earlier.get(field) for field in ("sides", "difference", "failed", "timed")}
        return found

    @staticmethod
    def difference(kept: dict) -> float | None:
        """The greatest of all modes."""
        ours = [found["losses"] for found in kept["linnet"][:1]]
        theirs = [found[0]["losses"] for side, found in kept.items() if side != "linnet" and found]
        if not ours or not theirs:
            return None
        return max(abs(a - b) for losses in theirs for a, b in zip(ours[0], losses, strict=True))


def later_half(seconds: list[float]) -> float:
    half = seconds[len(seconds) // 2 :]
    return sum(half) / len(half)


def summary(found: list[dict]) -> dict:
    fields = ("step_seconds", "process_seconds", "peak_mb", "processor_seconds")
    return ({field: median(found, field) for field in fields} | {"rounds": len(found)} |
            {"all_" + field: [each[field] for each in found] for field in fields} |
            {"first_loss": found[0]["losses"][0], "last_loss": found[0]["losses"][-1]})


def best_mode(row: dict) -> str | None:
    peers = [side for side in row["sides"] if side != "linnet"]
    return min(peers, key=lambda side: row["sides"][side]["step_seconds"], default=None)


def score_text(values: list[float] | None) -> str:
    if not values or None in values:
        return "-"
    return f"{sum(values) / len(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def ratio(row: dict, field: str, mode: str) -> float | None:
    """Of the rounds' ratios the median: rounds that follow each other have a like machine."""
    ours, theirs = row["sides"].get("linnet"), row["sides"].get(mode)
    if not ours or not theirs:
        return None
    return study.statistics.median(a / b for a, b in zip(ours["all_" + field], theirs["all_" + field]))


def cells(row: dict) -> list[str]:
    best = best_mode(row)
    ours, theirs = row["sides"].get("linnet", {}), row["sides"].get(best, {})
    shown = [row["task"], row["library"], "-" if row["difference"] is None else f"{row['difference']:.0e}"]
    # The least time of a process and the least memory may be another mode's.
    modes = [side for side in row["sides"] if side != "linnet"]
    least = lambda field: min(modes, key=lambda side: row["sides"][side][field], default=None)
    for field, factor, digits in (("step_seconds", 1e3, 0), ("process_seconds", 1, 1), ("peak_mb", 1, 0)):
        mode = best if field == "step_seconds" else least(field)
        theirs = row["sides"].get(mode, {})
        shown += [show(side.get(field) and factor * side[field], digits) for side in (ours, theirs)]
        shown.append(show(ratio(row, field, mode), 2))
    name = f"{row['score']}, {row['score_steps']} steps" if row["score_steps"] else ""
    return [*shown, best or "-", name, *(score_text(row["scores"].get(side)) if name else ""
                                         for side in ("linnet", "eager"))]


def page(rows: list[dict], options) -> str:
    head = ["task", "beside", "greatest difference of losses", "step, ms", "PyTorch", "ratio", "process, s", "PyTorch",
            "ratio", "peak, MB", "PyTorch", "ratio", "mode", "score", "Linnet", "PyTorch"]
    text = (f"fp32, AdamW, no dropout, {options.steps} steps on the same batches in the same order; medians of rounds of one "
            "process each. A ratio is the median of the rounds' ratios, Linnet's by PyTorch's, which need not be the ratio of "
            "the medians beside it. A step is the mean of the second half of the "
            "steps, beside the mode with the fastest; a process counts from its start to its end (imports, steps, "
            "evaluation, saving), and its peak is of resident memory, each beside the mode that takes least. Scores are "
            "of the validation examples after more steps, means over seeds with the least and the largest: a loss "
            "where nothing else is named.")
    if options.rounds == 0:
        text += " Times, memory and differences are those of an earlier run, of Linnet " + ", ".join(
            sorted({row.get("timed") or "before" for row in rows})) + "."
    text += "\n\n"
    text += study.table(head, [cells(row) for row in rows])
    modes = [row for row in rows if len(row["sides"]) > 2]
    if modes:
        text += "\n## PyTorch's modes\n\n" + study.table(
            ["task", "mode", "step, ms", "process, s", "peak, MB"],
            [[row["task"], side, show(1e3 * found["step_seconds"]), show(found["process_seconds"], 1),
              show(found["peak_mb"])] for row in modes for side, found in row["sides"].items() if side != "linnet"])
    text += "".join(f"\n{row['task']}, {side}: {error}\n" for row in rows for side, error in row["failed"].items())
    return text


def main() -> int:
    parser = study.parser("tasks", __doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"default: all of {', '.join(TASKS)}")
    parser.add_argument("--data", default=os.environ.get("LINNET_DATA"), help="folder of real data")
    parser.add_argument("--work", default=str(study.ROOT / "build" / "tasks"), help="folder for models and runs")
    parser.add_argument("--rounds", type=int, default=3, help="0: scores alone, beside the times of an earlier run")
    parser.add_argument("--compile-rounds", type=int, default=1, help="rounds of torch.compile, which compiles for long")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="0: without scores")
    parser.add_argument("--modes", default="eager,compile", help="of PyTorch")
    options = parser.parse_args()
    if not options.data:
        sys.exit("where is the data? --data FOLDER, or LINNET_DATA in the environment")
    options.modes = options.modes.split(",")
    for task in options.tasks:
        if task not in TASKS:
            sys.exit(f"there is no task {task}; there are {', '.join(TASKS)}")
    tasks = Tasks(options)
    # Rows of other tasks stay as they are.
    earlier = Path(options.out) / "tasks.json"
    kept = {row["task"]: row for row in json.loads(earlier.read_text())["rows"]} if earlier.exists() else {}
    made = {task: tasks.row(task, kept.get(task)) for task in options.tasks or TASKS}
    rows = [row for row in ((kept | made).get(task) for task in TASKS) if row]
    tasks.runs.write("Tasks beside PyTorch", page(rows, options), {"rows": rows})
    for row in made.values():
        if row["difference"] is not None and row["difference"] > MOST:
            print(f"{row['task']}: losses differ by {row['difference']:.1e}")
    return 1 if any(row["failed"] or (row["difference"] or 0) > MOST for row in made.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""BERT-base as a masked language model, one technique after another: memory and speed, each beside PyTorch's own.

    bench/bert_table.py [--rounds 2] [--seconds 5] [--batch 4]

Rows: fp32; + bf16 (PyTorch: autocast); + recompute of every layer (PyTorch: checkpointing of every block); + the best
batch within the memory of the first row, found by measuring batches of both. Apart, without dropout, attention: with the
matrix of scores in memory, and without (PyTorch: SDPA). Each of PyTorch's rows is there eager and compiled.
Results: bench/results/bert_table.md and .json.
"""

import study
from study import median, show

WORKLOAD, LAYERS, HEADS, LENGTH = "bert-base", 12, 12, 512
BATCHES = (1.5, 3)  # times the first one

# Name -> arguments of `linnet bench`, arguments of the peer.
STAGES = {
    "fp32": ([], []),
    "+ bf16": (["--precision", "bf16"], ["--precision", "bf16"]),
    "+ recompute": (["--precision", "bf16", "--recompute", "block"], ["--precision", "bf16", "--checkpoint"]),
}
ATTENTION = {
    "fp32, scores in memory": (None, ["--attention", "steps"]),
    "fp32, flash attention": ([], ["--attention", "sdpa"]),
    "bf16, scores in memory": (None, ["--precision", "bf16", "--attention", "steps"]),
    "bf16, flash attention": (["--precision", "bf16"], ["--precision", "bf16", "--attention", "sdpa"]),
}
MODES = ("eager", "compile")


class Table:
    def __init__(self, runs, options):
        self.runs, self.options = runs, options

    def measure(self, stages: dict, batch: int, shared: list) -> list[dict]:
        """All stages in turns, round by round."""
        shared = ["--seconds", self.options.seconds, "--batch", batch, *shared]
        ours = {name: [] for name in stages}
        theirs = {(name, mode): [] for name in stages for mode in MODES}
        for turn in range(self.options.rounds):
            for name, (mine, peer) in stages.items():
                if mine is not None:
                    ours[name].append(self.runs.bench(WORKLOAD, ["--no-parts", *shared, *mine], turn))
                for mode in MODES:
                    records = theirs[name, mode]
                    if not any("error" in record for record in records):
                        records.append(self.runs.peer(WORKLOAD, ["--mode", mode, *shared, *peer], turn))
        return [{"stage": name, "batch": batch, "linnet": figures(ours[name]),
                 **{mode: figures(theirs[name, mode]) for mode in MODES}} for name in stages]

    def best_batch(self, budget: dict, stage: str) -> dict:
        """Of each side the batch with most samples a second that takes no more than the side's first row."""
        mine, peer = STAGES[stage]
        row = {"stage": "+ best batch within the memory of the first row"}
        for side in ("linnet", *MODES):
            most, best = budget[side]["memory_mb"], None
            for factor in (1, *BATCHES) if most else ():
                batch = int(self.options.batch * factor)
                shared = ["--seconds", self.options.seconds, "--batch", batch]
                if side == "linnet":
                    # Only as much is computed again as the budget asks for.
                    found = self.runs.bench(WORKLOAD, ["--no-parts", *shared, *STAGES["+ bf16"][0],
                                                       "--memory", round(most * 1e6)])
                else:
                    found = self.runs.peer(WORKLOAD, ["--mode", side, *shared, *peer])
                if "error" in found or found["memory_mb"] > 1.02 * most:
                    break
                if best is None or found["median"] > best["median"]:
                    best = found | {"batch": batch}
            row[side] = figures([best] if best else [])
            row[side]["batch"] = best and best["batch"]
        return row


def figures(records: list[dict]) -> dict:
    good = [record for record in records if "error" not in record]
    return {"memory_mb": median(good, "memory_mb"), "speed": median(good, "median"),
            "processor_ms": median(good, "processor_ms"), "program_mb": median(good, "program_mb"),
            "recomputation": good[0].get("recomputation") if good else None,
            "errors": [record["error"] for record in records if record.get("error", "not run") != "not run"]}


def page(rows: list[dict]) -> str:
    head = ["", "Linnet, MB", "samples/s", "PyTorch, MB", "samples/s", "PyTorch compiled, MB", "samples/s",
            "memory, of PyTorch's best", "speed, of PyTorch's best"]
    lines = []
    for row in rows:
        cells = [row["stage"]]
        for side in ("linnet", *MODES):
            found = row[side]
            batch = f" ({found['batch']} texts)" if found.get("batch") else ""
            cells += [show(found["memory_mb"]), show(found["speed"], 2) + batch]
        memory = [row[mode]["memory_mb"] for mode in MODES if row[mode]["memory_mb"]]
        speed = [row[mode]["speed"] for mode in MODES if row[mode]["speed"]]
        ours = row["linnet"]
        cells.append(show(ours["memory_mb"] / min(memory), 2) if memory and ours["memory_mb"] else "-")
        cells.append(show(ours["speed"] / max(speed), 2) if speed and ours["speed"] else "-")
        lines.append(cells)
    text = study.table(head, lines)
    for row in rows:
        text += "".join(f"\n{row['stage']}, {side}: {row[side]['errors'][0]}\n"
                        for side in ("linnet", *MODES) if row[side]["errors"])
    return text + "\n"


def main():
    parser = study.parser("bert-table", __doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="timed in each process, 3 steps at least")
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    runs = study.Study("bert_table", options)
    table = Table(runs, options)
    stages = table.measure(STAGES, options.batch, [])
    stages.append(table.best_batch(stages[0], "+ recompute"))
    attention = table.measure(ATTENTION, options.batch, ["--dropout", 0])
    scores = LAYERS * options.batch * HEADS * LENGTH * LENGTH * 4 / 1e6
    text = (f"Training steps of {options.batch} texts of {LENGTH} tokens, dropout 0.1, AdamW; memory is the process's "
            "high-water mark less what it held at its start.\n\n" + page(stages) +
            "## Attention apart, without dropout\n\n"
            f"The scores of {LAYERS} layers take {scores:,.0f} MB in fp32; Linnet's attention never has them in memory, "
            "with dropout neither. On a CPU, PyTorch's SDPA does without them where there is no dropout.\n\n" +
            page(attention))
    runs.write("BERT-base, technique by technique", text, {"stages": stages, "attention": attention})


main()

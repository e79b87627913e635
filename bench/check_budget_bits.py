#!/usr/bin/env python3
"""Trains with dropout under four memory budgets and says whether losses and weights are the same, bit for bit.

    bench/check_budget_bits.py [--steps 100] [--text FILE] [--set KEY=VALUE]...

Then the same once more in two halves, each half under another budget, resumed in between. Exit code 1 when any bit
differs. Results: bench/results/budget_bits.md and .json.
"""

import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import study
from study import show

# Small, but with layers enough that each budget computes others again. The warmup is short enough for half of the
# steps, a quarter of which is the most that a warmup takes.
MODEL = ("d_model=128", "d_ff=512", "num_heads=4", "num_layers=6", "max_seq_len=128", "dropout=0.1", "batch_size=16",
         "vocab_size=1000", "warmup_steps=10", "sample_length=0", "precision=fp32", "micro_batches=1")
# 1: no recomputation; 0: the least memory that works.
BUDGETS = (1.0, 0.6, 0.3, 0.0)


class Runs:
    def __init__(self, runs, folder: Path, options):
        self.runs, self.folder, self.options = runs, folder, options
        self.settings = [part for setting in (*MODEL, f"data.text={options.text}", "eval_every=1000000",
                                              *options.set) for part in ("--set", setting)]

    def range(self) -> tuple[int, int]:
        """The least memory that training can take, and what it takes without a budget, in bytes."""
        whole = self.runs.run(["plan", "mini-gpt", *self.settings, "--exact"])[0].stdout
        most = float(re.search(r"peak +([\d.]+) MB", whole).group(1)) * 1e6
        try:
            self.train("refused", 1, 1)
        except SystemExit as refused:
            return int(re.search(r"at least (\d+) MB", str(refused)).group(1)) * 10**6, int(most)
        sys.exit("training within 1 byte was not refused")

    def train(self, name: str, memory: int, steps: int, resume: bool = False) -> dict:
        where = self.folder / name
        if where.exists() and not resume:
            shutil.rmtree(where)
        done, peak, _ = self.runs.run(["train", "mini-gpt", *self.settings, "--set", f"max_steps={steps}", "--set", "schedule=constant", "--run", where,
                                       "--memory", f"{memory}B", *(["--resume"] if resume else [])])
        lines = [json.loads(line) for line in (where / "metrics.jsonl").read_text().splitlines()]
        told = re.search(r"to take less memory it ([^\n]*)", done.stdout + done.stderr)
        return {"losses": [[line["step"], line["loss"], line["grad_norm"]] for line in lines if line["split"] == "train"],
                "weights": hashlib.sha256(tensors(where / "training_state.safetensors")).hexdigest(),
                "peak_mb": peak, "what": told.group(1) if told else "keeps all"}


def tensors(path: Path) -> bytes:
    """The data of a safetensors file: its metadata hold the time that training took."""
    whole = path.read_bytes()
    return whole[8 + int.from_bytes(whole[:8], "little"):]


def main() -> int:
    parser = study.parser("budget-bits", __doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--text", help="what to train on (default: this repository's documents)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    options.linnet_only = True
    runs = study.Study("budget_bits", options)
    with tempfile.TemporaryDirectory() as folder:
        if not options.text:
            options.text = str(Path(folder) / "text.txt")
            documents = sorted((study.ROOT / "docs").glob("*.md"))
            Path(options.text).write_text("\n".join(document.read_text() for document in documents))
        trained = Runs(runs, Path(folder), options)
        least, most = trained.range()
        rows = []
        for share in BUDGETS:
            # The program itself holds a little more or less from start to start.
            memory = int((least + share * (most - least)) * 1.02)
            found = trained.train("run", memory, options.steps)
            rows.append({"budget_mb": memory / 1e6, **found})
            print(f"{memory / 1e6:.1f} MB: {found['what']}", flush=True)
        halves = [int(least * 1.02), int(most * 1.02)]
        for first, second in (halves, halves[::-1]):
            trained.train("halves", first, options.steps // 2)
            found = trained.train("halves", second, options.steps, resume=True)
            rows.append({"budget_mb": second / 1e6, "first_half_mb": first / 1e6, **found})
            print(f"{first / 1e6:.1f} MB, resumed with {second / 1e6:.1f} MB: {found['what']}", flush=True)
    first = rows[0]["losses"], rows[0]["weights"]
    for row in rows:
        row["same"] = (row["losses"], row["weights"]) == first
        row["steps"] = len(row.pop("losses"))
    lines = [[(f"{row['first_half_mb']:,.1f}, resumed with " if "first_half_mb" in row else "") + f"{row['budget_mb']:,.1f}",
              show(row["peak_mb"], 1), row["what"], str(row["steps"]), "yes" if row["same"] else "NO"] for row in rows]
    runs.write("The same bits under every budget",
               f"{options.steps} steps of a GPT of 6 layers with dropout 0.1; losses and gradient norms of all steps, "
               "and weights and moments at the end, compared with the first row's.\n\n" +
               study.table(["budget, MB", "peak, MB", "what it does", "steps", "the same bits"], lines), {"rows": rows})
    return 0 if all(row["same"] for row in rows) else 1


sys.exit(main())

#!/usr/bin/env python3
"""Encoders at inference beside PyTorch and ONNX Runtime: latency by batch, length and precision.

    bench/infer_table.py [minilm] [bert-base] [--batches 1,8,32] [--lengths 32,128,512] [--rounds 2] [--seconds 0.5]

Sizes are those of MiniLM-L6 and BERT-base, weights are random. PyTorch: eager, compiled, dynamic int8; ONNX Runtime:
fused by its transformer optimizer in fp32, and dynamic int8. Linnet: fp32, bf16, int8 (dynamic). Sides take turns, each
in a process of its own; a cell is the median of the rounds' medians. Loading and tokens are not part of it. Run by
--python, a Python with torch, transformers, onnx and onnxruntime. Results: bench/results/infer_table.md and .json.
"""

import statistics
import subprocess
import sys
from pathlib import Path

import study
from study import show

PEER = Path(__file__).parent / "peers" / "encoder.py"
MODELS = {"minilm": (6, 384, 12), "bert-base": (12, 768, 12)}  # layers, width, heads
PRECISIONS = ("fp32", "bf16", "int8")
PEERS = {"eager": "PyTorch", "compile": "PyTorch compiled", "quantized": "PyTorch int8", "ort": "ONNX Runtime",
         "ort-int8": "ONNX Runtime int8"}
# What each of Linnet's precisions is held against.
CLASSES = {"fp32": ("eager", "compile", "ort"), "bf16": ("eager", "compile", "ort"), "int8": ("quantized", "ort-int8")}


class Table:
    def __init__(self, runs, options):
        self.runs, self.options = runs, options

    def folder(self, model: str) -> Path:
        made = study.common.HOME / "encoders" / model
        if not (made / "model.safetensors").exists():
            layers, width, heads = MODELS[model]
            made.mkdir(parents=True, exist_ok=True)
            subprocess.run([self.options.python, str(PEER), "make", str(made), "--layers", str(layers), "--width",
                            str(width), "--heads", str(heads)], check=True, stdout=subprocess.DEVNULL)
        return made

    def measure(self, model: str) -> dict:
        """side -> {(batch, length) -> median ms}, and what failed."""
        folder, times, notes, facts = self.folder(model), {}, [], {}
        shapes = ["--batches", self.options.batches, "--lengths", self.options.lengths]
        for turn in range(self.options.rounds):
            for precision in PRECISIONS:
                # A fifth of the seconds is each row's.
                found = self.runs.bench("infer", ["--model", str(folder), "--precisions", precision, *shapes,
                                                  "--seconds", 5 * self.options.seconds], turn)
                self.take(precision, found, times, notes, facts)
            for mode in PEERS if self.runs.with_peer else ():
                found = self.runs.peer(mode, ["--model", str(folder), *shapes, "--seconds", self.options.seconds], turn,
                                       PEER)
                self.take(mode, found, times, notes, facts)
        return {"model": model, "notes": sorted(set(notes)), "facts": facts,
                "times": {side: {key: statistics.median(values) for key, values in rows.items()}
                          for side, rows in times.items()}}

    @staticmethod
    def take(side: str, found: dict, times: dict, notes: list, facts: dict) -> None:
        if "error" in found:
            notes.append(f"{side}: {found['error']}")
            return
        facts[side] = {"load_seconds": found.get("load_seconds") or found["rows"][0]["load_seconds"],
                       "memory_mb": found.get("memory_mb") or found["rows"][0]["memory_mb"]}
        for row in found["rows"]:
            times.setdefault(side, {}).setdefault(f"{row['batch']} x {row['length']}", []).append(row["p50_ms"])


def page(result: dict) -> str:
    times = result["times"]
    peers = [mode for mode in PEERS if mode in times]
    head = ["batch x tokens", *PRECISIONS, *(PEERS[mode] for mode in peers),
            *(f"{precision}, of the best peer's speed" for precision in PRECISIONS)]
    rows, ratios = [], {precision: [] for precision in PRECISIONS}
    for shape in times["fp32"]:
        row = [shape, *(show(times[side].get(shape), 2) for side in (*PRECISIONS, *peers))]
        for precision in PRECISIONS:
            best = min((times[mode][shape] for mode in CLASSES[precision] if mode in times), default=None)
            ratios[precision] += [best / times[precision][shape]] if best else []
            row.append(show(ratios[precision][-1] if best else None, 2))
        rows.append(row)
    means = [show(statistics.geometric_mean(values) if values else None, 2) for values in ratios.values()]
    rows.append(["mean", *("" for _ in (*PRECISIONS, *peers)), *means])
    facts = [[PEERS.get(side, side), show(fact["load_seconds"], 2), show(fact["memory_mb"])]
             for side, fact in result["facts"].items()]
    notes = "".join(f"\n{note}\n" for note in result["notes"])
    return (f"## {result['model']}\n\nMedian latency in ms.\n\n" + study.table(head, rows) + "\n" +
            study.table(["", "loaded in s", "memory, MB"], facts) + notes + "\n")


def main():
    parser = study.parser("infer", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: " + ", ".join(MODELS))
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--lengths", default="32,128,512")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each cell and round")
    options = parser.parse_args()
    for model in options.models:
        if model not in MODELS:
            sys.exit(f"there is no model {model}; there are {', '.join(MODELS)}")
    runs = study.Study("infer_table", options)
    results = [Table(runs, options).measure(model) for model in options.models or MODELS]
    text = ("Speed is the best peer's latency in the same class by Linnet's: fp32 and bf16 are held against PyTorch's "
            "and ONNX Runtime's fp32, int8 against their dynamic int8.\n\n" + "".join(map(page, results)))
    runs.write("Encoders at inference", text, {"results": results})


main()

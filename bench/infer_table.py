#!/usr/bin/env python3
"""Models at inference beside PyTorch, ONNX Runtime and llama.cpp: encoders by batch, length and precision, and a
decoder that writes one text.

    bench/infer_table.py [minilm] [bert-base] [gpt2-124m] [--batches 1,8,32] [--lengths 32,128,512] [--tokens 128]
                         [--rounds 2] [--seconds 0.5]

Sizes are those of MiniLM-L6, BERT-base and GPT-2, weights are random. Encoders: PyTorch eager, compiled, dynamic int8;
ONNX Runtime fused by its transformer optimizer in fp32, and dynamic int8; Linnet fp32, bf16, int8 (dynamic) and static
int8. The decoder: transformers on PyTorch, llama.cpp in F32, Q8_0 and Q4_0; Linnet fp32, bf16, int8, int8-weights and
int4-weights. Sides take turns, each in a process of its own; a cell is the median of the rounds' medians. Loading and
tokens are not part of it. Run by --python, a Python with torch, transformers, onnx and onnxruntime; llama.cpp by
--llama-python, one with torch, xllamacpp (a compiled llama.cpp), gguf and safetensors, if there is one. Results:
bench/results/infer_table.md, .json and .svg.
"""

import statistics
import subprocess
import sys
from pathlib import Path

import study
from study import show

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import bars  # noqa: E402

ENCODER = Path(__file__).parent / "peers" / "encoder.py"
DECODER = Path(__file__).parent / "peers" / "decoder.py"
ENCODERS = {"minilm": (6, 384, 12), "bert-base": (12, 768, 12)}  # layers, width, heads
DECODERS = {"gpt2-124m": (12, 768, 12)}
PRECISIONS = ("fp32", "bf16", "int8", "static")
PEERS = {"eager": "PyTorch", "compile": "PyTorch compiled", "quantized": "PyTorch int8", "ort": "ONNX Runtime",
         "ort-int8": "ONNX Runtime int8"}
# What each of Linnet's precisions is held against.
CLASSES = {"fp32": ("eager", "compile", "ort"), "bf16": ("eager", "compile", "ort"), "int8": ("quantized", "ort-int8"),
           "static": ("quantized", "ort-int8")}
DECODER_PRECISIONS = ("fp32", "bf16", "int8", "int8-weights", "int4-weights")
DECODER_PEERS = {"transformers": "transformers", "llama-f32": "llama.cpp F32", "llama-q8_0": "llama.cpp Q8_0",
                 "llama-q4_0": "llama.cpp Q4_0"}
DECODER_CLASSES = {"fp32": ("transformers", "llama-f32"), "int8-weights": ("llama-q8_0",),
                   "int4-weights": ("llama-q4_0",)}


def made_folder(options, script: Path, model: str, layers: int, width: int, heads: int) -> Path:
    made = study.common.HOME / "encoders" / model
    if not (made / "model.safetensors").exists():
        made.mkdir(parents=True, exist_ok=True)
        subprocess.run([options.python, str(script), "make", str(made), "--layers", str(layers), "--width", str(width),
                        "--heads", str(heads)], check=True, stdout=subprocess.DEVNULL)
    return made


class Encoder:
    """Median latencies of an encoder on all sides."""

    def __init__(self, runs, options):
        self.runs, self.options = runs, options

    def measure(self, model: str) -> dict:
        """side -> {(batch, length) -> median ms}, and what failed."""
        folder = made_folder(self.options, ENCODER, model, *ENCODERS[model])
        times, notes, facts = {}, [], {}
        shapes = ["--batches", self.options.batches, "--lengths", self.options.lengths]
        for turn in range(self.options.rounds):
            for precision in PRECISIONS:
                # A fifth of the seconds is each row's.
                found = self.runs.bench("infer", ["--model", str(folder), "--precisions", precision, *shapes,
                                                  "--seconds", 5 * self.options.seconds], turn)
                self.take(precision, found, times, notes, facts)
            for mode in PEERS if self.runs.with_peer else ():
                found = self.runs.peer(mode, ["--model", str(folder), *shapes, "--seconds", self.options.seconds], turn,
                                       ENCODER)
                self.take(mode, found, times, notes, facts)
        return {"model": model, "notes": sorted(set(notes)), "facts": facts,
                "times": {side: {key: statistics.median(values) for key, values in rows.items()}
                          for side, rows in times.items()}}

    @staticmethod
    def take(side: str, found: dict, times: dict, notes: list, facts: dict) -> None:
        if "error" in found:
            notes.append(f"{side}: {found['error']}")
            return
        first = found["rows"][0]
        facts[side] = {"load_seconds": found.get("load_seconds") or first["load_seconds"],
                       "memory_mb": found.get("memory_mb") or first["memory_mb"],
                       "weight_mb": first.get("weight_mb")}
        for row in found["rows"]:
            times.setdefault(side, {}).setdefault(f"{row['batch']} x {row['length']}", []).append(row["p50_ms"])

    @staticmethod
    def page(result: dict) -> str:
        times = result["times"]
        peers = [mode for mode in PEERS if mode in times]
        head = ["batch x tokens", *PRECISIONS, *(PEERS[mode] for mode in peers),
                *(f"{precision}, of the best peer's speed" for precision in PRECISIONS),
                *(f"{precision}, of PyTorch's" for precision in ("int8", "static"))]
        rows, ratios, eager = [], {precision: [] for precision in PRECISIONS}, {"int8": [], "static": []}
        for shape in times["fp32"]:
            row = [shape, *(show(times[side].get(shape), 2) for side in (*PRECISIONS, *peers))]
            for precision in PRECISIONS:
                best = min((times[mode][shape] for mode in CLASSES[precision] if mode in times), default=None)
                ratios[precision] += [best / times[precision][shape]] if best else []
                row.append(show(ratios[precision][-1] if best else None, 2))
            for precision, found in eager.items():
                if "eager" in times:
                    found.append(times["eager"][shape] / times[precision][shape])
                row.append(show(found[-1] if found else None, 2))
            rows.append(row)
        means = [show(statistics.geometric_mean(values) if values else None, 2)
                 for values in (*ratios.values(), *eager.values())]
        rows.append(["mean", *("" for _ in (*PRECISIONS, *peers)), *means])
        facts = [[PEERS.get(side, side), show(fact["load_seconds"], 2), show(fact["memory_mb"]),
                  show(fact.get("weight_mb"), 1)] for side, fact in result["facts"].items()]
        notes = "".join(f"\n{note}\n" for note in result["notes"])
        return (f"## {result['model']}\n\nMedian latency in ms.\n\n" + study.table(head, rows) + "\n" +
                study.table(["", "loaded in s", "memory, MB", "weights, MB"], facts) + notes + "\n")

    @staticmethod
    def groups(result: dict) -> list:
        made = []
        for shape in result["times"]["fp32"]:
            batch = int(shape.split(" ")[0])
            made.append((f"{result['model']}, {shape} tokens: sequences a second",
                         [(PEERS.get(side, f"Linnet {side}"), 1e3 * batch / rows[shape],
                           show(1e3 * batch / rows[shape], 1), side not in PEERS)
                          for side, rows in result["times"].items() if shape in rows]))
        return made


class Decoder:
    """Tokens a second of a decoder on all sides."""

    def __init__(self, runs, options):
        self.runs, self.options = runs, options

    def peer(self, mode: str, arguments: list, turn: int) -> dict:
        if mode.startswith("llama"):
            if not self.options.llama_python:
                return {"error": "not run: --llama-python names a Python with xllamacpp"}
            python, self.options.python = self.options.python, self.options.llama_python
            try:
                return self.runs.peer(mode, arguments, turn, DECODER)
            finally:
                self.options.python = python
        return self.runs.peer(mode, arguments, turn, DECODER)

    def measure(self, model: str) -> dict:
        folder = made_folder(self.options, DECODER, model, *DECODERS[model])
        rates, facts, notes, shares, versions, torch = {}, {}, [], {}, set(), self.runs.torch
        seconds = ["--seconds", 4 * self.options.seconds]
        for turn in range(self.options.rounds):
            for precision in DECODER_PRECISIONS:
                found = self.runs.bench("infer", ["--model", str(folder), "--precisions", precision, "--lengths",
                                                  self.options.tokens, *seconds], turn)
                if "error" in found:
                    notes.append(f"{precision}: {found['error']}")
                    continue
                row = found["rows"][0]
                rates.setdefault(precision, []).append(row["tokens_per_second"])
                shares.setdefault(precision, []).append(row["share_of_bound"])
                facts[precision] = row
            for mode in DECODER_PEERS if self.runs.with_peer else ():
                found = self.peer(mode, ["--model", str(folder), "--tokens", self.options.tokens, *seconds], turn)
                if "error" in found:
                    notes.append(f"{DECODER_PEERS[mode]}: {found['error']}")
                    continue
                rates.setdefault(mode, []).append(found["tokens_per_second"])
                facts[mode] = found
                versions.add(found["version"])
        self.runs.torch = torch  # which the peers here have set to versions of their own
        return {"model": model, "tokens": self.options.tokens, "notes": sorted(set(notes)), "facts": facts,
                "versions": sorted(versions),
                "shares": {side: statistics.median(values) for side, values in shares.items()},
                "rates": {side: statistics.median(values) for side, values in rates.items()}}

    @staticmethod
    def page(result: dict) -> str:
        rates, rows = result["rates"], []
        for side, rate in rates.items():
            fact = result["facts"][side]
            peers = [rates[mode] for mode in DECODER_CLASSES.get(side, ()) if mode in rates]
            own = side not in DECODER_PEERS
            rows.append([DECODER_PEERS.get(side, side), show(rate, 1),
                         show(rate / rates["fp32"] if own else None, 2),
                         show(100 * result["shares"][side] if own else None, 0, "%"),
                         show(rate / max(peers) if peers else None, 2), show(fact["p50_ms"], 2),
                         show(fact["p99_ms"], 2), show(fact["load_seconds"], 2), show(fact["file_mb"]),
                         show(fact["memory_mb"])])
        head = ["", "tokens/s", "of own fp32", "of what memory allows", "of the best peer's speed", "p50, ms",
                "p99, ms", "loaded in s", "file, MB", "memory, MB"]
        notes = "".join(f"\n{note}\n" for note in result["notes"])
        beside = f" Beside {' and '.join(result['versions'])}." if result["versions"] else ""
        return (f"## {result['model']}\n\nOne text: {result['tokens']} tokens behind a prompt of 8.{beside}\n\n" +
                study.table(head, rows) + notes + "\n")

    @staticmethod
    def groups(result: dict) -> list:
        return [(f"{result['model']}: tokens a second, one text",
                 [(DECODER_PEERS.get(side, f"Linnet {side}"), rate, show(rate, 1), side not in DECODER_PEERS)
                  for side, rate in result["rates"].items()])]


def main():
    parser = study.parser("infer", __doc__)
    models = {**ENCODERS, **DECODERS}
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: " + ", ".join(models))
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--lengths", default="32,128,512")
    parser.add_argument("--tokens", type=int, default=128, help="that the decoder writes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5,
                        help="of each cell and round; a decoder takes four times that")
    parser.add_argument("--llama-python", help="a Python with xllamacpp and gguf")
    options = parser.parse_args()
    for model in options.models:
        if model not in models:
            sys.exit(f"there is no model {model}; there are {', '.join(models)}")
    runs = study.Study("infer_table", options)
    results, text, groups = [], [], []
    for model in options.models or models:
        side = (Encoder if model in ENCODERS else Decoder)(runs, options)
        results.append(side.measure(model))
        text.append(side.page(results[-1]))
        groups += side.groups(results[-1])
    runs.write("Models at inference", (
        "Speed is the best peer's latency in the same class by Linnet's: fp32 and bf16 are held against PyTorch's and "
        "ONNX Runtime's fp32, int8 and static int8 against their dynamic int8. In the last columns it is that of "
        "PyTorch in fp32, eager.\n\n" + "".join(text)), {"results": results})
    study.report.replace(Path(options.out) / "infer_table.svg",
                         bars.bars("Models at inference. " + runs.machine(), groups))


main()

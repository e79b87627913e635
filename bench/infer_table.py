#!/usr/bin/env python3
"""Models at inference beside PyTorch, ONNX Runtime, OpenVINO, zentorch and llama.cpp: encoders by batch, length and
precision, and a decoder that writes one text.

    bench/infer_table.py [minilm] [bert-base] [gpt2-124m] [--batches 1,8,32] [--lengths 32,128,512] [--tokens 128]
                         [--rounds 2] [--seconds 0.5]

Sizes are those of MiniLM-L6, BERT-base and GPT-2, weights are random. Encoders: PyTorch eager and compiled in fp32 and
bf16, and dynamic int8; ONNX Runtime fused by its transformer optimizer in fp32, and dynamic int8; OpenVINO in fp32, in
bf16 and in int8 (NNCF); zentorch in fp32 and bf16; Linnet fp32, bf16, int8 (dynamic) and static int8. The decoder:
transformers on PyTorch, llama.cpp in F32, Q8_0 and Q4_0; Linnet fp32, bf16, int8, int8-weights and int4-weights. Sides
take turns, each in a process of its own; a cell is the median of the rounds' medians, without loading and tokens.

Run by --python, a Python with torch, transformers, onnx and onnxruntime. The other peers run if a Python is named:
--openvino-python, one with openvino, nncf, torch and transformers; --zentorch-python, one with zentorch, the torch that
it needs and transformers; --llama-python, one with torch, xllamacpp (a compiled llama.cpp), gguf and safetensors.
Results: bench/results/infer_table.md, .json and .svg.
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
PEERS = {"eager": "PyTorch", "compile": "PyTorch compiled", "ort": "ONNX Runtime", "openvino": "OpenVINO",
         "zentorch": "zentorch", "eager-bf16": "PyTorch bf16", "compile-bf16": "PyTorch compiled bf16",
         "openvino-bf16": "OpenVINO bf16", "zentorch-bf16": "zentorch bf16", "quantized": "PyTorch int8",
         "ort-int8": "ONNX Runtime int8", "openvino-int8": "OpenVINO int8",
         "openvino-int8-bf16": "OpenVINO int8 and bf16"}
# What each of Linnet's precisions is held against.
FP32 = ("eager", "compile", "ort", "openvino", "zentorch")
BF16 = ("eager-bf16", "compile-bf16", "openvino-bf16", "zentorch-bf16")
INT8 = ("quantized", "ort-int8", "openvino-int8", "openvino-int8-bf16")
CLASSES = {"fp32": FP32, "bf16": BF16 + FP32, "int8": INT8, "static": INT8}
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
        # What the modes of some peers begin with -> their Python, None if no option names it.
        self.pythons = {"openvino": options.openvino_python, "zentorch": options.zentorch_python}

    def measure(self, model: str) -> dict:
        """side -> {(batch, length) -> median ms}, and what failed."""
        folder = made_folder(self.options, ENCODER, model, *ENCODERS[model])
        times, notes, facts, versions = {}, [], {}, set()
        shapes = ["--batches", self.options.batches, "--lengths", self.options.lengths]
        for turn in range(self.options.rounds):
            for precision in PRECISIONS:
                # A fifth of the seconds is each row's.
                found = self.runs.bench("infer", ["--model", str(folder), "--precisions", precision, *shapes,
                                                  "--seconds", 5 * self.options.seconds], turn)
                self.take(precision, found, times, notes, facts)
            for mode in PEERS if self.runs.with_peer else ():
                library = mode.split("-")[0]
                python = self.pythons.get(library)
                if library in self.pythons and not python:
                    notes.append(f"{PEERS[library]}: not run: --{library}-python names a Python with {library}")
                    continue
                found = self.runs.peer(mode, ["--model", str(folder), *shapes, "--seconds", self.options.seconds], turn,
                                       ENCODER, python)
                self.take(mode, found, times, notes, facts)
                if python and "error" not in found:
                    versions.add(found["version"])
        return {"model": model, "notes": sorted(set(notes)), "facts": facts, "versions": sorted(versions),
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
        latencies = [[shape, *(show(times[side].get(shape), 2) for side in (*PRECISIONS, *peers))]
                     for shape in times["fp32"]]
        # Each column of the table of speeds: its head, Linnet's precision, the peers that it is held against.
        columns = [*((precision, precision, CLASSES[precision]) for precision in PRECISIONS),
                   *((f"{precision}, all peers", precision, tuple(PEERS)) for precision in ("int8", "static")),
                   *((f"{precision}, PyTorch", precision, ("eager",)) for precision in ("int8", "static"))]
        speeds, ratios = [[shape] for shape in times["fp32"]], [[] for _ in columns]
        for row in speeds:
            for (_, precision, modes), found in zip(columns, ratios):
                latency, best = min(((times[mode][row[0]], PEERS[mode]) for mode in modes if mode in times),
                                    default=(None, None))
                found += [latency / times[precision][row[0]]] if latency else []
                row.append(show(found[-1], 2, f" ({best})" if len(modes) > 1 else "") if latency else "-")
        speeds.append(["mean", *(show(statistics.geometric_mean(found) if found else None, 2) for found in ratios)])
        facts = [[PEERS.get(side, side), show(fact["load_seconds"], 2), show(fact["memory_mb"]),
                  show(fact.get("weight_mb"), 1)] for side, fact in result["facts"].items()]
        notes = "".join(f"\n{note}\n" for note in result["notes"])
        beside = f" Beside {', '.join(result['versions'])}." if result["versions"] else ""
        return (f"## {result['model']}\n\nMedian latency in ms.{beside}\n\n" +
                study.table(["batch x tokens", *PRECISIONS, *(PEERS[mode] for mode in peers)], latencies) +
                "\nLinnet's speed divided by the fastest peer's.\n\n" +
                study.table(["batch x tokens", *(head for head, _, _ in columns)], speeds) + "\n" +
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
            return self.runs.peer(mode, arguments, turn, DECODER, self.options.llama_python)
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
    parser.add_argument("--openvino-python", help="a Python with openvino, nncf, torch and transformers")
    parser.add_argument("--zentorch-python", help="a Python with zentorch, its torch and transformers")
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
        "A speed is the latency of the fastest peer, named in parentheses, divided by Linnet's: above 1 Linnet is "
        "faster. fp32 is held against the peers in fp32, bf16 against those in bf16 and fp32, int8 and static int8 "
        "against those in int8. \"All peers\" are those in any precision, \"PyTorch\" is eager in fp32. Means are "
        "geometric.\n\n" + "".join(text)), {"results": results})
    study.report.replace(Path(options.out) / "infer_table.svg",
                         bars.bars("Models at inference. " + runs.machine(), groups))


main()

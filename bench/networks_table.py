#!/usr/bin/env python3
"""Networks that nobody here drew, as ONNX files: a run beside ONNX Runtime, a training step beside PyTorch.

    bench/networks_table.py [NETWORK...] [--batches 1,8] [--train 8] [--eager-only] [--rounds 3] [--seconds 0.5]

NETWORK is a name of timm's, or "lstm"; their weights are random. Runs are timed at each of --batches, steps at the batch
of --train (0: no steps). Sides take turns, each in a process of its own; a cell is the median of the rounds' medians.
PyTorch's step is eager or compiled, the faster of the two (compiled: one round, it compiles for a minute). Both train
with SGD from the same weights, images channels last. Run by --python, a Python with torch, timm, onnx, onnxruntime and safetensors. Linnet's
steps are those of the example `train_onnx` (`./dev build`). Results: bench/results/networks_table.md and .json.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import study
from study import show

PEER = Path(__file__).parent / "peers" / "network.py"
NETWORKS = ("mobilenetv3_small_100", "efficientnet_b0", "ghostnet_100", "densenet121", "regnety_002", "hrnet_w18_small",
            "levit_128s", "poolformer_s12", "mobilevit_xxs", "maxvit_pico_rw_256", "efficientvit_b0", "resnet50",
            "swin_tiny_patch4_window7_224", "vit_small_patch14_dinov2", "deit_tiny_patch16_224", "resnet18",
            "convnext_atto", "mnasnet_100", "fbnetc_100", "lcnet_050", "rexnet_100", "repvgg_a0", "edgenext_xx_small",
            "pvt_v2_b0", "fastvit_t8", "tf_efficientnetv2_b0", "tinynet_a", "lstm")
RATE = "0.001"
WARM, FEWEST = 3, 5  # steps
LOSSES_APART = 1e-3  # both sides have the same weights: but for dropout, the losses are the same


class Networks:
    def __init__(self, runs: study.Study, options):
        self.runs, self.options = runs, options
        self.trainer = Path(options.linnet).parent.parent / "examples" / "example_train_onnx"

    def folder(self, network: str, batch: int) -> Path:
        made = study.common.HOME / "networks" / f"{network}-{batch}"
        if not (made / "train.safetensors").exists() or not (made / "train.onnx").exists():
            subprocess.run([self.options.python, str(PEER), "make", network, str(made), "--batch", str(batch)], check=True)
        return made

    def own_run(self, folder: Path) -> dict:
        """Median milliseconds of `linnet onnx run`, whose --repeats are as many as the seconds hold."""
        def timed(repeats: int) -> float:
            done, _, _ = self.runs.run(["onnx", "run", folder / "run.onnx", folder / "run.safetensors", "-o",
                                        folder / "out.safetensors", "--repeats", repeats])
            text = done.stdout + done.stderr
            return float(text[: text.index(" ms")].split()[-1].replace(",", ""))

        return {"ms": timed(max(9, int(1e3 * self.options.seconds / timed(3))))}

    def own_step(self, folder: Path) -> dict:
        """Median milliseconds between the losses that train_onnx prints."""
        command = ["stdbuf", "-oL", str(self.trainer), str(folder / "train.onnx"), str(folder / "train.safetensors"),
                   "output", "100000", RATE, "sgd"]
        # Its threads are as many as the processors it is pinned to.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=study.common.plain_environment(),
                                   preexec_fn=lambda: os.sched_setaffinity(0, self.runs.pinned))
        stamps, losses, end = [], [], None
        with process:
            for line in process.stdout:
                stamps.append(time.perf_counter())
                losses.append(float(line))
                if len(stamps) == WARM:
                    end = stamps[-1] + self.options.seconds
                if end and stamps[-1] > end and len(stamps) >= WARM + FEWEST:
                    break
            memory = study.common.memory_mb("VmHWM", process.pid) if stamps else None
            process.kill()
        if len(stamps) < WARM + FEWEST:
            return {"error": "train_onnx ended early"}
        steps = [(after - before) * 1e3 for before, after in zip(stamps[WARM - 1:], stamps[WARM:])]
        return {"ms": statistics.median(steps), "memory_mb": memory, "losses": losses[:3]}

    def side(self, name: str, network: str, batch: int, turn: int) -> dict:
        folder = self.folder(network, batch)
        key = {"side": name, "network": network, "batch": batch, "round": turn}
        if name in ("run", "step"):
            measure = self.own_run if name == "run" else self.own_step
            return self.runs.once(key | {"build": self.runs.build}, lambda: measure(folder))
        return self.runs.peer(name, [network, folder, "--batch", batch, "--seconds", self.options.seconds], turn, PEER)

    def cell(self, network: str, batch: int, sides: tuple[str, ...]) -> dict:
        """side -> median milliseconds; of PyTorch's modes the second runs once."""
        found: dict[str, list] = {}
        for turn in range(self.options.rounds):
            for name in sides:
                if name == "train-compile" and turn > 0:
                    continue
                record = self.side(name, network, batch, turn)
                if "error" in record:
                    print(f"{network}, batch {batch}, {name}: {record['error']}", file=sys.stderr)
                    continue
                found.setdefault(name, []).append(record)
        return {name: {"ms": statistics.median(record["ms"] for record in records),
                       "memory_mb": records[-1].get("memory_mb"), "losses": records[-1].get("losses")}
                for name, records in found.items()}


def page(title: str, cells: dict, own: str, peers: dict) -> str:
    """A table; a ratio is the fastest peer's time by Linnet's. Below it, where first losses differ."""
    rows, ratios = [], []
    for network, cell in cells.items():
        times = [cell[name]["ms"] if name in cell else None for name in (*peers, own)]
        best = min((value for value in times[:-1] if value), default=None)
        if best and times[-1]:
            ratios.append((best / times[-1], network))
        rows.append([network, *(show(value, 2) for value in times), show(best / times[-1], 2) if best and times[-1] else "-"])
    head = ["", *peers.values(), "Linnet", "ratio"]
    mean = ""
    if ratios:
        least = min(ratios)
        mean = f"\nMean of {len(ratios)}: {statistics.mean(value for value, _ in ratios):.2f}; least {least[0]:.2f} ({least[1]}).\n"
    mean += "".join(f"\n{network}: the first losses are {', '.join(map(str, losses))}.\n"
                    for network, cell in cells.items()
                    if (losses := [found["losses"][0] for found in cell.values() if found["losses"]])
                    and max(losses) - min(losses) > LOSSES_APART * abs(losses[0]))
    return f"## {title}\n\nMilliseconds.\n\n" + study.table(head, rows) + mean + "\n"


def main() -> None:
    parser = study.parser("networks", __doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: " + ", ".join(NETWORKS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--train", type=int, default=8)
    parser.add_argument("--eager-only", action="store_true", help="without compiling PyTorch's step, a minute each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    runs = study.Study("networks_table", options)
    networks = Networks(runs, options)
    text, whole = "", {}
    plans = [(f"A run, batch {batch}", batch, "run", {"ort": "ONNX Runtime"})
             for batch in map(int, options.batches.split(",")) if batch]
    if options.train:
        plans.append((f"A training step, batch {options.train}", options.train, "step",
                      {"train-eager": "PyTorch"} | ({} if options.eager_only else {"train-compile": "PyTorch compiled"})))
    for title, batch, own, peers in plans:
        cells = {name: networks.cell(name, batch, (own, *peers)) for name in options.networks or NETWORKS}
        whole[title] = cells
        text += page(title, cells, own, peers)
        print(text.rsplit("## ", 1)[-1], flush=True)
    runs.write("Networks beside ONNX Runtime and PyTorch", text, {"cells": whole})


main()

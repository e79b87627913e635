#!/usr/bin/env python3
"""Predicted and measured step of two ranks with one thread each, and the simulator's table for one to eight ranks.

    ./dev bench prediction [--rounds 3] [--steps 10] [--rate 400mbit]... [WORKLOAD...]

The prediction is `linnet plan --network NETWORK`, where `linnet bench network --ranks 2` has
measured NETWORK. In each round network, prediction and training follow each other. First the two ranks exchange
messages within this machine. Then, for each --rate, they are in two network namespaces that stand for two machines, and
a token bucket (tc qdisc tbf) slows the link between them; that needs root, iproute2 and mpirun.
Results: bench/results/prediction_table.md and .json.
"""

import contextlib
import json
import random
import sys
import tempfile
from pathlib import Path

import rank_runs
import study
from study import median, show

sys.path.insert(0, str(study.ROOT / "tools"))

import two_machines  # noqa: E402

WORKLOADS = {
    "r-256": ("reference", ["max_seq_len=256"]),
    "gpt-6l": ("mini-gpt", ["tokenizer=char", "d_model=384", "num_heads=6", "d_ff=1536", "max_seq_len=256",
                            "context=256", "dropout=0", "precision=fp32", "sample_length=0"]),
}
# Of GPT-2 on ranks that each compute 2 x 1024 tokens.
TABLE = ["gpt2-124m", "--set", "accumulate_steps=1", "--ranks", "1,2,4,8", "--batch-per-rank", "--network",
         "10Gbit/s,50us", "--speed", "500GFLOP/s,20GB/s"]
TEXTBOOK = {2: 0.949, 4: 0.902, 8: 0.855}


def made_text(path: Path) -> Path:
    """Random characters of as many kinds as Shakespeare's plays have."""
    letters = [chr(code) for code in range(ord("0"), ord("0") + 64)]
    numbers = random.Random(1)
    path.write_text("".join("".join(numbers.choices(letters, k=99)) + "\n" for _ in range(600)))
    return path


def answer(runs, arguments: list, prefix: list[str] = ()) -> dict:
    done, _, _ = runs.run([*arguments, "--json"], threads=False, prefix=prefix)
    return json.loads(done.stdout.splitlines()[-1])


def once(runs, workload: str, text: Path, prefix: list[str]) -> dict:
    """One round."""
    preset, settings = WORKLOADS[workload]
    data = ["--data", text] if preset != "reference" else []
    arguments = [preset, *data, *rank_runs.with_settings(settings), "--ranks", 2, "--threads", 1]
    network = answer(runs, ["bench", "network", "--ranks", 2, "--threads", 1], prefix)["network"]
    plan = answer(runs, ["plan", *arguments, "--network", network])["rows"][0]
    measured = rank_runs.steps(runs, arguments, runs.options.steps, prefix)["seconds"]
    return {"network": network, "predicted": plan["step_seconds"], "computing": plan["compute_seconds"],
            "measured": measured, "ratio": plan["step_seconds"] / measured}


def compare(runs, where: str, workloads: list[str], text: Path, prefix: list[str]) -> list[dict]:
    found = []
    for workload in workloads:
        records = []
        for turn in range(runs.options.rounds):
            key = {"where": where, "workload": workload, "round": turn, "steps": runs.options.steps,
                   "build": runs.build}
            records.append(runs.once(key, lambda: once(runs, workload, text, prefix)))
        found.append({"where": where, "workload": workload, "records": records})
    return found


def row(entry: dict) -> list[str]:
    records = entry["records"]
    ratios = [record["ratio"] for record in records]
    return [entry["workload"], entry["where"], records[-1]["network"].replace(",", ", "),
            *(show(1e3 * median(records, field)) for field in ("computing", "predicted", "measured")),
            f"{study.statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]


def simulated(runs) -> tuple[str, list[dict]]:
    rows = answer(runs, ["plan", *TABLE])["rows"]
    lines = [[str(each["ranks"]), show(each["step_seconds"], 2), show(each["speedup"], 2),
              f"{100 * each['efficiency']:.1f}%", f"{100 * TEXTBOOK[each['ranks']]:.1f}%" if each["ranks"] > 1 else ""]
             for each in rows]
    return study.table(["ranks", "step, s", "speed", "efficiency", "textbook"], lines), rows


def main():
    parser = study.parser("prediction", __doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {', '.join(WORKLOADS)}")
    parser.add_argument("--rate", dest="rates", action="append", help="of the token bucket, as tc writes it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    options.linnet_only = True
    runs = study.Study("prediction_table", options)
    workloads = options.workloads or list(WORKLOADS)
    if unknown := [each for each in workloads if each not in WORKLOADS]:
        sys.exit(f"there is no workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    problem = two_machines.missing(slowed=True)
    if problem:
        print(f"within this machine alone: {problem}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        text = made_text(folder / "text.txt")
        entries = compare(runs, "one machine", workloads, text, [])
        for rate in [] if problem else options.rates or ["1gbit", "400mbit"]:
            with two_machines.TwoMachines(folder) as machines:
                machines.slow(rate)
                entries += compare(runs, f"two namespaces, {rate}", workloads, text, machines.inside())
    table, rows = simulated(runs)
    about = (f"Two ranks of one thread each; milliseconds a step, medians of {options.rounds} rounds, and in "
             "parentheses the least and the largest ratio of a round. The prediction estimates node times from the "
             "machine's peak and bandwidth, and knows the network, all measured just before.")
    head = ["workload", "ranks in", "network", "computing", "predicted", "measured", "predicted / measured"]
    text = (about + "\n\n" + study.table(head, [row(each) for each in entries]) +
            "\n## One to eight ranks, simulated\n\n`linnet plan " + " ".join(TABLE) + "`, beside the efficiency that a "
            "textbook tells of its own cluster.\n\n" + table)
    runs.write("Predicted and measured steps of two ranks", text, {"compared": entries, "simulated": rows})


main()

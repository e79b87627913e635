#!/usr/bin/env python3
"""Memory and time of a training step when less is kept for the backward pass, beside PyTorch's two ways to do that.

    bench/budget_curve.py [WORKLOAD...] [--precision fp32] [--rounds 2] [--seconds 3]

For each workload, what the plan without recomputation keeps for the backward pass is 100%. For 75, 50, 35 and 25% of
it the largest --memory that keeps no more is found by planning alone; then every budget is measured, in turns, each in
a process of its own. PyTorch: checkpointing of every block, and the compiler's activation memory budget. Results: bench/results/budget_curve.md and .json.
"""

import sys

import study
from study import median, show

WORKLOADS = ("gpt2-124m", "bert-base", "gpt-6l", "r-384")
SHARES = (100, 75, 50, 35, 25)
PEERS = {"eager": ["--mode", "eager"], "eager, checkpoint": ["--mode", "eager", "--checkpoint"],
         "compile": ["--mode", "compile"],
         **{f"compile, budget {share / 100:g}": ["--mode", "compile", "--activation-budget", share / 100]
            for share in (50, 25)}}
PRECISION_OF_SEARCH = 1e-3  # of the plan's bytes


def plan(runs, workload: str, precision: str, memory: int | None = None) -> dict:
    limit = ["--memory", memory] if memory else []
    return runs.bench(workload, ["--plan", "--precision", precision, *limit])


def budgets(runs, workload: str, precision: str) -> dict[int, dict]:
    """For each share: the largest memory that keeps no more, and what is planned with it. Where the least memory that a
    step can take keeps more than that, it stands for the share."""
    whole = plan(runs, workload, precision)
    if "error" in whole:
        sys.exit(f"{workload}: {whole['error']}")
    refused = plan(runs, workload, precision, 1)
    least = study.least_bytes(refused.get("error", ""))
    if not least:
        sys.exit(f"{workload}: no least memory was told: {refused}")
    least += 1 << 20  # what the program itself holds differs a little between processes
    at_least = plan(runs, workload, precision, least)
    found = {100: {"budget_mb": None, "plan": whole}}
    for share in SHARES[1:]:
        most = whole["saved_mb"] * share / 100
        low, high = least, int((whole["predicted_mb"] + at_least["program_mb"]) * 1e6)
        best = (least, at_least)
        while at_least["saved_mb"] <= most and high - low > PRECISION_OF_SEARCH * whole["predicted_mb"] * 1e6:
            middle = (low + high) // 2
            planned = plan(runs, workload, precision, middle)
            if "error" not in planned and planned["saved_mb"] <= most:
                low, best = middle, (middle, planned)
            else:
                high = middle
        found[share] = {"budget_mb": best[0] / 1e6, "plan": best[1]}
    return found


def measure(runs, workload: str, precision: str, options) -> dict:
    asked = budgets(runs, workload, precision)
    shared = ["--precision", precision, "--seconds", options.seconds]
    ours = {share: [] for share in asked}
    peers = {name: [] for name in PEERS}
    for turn in range(options.rounds):
        for share, records in ours.items():
            budget = asked[share]["budget_mb"]
            limit = ["--memory", round(budget * 1e6)] if budget else []
            records.append(runs.bench(workload, ["--no-parts", *shared, *limit], turn))
        for name, arguments in PEERS.items():
            if not any("error" in record for record in peers[name]):
                peers[name].append(runs.peer(workload, [*shared, *arguments], turn))
    return {"workload": workload, "precision": precision, "linnet": rows_of(asked, ours), "pytorch": peer_rows(peers)}


def rows_of(asked: dict, ours: dict) -> list[dict]:
    rows = []
    for share in asked:
        good = [record for record in ours[share] if "error" not in record]
        plain = [record for record in ours[100] if "error" not in record]
        saved, whole = asked[share]["plan"]["saved_mb"], asked[100]["plan"]["saved_mb"]
        predicted = median([{"mb": r["predicted_mb"] + r["program_mb"]} for r in good], "mb")
        # Of one round each: what else the machine does falls on both.
        ratio = lambda field: median([{"r": mine[field] / base[field]} for mine, base in zip(good, plain)], "r")
        rows.append({
            "share": share, "reached": 100 * saved <= share * whole, "saved_mb": saved, "saved_share": saved / whole,
            "budget_mb": asked[share]["budget_mb"], "predicted_mb": predicted, "measured_mb": median(good, "memory_mb"),
            "processor_ms": median(good, "processor_ms"), "processor_ratio": ratio("processor_ms"),
            "speed": median(good, "median"), "time_ratio": 1 / ratio("median") if ratio("median") else None,
            "recomputation": asked[share]["plan"]["recomputation"],
            "planning_seconds": asked[share]["plan"]["planning_seconds"],
            "errors": [record["error"] for record in ours[share] if "error" in record],
        })
    return rows


def peer_rows(peers: dict) -> list[dict]:
    rows = []
    for name, records in peers.items():
        good = [record for record in records if "error" not in record]
        base = [record for record in peers[name.partition(",")[0]] if "error" not in record]
        pairs = [{"p": mine["processor_ms"] / other["processor_ms"], "t": other["median"] / mine["median"]}
                 for mine, other in zip(good, base)]
        rows.append({"mode": name, "memory_mb": median(good, "memory_mb"), "processor_ms": median(good, "processor_ms"),
                     "processor_ratio": median(pairs, "p"), "time_ratio": median(pairs, "t"), "speed": median(good, "median"),
                     "errors": [record["error"] for record in records if "error" in record]})
    return rows


def page(found: dict) -> str:
    head = ["kept, asked", "kept, MB", "budget, MB", "predicted, MB", "measured, MB", "processor ms a step",
            "processor time", "time", "what it does", "planned in"]
    rows = []
    for row in found["linnet"]:
        error = row["measured_mb"] and f" ({row['predicted_mb'] / row['measured_mb'] - 1:+.1%} predicted)"
        asked = f"{row['share']}%" if row["reached"] else f"{row['share']}%: the least memory keeps more"
        rows.append([asked, f"{row['saved_mb']:,.0f} ({row['saved_share']:.0%})", show(row["budget_mb"]),
                     show(row["predicted_mb"]), show(row["measured_mb"]) + (error or ""), show(row["processor_ms"]),
                     show(row["processor_ratio"], 2), show(row["time_ratio"], 2),
                     row["recomputation"] or "keeps all", f"{row['planning_seconds']:.2f} s"])
    text = f"## {found['workload']}, {found['precision']}\n\n" + study.table(head, rows) + "\n"
    if any(row["memory_mb"] for row in found["pytorch"]):
        text += study.table(
            ["PyTorch", "MB", "processor ms a step", "processor time", "time"],
            [[row["mode"], show(row["memory_mb"]), show(row["processor_ms"]), show(row["processor_ratio"], 2),
              show(row["time_ratio"], 2)] for row in found["pytorch"]]) + "\n"
        text += "".join(f"{row['mode']}: {row['errors'][0]}\n\n" for row in found["pytorch"] if row["errors"])
    return text


def main():
    parser = study.parser("budget-curve", __doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {', '.join(WORKLOADS)}")
    parser.add_argument("--precision", action="append", choices=("fp32", "bf16"), help="may be repeated; default: fp32")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="timed in each process, 3 steps at least")
    options = parser.parse_args()
    runs = study.Study("budget_curve", options)
    tables = []
    for workload in options.workloads or WORKLOADS:
        for precision in options.precision or ["fp32"]:
            tables.append(measure(runs, workload, precision, options))
            runs.write(
                "What a smaller memory budget costs",
                "100% is what the plan without recomputation keeps for the backward pass. Times are relative to the first "
                "row of the table, of the same round; predicted is the planned memory and what the process held when it "
                "had planned. PyTorch's times are relative to the same mode without.\n\n" + "".join(map(page, tables)),
                {"tables": tables})


main()

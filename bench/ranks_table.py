#!/usr/bin/env python3
"""Two processes of one thread beside one process of two threads, and beside PyTorch's DistributedDataParallel (gloo).

    bench/ranks_table.py --data FILE.txt [--rounds 2] [--steps 8] [WORKLOAD...]

FILE.txt is what GPT-2 trains on; R trains on random pairs. Each round measures every way once, in turns. A step's time
is the median of the steps' after the first three. Results: bench/results/ranks_table.md and .json.
"""

from pathlib import Path

import rank_runs
import study
from study import median, show

DDP = Path(__file__).parent / "peers" / "ddp.py"
WORKLOADS = {
    "gpt2-124m": ("gpt2-124m", ["context=1024", "batch_size=2", "accumulate_steps=1", "sample_length=0"], 2 * 1024),
    "r-256": ("reference", ["max_seq_len=256"], 16),
}
WAYS = {"1 process, 2 threads": ["--threads", "2"], "2 ranks, 1 thread each": ["--ranks", "2", "--threads", "1"]}


def train(runs, workload: str, arguments: list[str], turn: int) -> dict:
    preset, settings, units = WORKLOADS[workload]

    def measure() -> dict:
        data = ["--data", runs.options.data] if preset != "reference" else []
        found = rank_runs.steps(runs, [preset, *data, *rank_runs.with_settings(settings), *arguments],
                                runs.options.steps)
        return found | {"median": units / found["seconds"]}

    key = {"side": "linnet", "workload": workload, "arguments": arguments, "round": turn, "build": runs.build,
           "steps": runs.options.steps}
    return runs.once(key, measure)


def ddp(runs, workload: str, mode: str, turn: int) -> dict:
    if not runs.with_peer:
        return {"error": "not run"}
    command = [runs.options.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(DDP), workload,
               "--mode", mode, "--steps", str(runs.options.steps)]
    key = {"side": "ddp", "workload": workload, "mode": mode, "round": turn, "steps": runs.options.steps}
    return runs.once(key, lambda: study.compare.execute(command, study.common.environment(1), runs.pinned))


def main():
    parser = study.parser("ranks", __doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {', '.join(WORKLOADS)}")
    parser.add_argument("--data", required=True, help="a text")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    runs = study.Study("ranks_table", options)
    text, whole = "", []
    for workload in options.workloads or WORKLOADS:
        found = {name: [] for name in [*WAYS, "DDP eager", "DDP compile"]}
        for turn in range(options.rounds):
            for name, arguments in WAYS.items():
                found[name].append(train(runs, workload, arguments, turn))
            for mode in ("eager", "compile"):
                found[f"DDP {mode}"].append(ddp(runs, workload, mode, turn))
        good = {name: [record for record in records if "error" not in record] for name, records in found.items()}
        speed = {name: median(records, "median") for name, records in good.items() if records}
        memory = {name: median(records, "memory_mb") for name, records in good.items() if records}
        alone, ranks = (speed[name] for name in WAYS)
        unit = "samples/s" if workload.startswith("r-") else "tokens/s"
        text += f"## {workload}, fp32\n\n" + study.table(
            ["", unit, "beside one process", "MB of a process"],
            [[name, show(speed[name], 1), show(speed[name] / alone, 2), show(memory[name])] for name in speed]) + "\n"
        best = max((name for name in speed if name.startswith("DDP")), key=speed.get, default=None)
        if best:
            text += (f"Two ranks are {ranks / speed[best]:.2f} times as fast as {best}, in "
                     f"{memory['2 ranks, 1 thread each'] / memory[best]:.2f} of its memory.\n\n")
        whole.append({"workload": workload, "records": found})
        runs.write("Two processes of one thread", "A step's batch is the same in each row; with two processes each has "
                   "a half of it. Memory of DDP is what its process has beyond the imported library.\n\n" + text,
                   {"tables": whole})


main()

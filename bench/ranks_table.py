#!/usr/bin/env python3
"""Two processes of one thread beside one process of two threads, and beside PyTorch's DistributedDataParallel (gloo).

    bench/ranks_table.py --data FILE.txt [--rounds 2] [--steps 8] [WORKLOAD...]

FILE.txt is what GPT-2 trains on; R trains on random pairs. Each round measures every way once, in turns. A step's time
is the median of the steps' after the first three. Then the sum of all gradients in the order that gives equal bits is
measured beside MPI_Allreduce of as many floats, without the backward pass that it overlaps in training. Results:
bench/results/ranks_table.md and .json.
"""

import os
import subprocess
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


def rank_sum(runs, floats: int, turn: int, more: list[str]) -> dict:
    """Seconds that two ranks take to have the sum of so many floats: Linnet's, or with --mpi MPI's own."""
    build = study.ROOT / "build" / "bench"
    program = build / "bench" / "rank_sum"

    def measure() -> dict:
        if not program.exists():
            return {"error": f"{program} is missing: `./dev bench ranks` builds it where MPI is installed"}
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        found = subprocess.run(["mpirun", *root, "-n", "2", str(program), str(floats), *more], text=True,
                               capture_output=True, env=study.common.plain_environment() |
                               {"LINNET_MPI_MODULE": str(build / "bin" / "liblinnet_mpi.so")})
        return {"seconds": float(found.stdout) / 1e3} if found.returncode == 0 else {"error": found.stderr.strip()}

    return runs.once({"side": "sum", "floats": floats, "arguments": more, "round": turn, "build": runs.build}, measure)


def cost_of_order(runs, floats: int, step_seconds: float, rounds: int) -> tuple[str, list]:
    """A line on what the fixed order costs of a step, and what was measured."""
    turns = [(rank_sum(runs, floats, turn, []), rank_sum(runs, floats, turn, ["--mpi"])) for turn in range(rounds)]
    own, mpi = (median([record for record in side if "error" not in record], "seconds") for side in zip(*turns))
    if own is None or mpi is None:
        return "", turns
    return (f"The sum of {floats:,} gradients in an order that does not depend on the ranks takes {1e3 * own:.0f} ms, "
            f"MPI_Allreduce {1e3 * mpi:.0f} ms: {100 * (own - mpi) / step_seconds:+.1f}% of a step of "
            f"{1e3 * step_seconds:.0f} ms.\n\n"), turns


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
        line, sums = cost_of_order(runs, good["2 ranks, 1 thread each"][0]["parameters"],
                                   median(good["2 ranks, 1 thread each"], "seconds"), options.rounds)
        text += line
        whole.append({"workload": workload, "records": found, "sums": sums})
        runs.write("Two processes of one thread", "A step's batch is the same in each row; with two processes each has "
                   "a half of it. Memory of DDP is what its process has beyond the imported library.\n\n" + text,
                   {"tables": whole})


main()

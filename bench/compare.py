"""Sets Linnet's training steps beside PyTorch's on this machine's CPU: `./dev bench cpu` calls it, see bench/README.md.

Every figure comes from a process of its own. A round runs Linnet, then each of PyTorch's modes, then JAX and TensorFlow
where they are installed; so what else the machine does falls on all. Raw lines go to build/peers/runs.jsonl, the tables
to bench/results/cpu.json and cpu.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import common  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402

RUNS = common.HOME / "runs.jsonl"
LINNET = ROOT / "build" / "release" / "bin" / "linnet"
PYTHON = common.HOME / "bin" / "python"
MODES = ("eager", "compile", "tuned")
# Peers other than PyTorch, each with a script of its own (bench/peers/with_*.py): what pip has to install for it.
OTHERS = {"jax": "jax optax safetensors", "tensorflow": "tensorflow-cpu safetensors"}
OTHERS_WORKLOADS = ("r-64", "cnn-128", "resnet20", "gpt-6l")
TIMEOUT = 1800  # seconds for one process

# Workload -> seconds of PyTorch's step on two cores, about, in fp32; for the estimate and nothing else.
STEP_SECONDS = {"r-64": 0.1, "r-128": 0.2, "r-256": 0.5, "r-384": 0.9, "cnn-128": 0.01, "cnn-1024": 0.04,
                "resnet20": 0.3, "resnet18": 0.5, "gpt-6l": 0.5, "gpt2-124m": 5.0, "bert-base": 5.0}
FAR_BEHIND = 0.8  # of the best mode's speed; a mode below that in its first round is not run again


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench cpu", description="Linnet's training steps beside PyTorch's")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STEP_SECONDS)}; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="timed in each process, 3 steps at least")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="default: both, of cnn-* fp32 only")
    parser.add_argument("--mode", choices=(*MODES, *OTHERS), action="append",
                        help="of PyTorch, or another peer; may be repeated; default: all")
    parser.add_argument("--all-rounds", action="store_true", help="of modes, too, that are far behind in the first")
    parser.add_argument("--dropout", type=float, help="instead of 0.1, in r-* and bert-base; rows of their own")
    parser.add_argument("--isa", choices=("avx2",), help="both sides held to these instructions; rows of their own, fp32 only")
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted table has already measured")
    parser.add_argument("--linnet", type=Path, default=LINNET, help="the program")
    parser.add_argument("--python", type=Path, default=PYTHON, help="the Python that has PyTorch")
    parser.add_argument("--other-python", type=Path, metavar="PYTHON", help="the Python that has JAX and TensorFlow")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--peer-only", action="store_true", help="a look: the results stay as they are")
    only.add_argument("--linnet-only", action="store_true", help="the same")
    options = parser.parse_args()
    if options.isa and options.precision == "bf16":
        parser.error(f"--isa {options.isa} has no bf16 rows: those instructions multiply nothing in bf16")
    for name in options.names:
        if name not in STEP_SECONDS:
            parser.error(f"there is no workload {name}; there are {', '.join(STEP_SECONDS)}")
    if options.rounds < 1 or options.threads < 1 or options.seconds < 0:
        parser.error("--rounds and --threads are 1 or more, --seconds is 0 or more")
    options.modes = [] if options.linnet_only else options.mode or [*MODES, *OTHERS]
    possible = [] if options.isa else [name for name in options.names or STEP_SECONDS if name in OTHERS_WORKLOADS]
    options.others = [peer for peer in OTHERS
                      if peer in options.modes and possible and is_installed(peer, options.other_python)]
    options.modes = [mode for mode in options.modes if mode in MODES]
    return options


def is_installed(peer: str, python: Path | None) -> bool:
    """Whether this Python has what the peer needs; otherwise prints a line that says what to install."""
    packages = OTHERS[peer]
    missing = f"{peer}: left out; it needs --other-python PYTHON, a Python with packages of pip: {packages}"
    if python:
        modules = packages.replace("-cpu", "").split()
        test = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {modules})))"
        try:
            if subprocess.run([str(python), "-c", test], capture_output=True).returncode == 0:
                return True
            missing = f"{peer}: left out; install it by `{python} -m pip install {packages}`"
        except OSError as error:
            missing = f"{peer}: left out; {error}"
    print(missing, file=sys.stderr)
    return False


class Row:
    """A workload in a precision: what is run for it, and what came of that."""

    def __init__(self, name: str, precision: str, options):
        self.name, self.precision, self.options = name, precision, options
        varied = options.dropout is not None and not name.startswith(("cnn", "resnet", "gpt"))
        self.dropout = options.dropout if varied else None
        self.label = name if not varied else f"{name}-nodropout" if options.dropout == 0 else f"{name}-p{self.dropout:g}"
        self.label += f"-{options.isa}" if options.isa else ""
        self.sides = [] if options.peer_only else ["linnet"]
        self.sides += options.modes
        if name in OTHERS_WORKLOADS and not options.isa:
            self.sides += options.others
        self.records: list[dict] = []  # {"side", "round", ...}; with "error" where it failed

    def key(self) -> dict:
        options = self.options
        return {"row": self.label, "precision": self.precision, "threads": options.threads, "seconds": options.seconds}

    def of(self, side: str) -> list[dict]:
        return [record for record in self.records if record["side"] == side]

    def pytorch(self) -> list[dict]:
        """What PyTorch's table is made of: the records of Linnet and of PyTorch's modes."""
        return [record for record in self.records if record["side"] not in OTHERS]

    def wanted(self, side: str, turn: int) -> bool:
        """Whether this side still has to run in this round."""
        # How fast the other peers are does not decide which of PyTorch's modes run again.
        judged = self.records if side in OTHERS else self.pytorch()
        return rounds.still_wanted(judged, side, turn, FAR_BEHIND, self.options.all_rounds or side in OTHERS)

    def command(self, side: str, data: Path | None) -> list[str]:
        options = self.options
        shared = ["--precision", self.precision, "--threads", str(options.threads), "--seconds", str(options.seconds)]
        if self.dropout is not None:
            shared += ["--dropout", str(self.dropout)]
        if side == "linnet":
            held = ["--isa", options.isa] if options.isa else []
            return [str(options.linnet), "bench", self.name, "--json", *shared, *held]
        given = ["--data", str(data)] if data else []
        if side in OTHERS:
            script = ROOT / "bench" / "peers" / f"with_{side}.py"
            return [str(options.other_python), str(script), self.name, *shared, *given]
        return [str(options.python), str(ROOT / "bench" / "peers" / "peer.py"), self.name, "--mode", side, *shared, *given]

    def cache(self, side: str) -> Path:
        """The compiler's cache for this peer: absent before its first run, whose first step is the cold one."""
        version = (common.HOME / "torch-version").read_text().strip() if (common.HOME / "torch-version").exists() else "-"
        return common.HOME / "inductor" / version / f"{self.label}-{self.precision}-{side}-{self.options.threads}"


def cores(count: int) -> set[int]:
    """Processors to pin to: those of different cores first."""
    free = sorted(os.sched_getaffinity(0))
    first, second, seen = [], [], set()
    for cpu in free:
        try:
            core = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            core = str(cpu)
        (second if core in seen else first).append(cpu)
        seen.add(core)
    return set((first + second)[:count])


def execute(command: list[str], environment: dict[str, str], pinned: set[int]) -> dict:
    """Runs one process -> its line of JSON, or {"error": one line}."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT,
                              preexec_fn=lambda: os.sched_setaffinity(0, pinned))
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {TIMEOUT} s"}
    except OSError as error:
        return {"error": str(error)}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reasons = [line for line in said if "Error" in line or "error:" in line]
    return {"error": ((reasons or said or [f"exit code {done.returncode}"])[-1])[:200]}


def run_side(row: Row, side: str, data: Path | None, pinned: set[int]) -> dict:
    threads = row.options.threads
    if side == "linnet" or side in OTHERS:
        return execute(row.command(side, data), common.plain_environment(), pinned)
    if side != "eager" and not shutil.which("g++"):
        return {"error": "torch.compile needs g++, which is missing"}
    cache = row.cache(side)
    cold = not cache.exists()
    environment = common.environment(threads, isa=row.options.isa) | {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    found = execute(row.command(side, data), environment, pinned)
    if cold and "error" in found:
        shutil.rmtree(cache, ignore_errors=True)
    elif side != "eager":
        cache.mkdir(parents=True, exist_ok=True)
        note = cache / "cold_first_step_seconds"
        if cold:
            note.write_text(str(found["first_step_seconds"]))
        found["cold_first_step_seconds"] = float(note.read_text()) if note.exists() else None
    return found


def write_data(linnet: Path, name: str, environment: dict[str, str]) -> Path | None:
    """Linnet's batches for the peer; None, and the peer makes up its own, where there is no way to have them."""
    path = common.HOME / "data" / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run([str(linnet), "bench", name, "--write-data", str(path)], env=environment,
                              capture_output=True, text=True)
    except OSError as error:
        print(f"{name}: {error}; the peer makes up its own data", file=sys.stderr)
        return None
    if done.returncode == 0:
        return path
    print(f"{name}: {done.stderr.strip() or 'linnet bench failed'}; the peer makes up its own data", file=sys.stderr)
    return None


def measure(row: Row, pinned: set[int]) -> None:
    """All rounds of a row; each record is kept as soon as it is there."""
    if not any(row.wanted(side, turn) for turn in range(row.options.rounds) for side in row.sides):
        return
    data = None if row.options.linnet_only else write_data(row.options.linnet, row.name, common.plain_environment())
    for turn in range(row.options.rounds):
        for side in row.sides:
            if not row.wanted(side, turn):
                continue
            record = row.key() | {"side": side, "round": turn} | run_side(row, side, data, pinned)
            row.records.append(record)
            with RUNS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            told = record.get("error") or f"{record['median']:.4g} {record['unit']}, {record['memory_mb']:.0f} MB"
            print(f"{row.label} {row.precision} round {turn + 1}/{row.options.rounds} {side}: {told}", flush=True)


def recorded() -> list[dict]:
    try:
        return [json.loads(line) for line in RUNS.read_text().splitlines() if line.endswith("}")]
    except FileNotFoundError:
        return []


def estimate(rows: list[Row]) -> float:
    """Seconds, about: start, warm-up and timed steps of each process, and compilation where none is cached."""
    total = 0.0
    for row in rows:
        step = STEP_SECONDS[row.name] * 2 / row.options.threads
        for side in row.sides:
            process = (15 if side in OTHERS else 4) + 4 * step + max(row.options.seconds, 3 * step)
            runs = row.options.rounds - len(row.of(side))
            total += runs * process + (0 if side in ("linnet", "eager", *OTHERS) or row.cache(side).exists() else 40)
    return total


def main() -> int:
    options = arguments()
    if not options.peer_only and not options.linnet.exists():
        sys.exit(f"{options.linnet} is missing: ./dev build")
    if options.modes and not options.python.exists():
        sys.exit(f"{options.python} is missing: `./dev bench cpu` makes it")
    if options.threads > len(os.sched_getaffinity(0)):
        sys.exit(f"{options.threads} threads, but this process may use {len(os.sched_getaffinity(0))} processors")
    rows = [Row(name, precision, options) for name in STEP_SECONDS if not options.names or name in options.names
            for precision in ("fp32", "bf16") if options.precision in (None, precision)
            if precision == "fp32" or not (name.startswith("cnn") or options.isa)]
    if not options.linnet_only:
        rows = [row for row in rows if row.sides not in ([], ["linnet"])]
    if not rows:
        sys.exit("there is nothing to measure")
    common.HOME.mkdir(parents=True, exist_ok=True)
    earlier = recorded()
    if options.resume:
        for row in rows:
            row.records = [record for record in earlier if record | row.key() == record and "error" not in record
                           and record["round"] < options.rounds and record["side"] in row.sides]
    else:
        keys = [row.key() for row in rows]
        kept = [record for record in earlier if not any(record | key == record for key in keys)]
        RUNS.write_text("".join(json.dumps(record) + "\n" for record in kept))
    pinned = cores(options.threads)
    print(f"{len(rows)} rows, about {max(1, round(estimate(rows) / 60))} minutes on processors "
          f"{','.join(map(str, sorted(pinned)))}; Ctrl-C keeps what is there, --resume goes on")

    interrupted = False
    started = time.time()
    for row in rows:
        try:
            measure(row, pinned)
        except KeyboardInterrupt:
            interrupted = True
        except OSError as error:  # a full disk, most likely
            print(f"compare: {error}", file=sys.stderr)
            interrupted = True
        if not options.peer_only and not options.linnet_only:
            report.update(row.label, row.name, row.precision, row.pytorch())
            report.update_others(row.label, row.precision, row.records, OTHERS)
        if interrupted:
            break
    measured = [row for row in rows if row.records]
    if options.modes or options.linnet_only:
        print(report.table([report.row_of(row.label, row.name, row.precision, row.pytorch()) for row in measured]))
    beside = [entry for row in measured for entry in report.others_of(row.label, row.precision, row.records, OTHERS)]
    if beside:
        print("\n" + report.others_table(beside))
    print(f"{(time.time() - started) / 60:.1f} minutes")
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())

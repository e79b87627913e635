"""Sets one of Linnet's training steps on a GPU beside PyTorch's: `./dev gpu bench NAME PRECISION`, see docs/gpu.md.

Every figure comes from a process of its own; a round runs Linnet, then each of PyTorch's modes. Each process leaves a
line in OUT/bench.jsonl as soon as it ends, and a call runs only what is not there yet. The table of all rows goes to
OUT/bench.md. Needs python3 and PyTorch, nothing else.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import common  # noqa: E402
import gpu_floors  # noqa: E402
import nvml  # noqa: E402
import rounds  # noqa: E402

NAMES = ("r-64", "r-128", "r-256", "r-384", "cnn-128", "cnn-1024", "gpt-6l", "gpt2-124m", "gpt2-124m-8", "bert-base",
         "bert-base-32", "lora-135m", "lora-135m-int4")
MODES = ("eager", "compile", "captured", "graph")
FAR_BEHIND = 0.6  # of the best mode's speed; a mode below that in its first round is not run again
PATIENCE = 400  # seconds after which a process counts as one that never ends
NOT_DONE = 75  # exit code: the limit came first; call again


def arguments():
    parser = argparse.ArgumentParser(description="a training step on a GPU, Linnet's and PyTorch's")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="bf16")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="timed in each process")
    parser.add_argument("--mode", choices=MODES, action="append", help="of PyTorch; may be repeated; default: all")
    parser.add_argument("--linnet", type=Path, default=ROOT / "build" / "cuda" / "bin" / "linnet")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--libraries", default="", help="LD_LIBRARY_PATH of linnet alone")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-results")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds that the whole call may take")
    parser.add_argument("--again", action="store_true", help="what failed is run again")
    parser.add_argument("--prepare", action="store_true",
                        help="only has PyTorch compile the row, all modes beside each other: the next call finds its cache")
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    options = parser.parse_args()
    if not options.table and options.name not in NAMES:
        parser.error(f"there is no workload {options.name}; there are {', '.join(NAMES)}")
    if options.rounds < 1 or options.seconds < 0:
        parser.error("--rounds is 1 or more, --seconds is 0 or more")
    return options


class Row:
    """A workload in a precision: what is run for it, and the records of that."""

    def __init__(self, options, build: str, records: list[dict]):
        self.options = options
        self.key = {"workload": options.name, "precision": options.precision, "on": options.device, "build": build}
        self.records = [record for record in records if self.key.items() <= record.items()]
        self.sides = ("linnet", *(options.mode or MODES))

    def of(self, side: str) -> list[dict]:
        return [record for record in self.records if record["side"] == side]

    def wanted(self, side: str, turn: int) -> bool:
        return rounds.still_wanted(self.records, side, turn, FAR_BEHIND)

    def command(self, side: str, data: Path | None) -> list[str]:
        options = self.options
        shared = [options.name, "--device", options.device, "--precision", options.precision,
                  "--seconds", str(options.seconds)]
        if side == "linnet":
            return [str(options.linnet), "bench", *shared, "--json"]
        given = ["--data", str(data)] if data else []
        return [options.python, str(ROOT / "bench" / "peers" / "peer.py"), *shared, "--mode", side, *given]

    def environment(self, side: str) -> dict[str, str]:
        if side == "linnet":
            libraries = {"LD_LIBRARY_PATH": self.options.libraries} if self.options.libraries else {}
            return common.plain_environment() | libraries
        count = len(os.sched_getaffinity(0))
        # One for all modes: what one of them compiled, the next one finds.
        cache = common.HOME / "inductor" / f"{self.options.name}-{self.options.precision}"
        return common.environment(count, self.options.device) | {"TORCHINDUCTOR_CACHE_DIR": str(cache)}


def build_name(linnet: Path) -> str:
    """Of the program and the module: other builds have other rows."""
    whole = hashlib.sha256()
    module = os.environ.get("LINNET_CUDA_MODULE", "")
    for path in (linnet, Path(module) if module else linnet.parent / "liblinnet_cuda.so"):
        whole.update(path.read_bytes() if path.is_file() else b"-")
    return whole.hexdigest()[:12]


def end(process: subprocess.Popen) -> None:
    """Kills a process and those it started, the compiler's workers too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def execute(command: list[str], environment: dict[str, str], seconds: float) -> dict | None:
    """Runs one process -> its line of JSON, {"error": one line}, or None when the time was up. Leaves no process."""
    try:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    except OSError as error:
        return {"error": str(error)}
    try:
        output, said = process.communicate(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return None
    finally:
        end(process)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode == 0 and lines:
        try:
            return json.loads(lines[-1])
        except ValueError:
            return {"error": f"no JSON: {lines[-1][:150]}"}
    said = [line.strip() for line in said.splitlines() if line.strip()]
    reasons = [line for line in said if "Error" in line or "error:" in line]
    return {"error": ((reasons or said or [f"exit code {process.returncode}"])[-1])[:300]}


class PeakMemory:
    """The most that the GPU's memory held while the block ran, beyond what it held before: `mb`, None if unknown."""

    def __init__(self, device: str):
        self.card = nvml.Card(device)

    def __enter__(self):
        self.before = self.peak = self.card.used_mb()
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()
        return self

    def watch(self):
        while not self.over.wait(0.05):
            self.peak = max(self.peak or 0, self.card.used_mb() or 0)

    def __exit__(self, *_):
        self.over.set()
        self.watcher.join()
        self.mb = None if self.before is None else round(self.peak - self.before, 1)


def prepare(row) -> None:
    """Compiles for the modes of PyTorch that do so, at once and within the limit."""
    data, limit, running = write_data(row), time.monotonic() + row.options.limit, []
    for side in row.sides:
        if side not in ("linnet", "eager"):
            threads = max(2, len(os.sched_getaffinity(0)) // 4)
            environment = row.environment(side) | {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
            command = [*row.command(side, data), "--seconds", "0"]
            running.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    for process in running:
        try:
            process.wait(max(limit - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            pass
        end(process)


def read_records(path: Path) -> list[dict]:
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass  # cut short
    return found


def write_records(path: Path, records: list[dict]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text("".join(json.dumps(record) + "\n" for record in records))
    draft.replace(path)


def write_data(row: Row) -> Path | None:
    """Linnet's batches for the peers; None, and they make up their own, where there is no way to have them."""
    path = common.HOME / "data" / f"{row.options.name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run([str(row.options.linnet), "bench", row.options.name, "--write-data", str(path)],
                              env=row.environment("linnet"), capture_output=True, text=True)
        if done.returncode == 0:
            return path
        reason = (done.stderr.strip() or "linnet bench failed").splitlines()[-1]
    except OSError as error:
        reason = str(error)
    print(f"{row.options.name}: {reason}; the peers make up their own data", file=sys.stderr)
    return None


def measure(row: Row, journal: Path) -> bool:
    """Runs what is still to run, within the limit -> whether all of it is there."""
    options, end = row.options, time.monotonic() + row.options.limit
    todo = [(turn, side) for turn in range(options.rounds) for side in row.sides]
    if not any(row.wanted(side, turn) for turn, side in todo):
        return True
    machine = nvml.describe(options.device) | {"idle_watts": nvml.idle_watts(options.device)}
    data = write_data(row)
    # A peer that has not run yet compiles first, which can take long; after that a process is this long, about.
    for turn, side in todo:
        if not row.wanted(side, turn):
            continue
        left, earlier = end - time.monotonic(), [record["took"] for record in row.of(side)]
        if left < (1.2 * max(earlier) if earlier else 3 + options.seconds):
            return False
        start = time.monotonic()
        with PeakMemory(options.device) as peak:
            found = execute(row.command(side, data), row.environment(side), left)
        took = round(time.monotonic() - start, 1)
        if found is None:
            if left < PATIENCE:  # compiling takes minutes, and goes on from the compiler's cache in the next call
                return False
            found = {"error": f"not done after {left:.0f} s"}
        # Linnet's: what cuBLASLt computed each product with. Hundreds of lines, so not in the row.
        algorithms = found.pop("algorithms", None)
        if algorithms:
            listed = "".join(f"{what}: {how}\n" for what, how in algorithms.items())
            (journal.parent / f"algorithms-{options.name}-{options.precision}.txt").write_text(listed)
        record = found | row.key | {"side": side, "process_mb": peak.mb, "round": turn, "took": took, "gpu": machine,
                                    "date": time.strftime("%Y-%m-%d %H:%M")}
        row.records.append(record)
        with journal.open("a") as file:
            file.write(json.dumps(record) + "\n")
        told = record.get("error") or f"{record['median']:.5g} {record['unit']}, {record.get('memory_mb', 0):.0f} MB"
        print(f"{options.name} {options.precision} round {turn + 1}/{options.rounds} {side}: {told}", flush=True)
    return True


def number(value, form: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:{form}}" if form else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def middle(records: list[dict], field: str):
    values = [record[field] for record in records if record.get(field) is not None and record[field] >= 0]  # < 0: unknown
    return statistics.median(values) if values else None


def cell(records: list[dict], bold: bool = False) -> str:
    """Median of the processes' medians, lowest and highest behind it."""
    good = [record["median"] for record in records if "error" not in record]
    if not good:
        return "failed" if records else "-"
    whole = number(statistics.median(good))
    return (f"**{whole}**" if bold else whole) + (f" ({number(min(good))}-{number(max(good))})" if len(good) > 1 else "")


def line(records: list[dict]) -> list[str]:
    sides = {side: [record for record in records if record["side"] == side] for side in ("linnet", *MODES)}
    speed = {side: middle(runs, "median") for side, runs in sides.items()}
    best = max((mode for mode in MODES if speed[mode]), key=lambda mode: speed[mode], default=None)
    ours, theirs = sides["linnet"], sides.get(best, [])
    one = next((record for record in records if "error" not in record), records[0])

    def ratio(mode):
        return number(speed["linnet"] / speed[mode], ".2f") if mode and speed["linnet"] and speed.get(mode) else "-"

    per_step = middle([record for runs in sides.values() for record in runs], "per_step")
    step = per_step / speed["linnet"] * 1e3 if per_step and speed["linnet"] else None
    floor = gpu_floors.floor(one["workload"], one["precision"], one["gpu"].get("name", ""))
    return [one["workload"], f"{one['precision']}, {one.get('unit', '-')}", cell(ours),
            *(cell(sides[mode], mode == best) for mode in MODES), ratio("eager"), ratio(best),
            f"{number(step, '.3f')} / {number(floor.get('compute_ms'), '.3f')} / {number(floor.get('memory_ms'), '.3f')}",
            f"{number(middle(ours, 'memory_mb'))} / {number(middle(theirs, 'memory_mb'))}",
            f"{number(middle(ours, 'process_mb'))} / {number(middle(theirs, 'process_mb'))}",
            f"{number(middle(ours, 'joules_per_unit'), '.3g')} / {number(middle(theirs, 'joules_per_unit'), '.3g')}"]


def notes(records: list[dict]) -> list[str]:
    """What failed, and what says that the two sides may not have trained the same."""
    name = f"{records[0]['workload']} {records[0]['precision']}"
    found = [f"{name}, {record['side']}: {record['error']}" for record in records if "error" in record]
    good = [record for record in records if "error" not in record]
    ours = next((record for record in good if record["side"] == "linnet"), None)
    theirs = next((record for record in good if record["side"] != "linnet"), None)
    if ours and theirs:
        for field, slack in (("parameters", 0), ("first_loss", 0.1)):
            left, right = ours.get(field), theirs.get(field)
            if left is not None and right is not None and abs(left - right) > slack * abs(right):
                found.append(f"{name}: {field.replace('_', ' ')} {left:g} against {right:g}")
    return list(dict.fromkeys(found))


def page(records: list[dict]) -> str:
    """The newest build's row of each workload and precision, as Markdown."""
    rows: dict[tuple, list[dict]] = {}
    for record in records:
        rows.setdefault((NAMES.index(record["workload"]), record["precision"], record["on"]), []).append(record)
    head = ["workload", "", "Linnet", *(f"PyTorch {mode}" for mode in MODES), "ratio to eager", "to the best",
            "ms a step / floor of products / of memory", "MB of tensors, Linnet / PyTorch's best",
            "MB of the process, by NVML", "J a unit, the same"]
    lines, below, machines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)], [], []
    for _, group in sorted(rows.items(), key=lambda item: item[0]):
        group = [record for record in group if record["build"] == group[-1]["build"]]
        lines.append("| " + " | ".join(line(group)) + " |")
        below += notes(group)
        for record in group:
            gpu = {name: value for name, value in record["gpu"].items() if name not in ("temperature.gpu", "idle_watts")}
            text = ", ".join(f"{name} {value}" for name, value in gpu.items() if value) or "nvidia-smi says nothing"
            machines.append(f"{record['on']}: {text}")
            if "version" in record:
                machines.append(f"PyTorch {record['version']}, cuDNN {record.get('cudnn', '-')}")
    kept = list(dict.fromkeys(machines))
    return "\n".join(["# Training steps on a GPU, beside PyTorch", "",
                      "Medians of the rounds, lowest and highest behind them; in bold PyTorch's best mode.", "", *lines, "",
                      *(f"- {text}" for text in [*below, *kept[:6]]), ""])


def main() -> int:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.out / "bench.jsonl"
    records = read_records(journal)
    done = True
    if not options.table:
        if not options.linnet.is_file():
            sys.exit(f"gpu: {options.linnet} is missing: `./dev gpu build` makes it")
        if options.python == sys.executable and not importlib.util.find_spec("torch"):
            print("gpu: this python3 has no PyTorch: its columns will say `failed`", file=sys.stderr)
        build = build_name(options.linnet)
        row = Row(options, build, records)
        if options.again:
            records = [record for record in records if "error" not in record or record not in row.records]
            row.records = [record for record in row.records if "error" not in record]
        if journal.exists():
            write_records(journal, records)  # also ends a line that was cut short
        if options.prepare:
            prepare(row)
            return 0
        done = measure(row, journal)
        records = read_records(journal)
    if not records:
        sys.exit("gpu: nothing has been measured yet")
    text = page(records)
    (options.out / "bench.md").write_text(text)
    print(text)
    if options.table:
        return 0
    if not done:
        print("gpu: the limit came before all was measured; call again")
        return NOT_DONE
    return 1 if any("error" in record for record in row.records) else 0


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
        sys.exit(main())
    except KeyboardInterrupt:
        print("gpu: stopped; what is measured is kept")
        sys.exit(130)
    except OSError as error:
        sys.exit(f"gpu: {error}")

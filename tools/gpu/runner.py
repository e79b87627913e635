"""What `run` runs on the machine with the GPU: parts of at most nine minutes that go on where they stopped."""

import argparse
import csv
import ctypes
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import journal

HERE = journal.HERE
DEVICE = os.environ.get("LINNET_GPU_DEVICE", "cuda:0")  # cpu: the parts themselves can be tried without a GPU
BUDGET = float(os.environ.get("LINNET_GPU_SECONDS", "530"))  # of one call
QUICK = (("r-64", "bf16"), ("r-256", "bf16"), ("r-256", "tf32"), ("r-256", "fp32"), ("r-384", "bf16"), ("r-384", "tf32"),
         ("cnn-128", "tf32"), ("cnn-1024", "tf32"), ("gpt2-124m-8", "bf16"), ("gpt2-124m-8", "tf32"),
         ("bert-base-32", "bf16"), ("lora-135m", "bf16"), ("lora-135m-int4", "bf16"))
PROFILED = ("r-256", "gpt2-124m-8")
FIRST = (("r-256", "bf16"), ("cnn-1024", "tf32"), ("gpt2-124m-8", "bf16"))
CORES = ("r-64", "gpt2-124m", "cnn-128")  # workloads
THREADS = (1, 2, 4, 8, 16)
NOT_DONE = 75  # exit code: call again
ITEM_SECONDS = float(os.environ.get("LINNET_GPU_ITEM_SECONDS", "90"))  # of one suite of tests, or one short measurement
WORKERS = max(1, min(12, len(os.sched_getaffinity(0)) - 2))  # suites at a time; they share the GPU
KEPT = 4000  # characters of a failed run's output
# What a failed suite is run with again, one after the other: which of them passes says where to look.
LADDER = (("every op waited for", {"LINNET_CUDA_CHECK": "1", "LINNET_CUDA_GRAPHS": "off"}),
          ("no recording", {"LINNET_CUDA_GRAPHS": "off"}),
          ("nothing aside", {"LINNET_CUDA_ASIDE": "off"}),
          ("no weights' gradients in groups", {"LINNET_CUDA_GROUPS": "off"}),
          ("no epilogues of cuBLASLt", {"LINNET_CUBLASLT_EPILOGUES": "off"}),
          ("no cuDNN", {"LINNET_CUDNN": "off"}))

HELP = """parts:
  first                 what is there, the tests (a failed suite again without recording, cuDNN and so on), every
                        workload for a second, a profile; then beside PyTorch: """ + ", ".join(" ".join(row) for row in FIRST) + """
  test                  op tests and training tests on the GPU
  quick                 every workload for a second, Linnet alone, inference, and two profiles
  train                 dates (and MNIST, where it came along) on the GPU: the quality they reach
  sanitize              compute-sanitizer, memcheck and racecheck, over the op tests and the training tests in bf16
  bench NAME PRECISION  a training step beside PyTorch's; fp32, tf32 or bf16
  kernels NAME PRECISION  the times of a step's kernels, by Nsight Compute
  cores                 on the processor: training steps with 1, 2, 4, 8, 16 threads beside PyTorch's: """ + ", ".join(CORES) + """
  table                 the benchmarks' table, again
Results are in OUT, or else in results/. What is done is skipped; exit code 75 says: call again."""


def say(text: str) -> None:
    print(f"gpu: {text}", flush=True)


def stop(text: str):
    sys.exit(f"gpu: {text}")


class Clock:
    """The seconds that are left of a call, or of a part of one."""

    def __init__(self, seconds: float):
        self.whole, self.end = seconds, time.monotonic() + seconds

    def left(self) -> float:
        return self.end - time.monotonic()


def library_folders() -> list[str]:
    """Where a PyTorch installation keeps cuBLAS, cuDNN and NVRTC; the toolkit's and the system's are known to Linnet."""
    given = [folder for folder in os.environ.get("LINNET_CUDA_LIBRARIES", "").split(":") if folder]
    roots = dict.fromkeys([*sys.path, sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]])
    for root in (root for root in roots if root):
        given += sorted(str(folder) for folder in Path(root).glob("nvidia/*/lib") if folder.is_dir())
    return list(dict.fromkeys(given))


def program_environment() -> dict[str, str]:
    """For our programs alone: Python and PyTorch must not see our libraries."""
    ours = os.environ.get("LINNET_GPU_LIBRARIES", str(HERE / "lib"))
    nvidia = library_folders()
    path = [*ours.split(":"), *nvidia, *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join(path), "LINNET_CUDA_LIBRARIES": ":".join(nvidia), "LINNET_TEST_DEVICE": DEVICE,
        "LINNET_CUDA_MODULE": str(HERE / "bin" / "liblinnet_cuda.so"),
        "LINNET_CACHE": os.environ.get("LINNET_CACHE", str(HERE / "cache")),
    }


def check_device() -> None:
    if not DEVICE.startswith("cuda"):
        return
    try:
        found = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        stop(f"no NVIDIA driver here: {error}")
    if found != 0:
        stop(f"the NVIDIA driver finds no GPU that works (cuInit: {found})")


def build_name() -> str:
    """Of these very programs: results of others do not count."""
    whole = hashlib.sha256()
    for path in sorted((HERE / "bin").iterdir()):
        whole.update(path.name.encode())
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                whole.update(piece)
    return whole.hexdigest()[:12]


def execute(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """-> exit code, None when it ran out of time; and its output. Whatever happens, no process is left."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(command, cwd=HERE, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            return 127, str(error)
        try:
            code = process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            for kind in (signal.SIGTERM, signal.SIGKILL) if process.poll() is None else ():
                try:
                    os.killpg(process.pid, kind)
                    process.wait(3)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
        output.seek(0)
        return code, output.read().decode(errors="replace")


def shortened(output: str) -> str:
    """The lines that say what went wrong, or else the last ones."""
    lines = [line for line in output.splitlines() if not line.startswith(("[ RUN", "[       OK", "[---", "[==="))]
    text = "\n".join(lines)
    return text if len(text) <= KEPT else text[:KEPT * 3 // 4] + "\n...\n" + text[-KEPT // 4:]


def status_of(code: int | None) -> str:
    return "ok" if code == 0 else "too slow" if code is None else f"failed ({code})"


def failures_in(output: str) -> list[str]:
    """In their order: after an illegal address every later test of the process fails, too."""
    return list(dict.fromkeys(line.split("]")[1].split(",")[0].split(" (")[0].strip() for line in output.splitlines()
                              if line.startswith("[  FAILED  ]") and "." in line))


class Part:
    """Items of one kind: a name, a command, what is added to the environment."""

    def __init__(self, name: str, folder: Path, build: str):
        self.name, self.folder, self.build = name, folder, build
        self.journal = journal.Journal(folder / f"{name}.jsonl")
        self.lock = threading.Lock()  # of journal and log: several items may run at a time

    def log(self, item: str, output: str) -> None:
        with self.lock, (self.folder / "log.txt").open("a") as file:
            file.write(f"==== {self.name} {item}\n{shortened(output)}\n")

    def done(self, item: str) -> dict | None:
        return self.journal.find(item=item, build=self.build)

    def run(self, items: list[tuple[str, list[str]]], clock: Clock, added: dict[str, str] | None = None,
            workers: int = 1, most: float = 1e6, ladder=(), harmless: str = "") -> int:
        """Each item within `most` seconds, what fails again by the ladder -> exit code: 0 all is well, 1 something
        failed, 75 not all is done. An exit code whose output has the text `harmless`, and no failed test, counts as 0."""
        environment = program_environment() | (added or {})

        def attempt(entry: tuple[str, list[str]]) -> None:
            item, command = entry
            given = min(clock.left(), most)
            if self.done(item) or given < min(20, clock.whole / 4, most):
                return
            start = time.monotonic()
            code, output = execute(command, environment, given)
            if harmless and harmless in output and not failures_in(output):
                code = 0
            seconds = round(time.monotonic() - start, 1)
            if code is None and given < min(0.8 * clock.whole, most):
                say(f"{self.name} {item}: the call's time is up; the next one starts with it")
                return
            status = status_of(code)
            failures = failures_in(output)
            record = {"item": item, "build": self.build, "status": status, "seconds": seconds, "failures": failures,
                      "last": [line.strip() for line in output.splitlines() if line.strip()][-3:], "device": DEVICE}
            if status != "ok" and ladder:
                record["again"] = self.again(item, command, environment, failures, ladder, clock)
            if status != "ok":
                self.log(item, output)
            with self.lock:
                self.journal.add(record)
                say(f"{self.name} {item}: {status}, {seconds} s" + "".join(f"\n  {name}" for name in failures)
                    + "".join(f"\n  with {name}: {found}" for name, found in record.get("again", {}).items()))

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(attempt, items))
        return self.summary([item for item, _ in items])

    def again(self, item: str, command: list[str], environment: dict[str, str], failures: list[str], ladder,
              clock: Clock) -> dict[str, str]:
        """-> what became of it on each rung, up to the first on which all is well: that names what is at fault."""
        found = {}
        narrow = [f"--gtest_filter={':'.join(failures)}"] if failures else []
        for name, added in ladder:
            if clock.left() < 10:
                break
            code, output = execute([*command, *narrow], environment | added, min(clock.left(), ITEM_SECONDS / 2))
            found[name] = status_of(code)
            self.log(f"{item}, {name}", output)
            if code == 0 and len(added) == 1:  # the first one changes two things
                break
        return found

    def summary(self, items: list[str]) -> int:
        records = [self.done(item) for item in items]
        left = sum(record is None for record in records)
        bad = [record["item"] for record in records if record and record["status"] != "ok"]
        say(f"{self.name}: {len(items) - left} of {len(items)} done, {len(bad)} failed"
            + (f" ({', '.join(bad)}; {self.folder / 'log.txt'})" if bad else "") + ("; call again" if left else ""))
        return NOT_DONE if left else 1 if bad else 0


def suites(program: str) -> list[str]:
    """The names of a test program's suites, which are what is run at a time."""
    done = subprocess.run([str(HERE / "bin" / program), "--gtest_list_tests"], cwd=HERE, env=program_environment(),
                          capture_output=True, text=True)
    if done.returncode != 0:  # recorded as one item that fails
        say(f"{program} does not start: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
        return ["*."]
    found = [line.split("#")[0].strip() for line in done.stdout.splitlines() if line[:1].strip() and "." in line]
    return [name for name in found if name.endswith(".")]


# Tools of compute-sanitizer, the whole steps that each can follow in a minute, and what is set for it. Racecheck ends with
# an internal error of its own in steps in bf16 and where cuDNN convolves (compute-sanitizer of CUDA 13.0).
SANITIZED = (("memcheck", ("ActivationsInBf16", "LossesInBf16/post", "LossesInBf16/pre", "AloneInBf16/post"), {}),
             ("racecheck", ("LossesInStrictFloat32/post",), {"LINNET_CUDNN": "off"}))

# Tests begin with memory full of NaN, which shows what is read before it is written.
POISON = {"LINNET_CUDA_POISON": "1"}


def test_items(before: list[str] = (), label: str = "", programs=("ops_test", "cuda_training_test")) -> list:
    return [(f"{label}{program} {suite}*", [*before, str(HERE / "bin" / program), f"--gtest_filter={suite}*"])
            for program in programs for suite in suites(program)]


def find_program(name: str, *patterns: str) -> str:
    found = shutil.which(name)
    for pattern in patterns:
        found = found or next(iter(sorted(glob.glob(pattern), reverse=True)), None)
    return found or stop(f"{name} is neither in PATH nor at {', '.join(patterns)}")


def sanitize(folder: Path, build: str, clock: Clock) -> int:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    sanitizer = find_program("compute-sanitizer", f"{home}/bin/compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer",
                             "/usr/local/cuda/compute-sanitizer/compute-sanitizer")
    codes, part = [], Part("sanitize", folder, build)
    for tool, steps, added in SANITIZED:
        before = [sanitizer, "--tool", tool, "--error-exitcode", "99", "--print-limit", "20"]
        if tool == "racecheck":  # NVIDIA's kernels synchronize in ways that it takes for hazards
            before += ["--kernel-name", "kernel_substring=linnet"]
        items = test_items(before, f"{tool} ", ("ops_test",))
        # What NVIDIA's libraries do in bf16 is in whole steps alone.
        items += [(f"{tool} steps {name}", [*before, str(HERE / "bin" / "cuda_training_test"), f"--gtest_filter=*{name}*"])
                  for name in steps]
        codes.append(part.run(items, clock, added, WORKERS, harmless="terminated before first instrumented API call"))
    return max(codes, key=lambda code: (code not in (0, NOT_DONE), code))


def train(folder: Path, build: str, clock: Clock) -> int:
    """Trains on the device, then evaluates; the journal's last lines hold the evaluation."""
    linnet, items = str(HERE / "bin" / "linnet"), []
    script = 'rm -rf "$2" && "$1" train "$3" --device "$4" --set precision="$5" --run "$2" "${@:6}" && "$1" eval "$2" --json'
    tasks = [("dates", [])]
    if (HERE / "data" / "mnist").is_dir():
        tasks.append(("mnist", ["--set", f"data.dir={HERE / 'data' / 'mnist'}"]))
    for preset, settings in tasks:
        for precision in ("fp32", "tf32", "bf16"):
            run = str(HERE / "runs" / f"{preset}-{precision}")
            items.append((f"{preset} {precision}", ["bash", "-c", script, "train", linnet, run, preset, DEVICE, precision,
                                                    *settings]))
    code = Part("train", folder, build).run(items, clock)
    records = journal.Journal(folder / "train.jsonl")
    for item, _ in items:
        if record := records.find(item=item, build=build):
            say(f"train {item}: {record['last'][-1] if record['last'] else 'no output'}")
    return code


def bench(folder: Path, name: str, precision: str, clock: Clock, more: list[str]) -> int:
    # -u: what it says shows at once. It keeps its own journal and never takes longer than it is told.
    command = [sys.executable, "-u", str(HERE / "bench" / "gpu.py"), name, "--precision", precision, "--device", DEVICE,
               "--linnet", str(HERE / "bin" / "linnet"), "--out", str(folder), "--limit", f"{max(clock.left(), 0):.0f}",
               "--libraries", program_environment()["LD_LIBRARY_PATH"], *more]
    environment = os.environ | {name: program_environment()[name]
                                for name in ("LINNET_CUDA_LIBRARIES", "LINNET_CUDA_MODULE", "LINNET_CACHE")}
    process = subprocess.Popen(command, env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()  # does no harm where a Ctrl-C went to both
        process.wait()
        raise


def cores(folder: Path, build: str, clock: Clock) -> int:
    """Training steps on the processor's cores, fp32; the journal's last lines hold the speeds."""
    counts = [count for count in THREADS if count <= len(os.sched_getaffinity(0))]
    theirs = ["env", "LD_LIBRARY_PATH=" + os.environ.get("LD_LIBRARY_PATH", "")]
    commands = {"linnet": lambda name, count: [str(HERE / "bin" / "linnet"), "bench", name, "--json"]}
    for mode in ("eager", "compile"):
        commands[mode] = lambda name, count, mode=mode: [*theirs, f"OMP_NUM_THREADS={count}", sys.executable,
                                                         str(HERE / "bench" / "peers" / "peer.py"), name, "--mode", mode]
    items = [(f"{name} {side} {count}", [*command(name, count), "--threads", str(count), "--seconds", "3"])
             for side, command in commands.items() for name in CORES for count in counts]
    part = Part("cores", folder, build)
    code = part.run(items, clock)

    def speed(name: str, side: str, count: int) -> float:  # 0: not there
        record = part.done(f"{name} {side} {count}")
        lines = [line for line in (record or {}).get("last", []) if line.startswith("{")]
        return json.loads(lines[-1])["median"] if record and record["status"] == "ok" and lines else 0

    for name in CORES:
        for count in counts:
            speeds = {side: found for side in commands if (found := speed(name, side, count))}
            best = max((found for side, found in speeds.items() if side != "linnet"), default=0)
            say(f"cores {name}, threads {count}: " + ", ".join(f"{side} {found:.4g}" for side, found in speeds.items())
                + (f"; ratio {speeds['linnet'] / best:.2f}" if best and "linnet" in speeds else ""))
    return code


def describe(folder: Path, build: str, clock: Clock) -> int:
    """The GPU, its driver, and which libraries are found."""
    items = [("driver", ["nvidia-smi"]), ("linnet", [str(HERE / "bin" / "linnet"), "info", "--device", DEVICE])]
    part = Part("info", folder, build)
    code = part.run(items, clock, most=30)
    for item, _ in items:
        say(" ".join((part.done(item) or {}).get("last", ["nothing"])))
    return code


def quick(folder: Path, build: str, clock: Clock) -> int:
    """Each workload for a second, Linnet alone, then inference in all formats of weights, and two profiles."""
    linnet, part = str(HERE / "bin" / "linnet"), Part("quick", folder, build)
    items = [(f"{name} {precision}", [linnet, "bench", name, "--precision", precision, "--device", DEVICE, "--seconds",
                                      "1", "--json"]) for name, precision in QUICK]
    code = part.run(items, clock, most=ITEM_SECONDS, ladder=LADDER)
    for item, _ in items:
        lines = [line for line in (part.done(item) or {}).get("last", []) if line.startswith("{")]
        if lines:
            found = json.loads(lines[-1])
            say(f"{item}: {found['median']:.5g} {found['unit']}, {found.get('memory_mb', 0):.0f} MB")
    shown = [("infer", ["infer", "--batches", "1,32", "--lengths", "128", "--seconds", "1"])]
    shown += [(f"profile-{name}", [name, "--precision", "bf16", "--seconds", "1", "--profile"]) for name in PROFILED]
    for name, options in shown:
        command, given, path = [linnet, "bench", *options, "--device", DEVICE], min(ITEM_SECONDS, clock.left()), folder / f"{name}.txt"
        found, output = execute(command, program_environment(), given)
        if found == 0 or not path.exists():  # what an earlier call has found stays
            path.write_text(output)
        if found != 0:
            say(f"quick {name}: {status_of(found)}: {shortened(output)[-300:]}")
            code = code or (NOT_DONE if found is None and given < ITEM_SECONDS else 1)
    return code


def kernels(folder: Path, name: str, precision: str, clock: Clock) -> int:
    """How long each kernel of a training step takes, as Nsight Compute measures them one after the other."""
    profiler = find_program("ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda/bin/ncu")
    steps = [str(HERE / "bin" / "linnet"), "bench", name, "--precision", precision, "--device", DEVICE, "--seconds", "0",
             "--no-parts"]
    environment = program_environment() | {"LINNET_CUDA_GRAPHS": "off"}
    execute(steps, environment, min(60, clock.left()))  # algorithms are chosen, expressions compiled
    count = 1500
    code, output = execute([profiler, "--csv", "--metrics", "gpu__time_duration.sum", "--clock-control", "none",
                            "--launch-skip", "600", "--launch-count", str(count), "--kill", "yes", *steps],
                           environment, min(120, clock.left()))
    (folder / f"kernels-{name}-{precision}.csv").write_text(output)
    rows = list(csv.DictReader(output[max(output.find('"ID"'), 0):].splitlines()))
    if not rows or "Metric Value" not in rows[0]:
        say(f"kernels {name} {precision}: nothing measured (exit code {code}): {shortened(output)[-300:]}")
        return 1
    times: dict[str, list[float]] = {}
    for row in rows:
        scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}.get(row["Metric Unit"], 1)
        times.setdefault(row["Kernel Name"][:100], []).append(scale * float(row["Metric Value"].replace(",", "")))
    for kernel, found in sorted(times.items(), key=lambda entry: -sum(entry[1])):
        print(f"{sum(found):10.1f} us {len(found):5} x {kernel}")
    return 0


def test(folder: Path, build: str, clock: Clock) -> int:
    return Part("test", folder, build).run(test_items(), clock, POISON, WORKERS, ITEM_SECONDS, LADDER)


def first(folder: Path, build: str, clock: Clock, more: list[str]) -> int:
    codes = [describe(folder, build, clock), test(folder, build, Clock(0.4 * BUDGET)),
             quick(folder, build, Clock(max(20, min(0.4 * BUDGET, clock.left()))))]
    # PyTorch's best mode of most rows needs no compiler, whose minutes would take all that is left.
    modes = [] if "--mode" in more else ["--mode", "eager", "--mode", "captured"]
    for index, (name, precision) in enumerate(FIRST):
        share = clock.left() / (len(FIRST) - index)
        codes.append(bench(folder, name, precision, Clock(share), ["--rounds", "1", "--seconds", "3", *modes, *more]))
    return max(codes, key=lambda code: (code not in (0, NOT_DONE), code))


def main() -> int:
    parser = argparse.ArgumentParser(prog="run", epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("first", "test", "quick", "train", "sanitize", "bench", "kernels", "cores", "table"), metavar="PART")
    parser.add_argument("name", nargs="?", help="of bench: the workload")
    parser.add_argument("precision", nargs="?", choices=("fp32", "tf32", "bf16"), help="of bench")
    parser.add_argument("--again", action="store_true", help="what failed or was too slow is run again")
    options, more = parser.parse_known_args()
    if more and options.part not in ("bench", "first"):
        parser.error(f"unknown arguments: {' '.join(more)}")
    if options.part in ("bench", "kernels") and not options.precision:
        parser.error(f"{options.part} NAME PRECISION, such as `{options.part} r-256 bf16`")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    clock = Clock(BUDGET)
    folder = journal.results_folder()
    if options.part == "table":
        return subprocess.run([sys.executable, str(HERE / "bench" / "gpu.py"), "--table", "--out", str(folder)]).returncode
    if options.part != "cores":
        check_device()
    build = build_name()
    if options.again:
        for part in ("info", "test", "quick", "train", "sanitize") if options.part == "first" else (options.part,):
            kept = journal.Journal(folder / f"{part}.jsonl")
            kept.records = [record for record in kept.records if record.get("status", "ok") == "ok"]
            if kept.path.exists():
                kept.rewrite()
        if options.part == "bench":
            more.append("--again")
    if options.part == "test":
        return test(folder, build, clock)
    if options.part == "kernels":
        return kernels(folder, options.name, options.precision, clock)
    if options.part == "bench":
        return bench(folder, options.name, options.precision, clock, more)
    return {"first": lambda: first(folder, build, clock, more), "sanitize": lambda: sanitize(folder, build, clock),
            "quick": lambda: quick(folder, build, clock),
            "cores": lambda: cores(folder, build, clock), "train": lambda: train(folder, build, clock)}[options.part]()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped; what is done is kept, the next call goes on")
        sys.exit(130)
    except OSError as error:  # a full disk, most likely
        stop(str(error))

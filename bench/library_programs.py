#!/usr/bin/env python3
"""Programs of examples/library beside the same programs written with PyTorch's C++ (bench/peers/libtorch): lines, seconds
to build one file, seconds to run, memory.

  bench/library_programs.py --prefix PREFIX [--python build/peers/bin/python] [--rounds 3] [--threads 1] [NAME...]

PREFIX is an installation of Linnet. Both sides are built at -O2. Each round runs Linnet, then PyTorch, each in a process of
its own that is pinned to as many processors as there are threads; a cell is the median of the rounds. Writes
results/library_programs.md and .json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
sys.path.insert(0, str(ROOT / "bench"))

import common  # noqa: E402
import compare  # noqa: E402
import report  # noqa: E402
import study  # noqa: E402

SOURCES = {"linnet": ROOT / "examples" / "library", "pytorch": ROOT / "bench" / "peers" / "libtorch"}
NAMES = {"linnet": "Linnet", "pytorch": "PyTorch"}
PROGRAMS = ("gan", "ppo", "vae", "forecast", "info_nce", "distillation", "diffusion")


def lines(source: Path) -> int:
    """Lines that are neither empty nor a comment."""
    stripped = (line.strip() for line in source.read_text().splitlines())
    return sum(bool(line) and not line.startswith("//") for line in stripped)


def run(command: list, environment: dict, pinned: set[int]) -> dict:
    """Runs a command -> wall and processor seconds of it and its children, the highest resident memory, its last line."""
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=environment, preexec_fn=lambda: os.sched_setaffinity(0, pinned))
    with process:
        said = process.stdout.read().strip()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {"seconds": time.perf_counter() - start, "processor_seconds": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss * 1024 / 1e6, "code": process.returncode, "said": said.splitlines()[-1:]}


def configure(side: str, folder: Path, options) -> None:
    """Makes a build folder for one side."""
    where = f"-DCMAKE_PREFIX_PATH={Path(options.prefix).resolve()}"
    if side == "pytorch":
        torch = subprocess.run([options.python, "-c", "import torch; print(torch.__path__[0])"], check=True, text=True,
                               capture_output=True).stdout.strip()
        where = f"-DTORCH={torch}"
    subprocess.run(["cmake", "-S", SOURCES[side], "-B", folder, "-DCMAKE_BUILD_TYPE=", "-DCMAKE_CXX_FLAGS=-O2", where],
                   check=True, stdout=subprocess.DEVNULL)


def built(side: str, program: str, folder: Path, pinned: set[int]) -> dict:
    """Builds a program anew -> its record. The processor's seconds count: another process on the machine adds none."""
    for old in folder.glob(f"CMakeFiles/{program}.dir/*.o"):
        old.unlink()
    done = run(["cmake", "--build", folder, "--target", program], common.plain_environment(), pinned)
    if done["code"] != 0:
        sys.exit(f"{side}: {program} does not build: {done['said']}")
    return done


def measure(program: str, folders: dict[str, Path], options) -> dict:
    """Builds both sides of a program, then runs them in turns -> records by side."""
    pinned = compare.cores(options.threads)
    environments = {"linnet": common.plain_environment(), "pytorch": common.environment(options.threads)}
    found = {side: {"lines": lines(SOURCES[side] / f"{program}.cpp"),
                    "build": built(side, program, folders[side], pinned), "runs": []} for side in folders}
    for turn in range(options.rounds):
        for side, folder in folders.items():
            done = run([folder / program], environments[side], pinned)
            found[side]["runs"].append(done)
            print(f"{program}, {side}, round {turn + 1}: {done['processor_seconds']:.1f} s, {done['said']}", flush=True)
    return found


def median(record: dict, field: str) -> float:
    return statistics.median(done[field] for done in record["runs"])


def rows_of(program: str, found: dict) -> list[str]:
    """A row of the table: Linnet / PyTorch in each cell."""
    both = [found[side] for side in SOURCES]

    def cell(form: str, values) -> str:
        return " / ".join(form.format(value) for value in values)

    return [f"`{program}`", cell("{}", (record["lines"] for record in both)),
            cell("{:.1f}", (record["build"]["processor_seconds"] for record in both)),
            cell("{:.1f}", (median(record, "processor_seconds") for record in both)),
            cell("{:.1f}", (median(record, "seconds") for record in both)),
            cell("{:.0f}", (median(record, "peak_mb") for record in both)),
            "yes" if not any(done["code"] for record in both for done in record["runs"]) else "no: see below"]


def page(results: dict, about: str) -> str:
    head = ["program", "lines", "build, s", "run, processor s", "run, wall s", "peak memory, MB", "both learned"]
    text = study.table(head, [rows_of(program, found) for program, found in results.items()])
    said = "".join(f"- `{program}`, {NAMES[side]}: {record['runs'][-1]['said'][0]}\n"
                   for program, found in results.items() for side, record in found.items() if record["runs"][-1]["said"])
    return (f"# Programs of the library beside PyTorch's C++\n\n{about}\n\nEach cell: Linnet / PyTorch. Lines are those that "
            "are neither empty nor comments. A build compiles and links one file at -O2; its seconds and those of a run in the "
            "fifth column are processor time, which other work on the machine changes least. Memory is the highest resident "
            f"set of the process, libraries included.\n\n{text}\nWhat the programs printed in the last round:\n\n{said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}; none: all")
    parser.add_argument("--prefix", required=True, help="an installation of Linnet")
    parser.add_argument("--python", default=str(compare.PYTHON), help="a Python with torch (default: build/peers)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--build", default=str(common.HOME / "library_programs"), help="folder to build in")
    parser.add_argument("--out", default=str(report.RESULTS), help="folder of the results (default: bench/results)")
    options = parser.parse_args()
    unknown = set(options.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    folders = {side: Path(options.build) / side for side in SOURCES}
    for side, folder in folders.items():
        configure(side, folder, options)
    version = subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"], check=True, text=True,
                             capture_output=True).stdout.strip()
    machine = report.machine({"isa": None, "torch": version, "date": report.datetime.date.today().isoformat(),
                              "linnet_commit": report.commit()})
    about = (f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['os']}; {options.threads} "
             f"thread{'s' if options.threads > 1 else ''}; {options.rounds} rounds; Linnet {machine['linnet_commit']}; "
             f"PyTorch {version}; {report.datetime.date.today().isoformat()}.")
    results = {}
    for program in options.programs or PROGRAMS:
        results[program] = measure(program, folders, options)
        report.replace(Path(options.out) / "library_programs.json",
                       json.dumps({"machine": about, "programs": results}, indent=1) + "\n")
        report.replace(Path(options.out) / "library_programs.md", page(results, about))


if __name__ == "__main__":
    main()

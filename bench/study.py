"""What the scripts of tables and curves share: one process at a time, pinned, records that survive an interruption.

A record is kept as soon as it is there, in build/peers/NAME.jsonl, under a key that names the program's build. So an
interrupted script goes on where it was, and another build is measured anew.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
sys.path.insert(0, str(ROOT / "bench"))

import common  # noqa: E402
import compare  # noqa: E402
import report  # noqa: E402

PEER = ROOT / "bench" / "peers" / "peer.py"


def parser(name: str, text: str) -> argparse.ArgumentParser:
    """The options that all of them take."""
    made = argparse.ArgumentParser(prog=f"./dev bench {name}", description=text,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--linnet", default=str(compare.LINNET), help="the program (default: build/release)")
    made.add_argument("--python", default=str(compare.PYTHON), help="a Python with torch (default: build/peers)")
    made.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    made.add_argument("--linnet-only", action="store_true", help="without PyTorch's side")
    made.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    made.add_argument("--out", default=str(report.RESULTS), help="folder of the results (default: bench/results)")
    return made


class Study:
    """The records of one script."""

    def __init__(self, name: str, options):
        self.name, self.options = name, options
        self.linnet = options.linnet
        if not Path(self.linnet).is_file():
            sys.exit(f"{self.linnet} is missing: ./dev build")
        self.with_peer = not options.linnet_only
        if self.with_peer and not Path(options.python).is_file():
            sys.exit(f"{options.python} is missing: `./dev bench cpu` makes it, --python names another, "
                     "--linnet-only does without")
        if options.threads > len(os.sched_getaffinity(0)):
            sys.exit(f"{options.threads} threads, but this process may use {len(os.sched_getaffinity(0))} processors")
        self.build = hashlib.sha256(Path(self.linnet).read_bytes()).hexdigest()[:12]
        self.pinned = compare.cores(options.threads)
        self.torch, self.isa = None, None
        self.path = common.HOME / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if options.fresh:
            self.path.unlink(missing_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.records = [json.loads(line) for line in lines if line.endswith("}")]

    def once(self, key: dict, measure) -> dict:
        """measure() -> dict, or what it gave under the same key before. A failure ({"error": ...}) is tried again."""
        key = json.loads(json.dumps(key | {"threads": self.options.threads}))
        for record in self.records:
            if record["key"] == key:
                return self.noted(record["found"])
        found = measure()
        if "error" not in found:
            self.records.append({"key": key, "found": found})
            with self.path.open("a") as file:
                file.write(json.dumps(self.records[-1]) + "\n")
        about = ", ".join(f"{value}" for name, value in key.items() if name not in ("build", "threads"))
        print(f"{about}: {found.get('error') or 'done'}", flush=True)
        return self.noted(found)

    def noted(self, found: dict) -> dict:
        self.torch = found.get("version", self.torch) if found.get("peer") else self.torch
        self.isa = found.get("isa", self.isa)
        return found

    def bench(self, workload: str, arguments: list, turn: int = 0) -> dict:
        """`linnet bench` -> its JSON, or {"error": one line}."""
        command = [self.linnet, "bench", workload, "--json", "--threads", str(self.options.threads), *map(str, arguments)]
        key = {"side": "linnet", "workload": workload, "arguments": arguments, "round": turn, "build": self.build}
        return self.once(key, lambda: compare.execute(command, common.plain_environment(), self.pinned))

    def peer(self, workload: str, arguments: list, turn: int = 0, script: Path = PEER,
             python: str | None = None) -> dict:
        """A peer in PyTorch -> its JSON, or {"error": one line}. python: an environment other than --python's."""
        if not self.with_peer:
            return {"error": "not run"}
        command = [python or self.options.python, str(script), workload, "--threads", str(self.options.threads),
                   *map(str, arguments)]
        key = {"side": "pytorch", "workload": workload, "arguments": list(map(str, arguments)), "round": turn}
        torch = self.torch
        found = self.once(key, lambda: compare.execute(command, common.environment(self.options.threads), self.pinned))
        if python:
            self.torch = torch  # machine() names the PyTorch of --python
        return found

    def run(self, arguments: list, threads: bool = True,
            prefix: list[str] = ()) -> tuple[subprocess.CompletedProcess, float, float]:
        """Any command of the program -> (what it printed, its highest resident memory in MB, processor seconds)."""
        command = [*prefix, self.linnet, *map(str, arguments)]
        command += ["--threads", str(self.options.threads)] if threads else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=common.plain_environment(),
                                   preexec_fn=lambda: os.sched_setaffinity(0, self.pinned))
        with process:
            out, errors = process.stdout.read(), process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        done = subprocess.CompletedProcess(command, process.returncode, out, errors)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{errors.strip()}")
        return done, usage.ru_maxrss * 1024 / 1e6, usage.ru_utime + usage.ru_stime

    def machine(self) -> str:
        """One line on where and with what it was measured."""
        about = report.machine({"isa": self.isa, "torch": self.torch, "date": report.datetime.date.today().isoformat(),
                                "linnet_commit": report.commit()})
        text = (f"{about['cpu']}, {about['cores']} cores, {about['isa'] + ', ' if about['isa'] else ''}{about['memory_gb']} GB, {about['os']}; "
                f"{self.options.threads} threads; Linnet {about['linnet_commit']}")
        return text + (f"; PyTorch {self.torch}" if self.torch else "") + f"; {about['date']}."

    def write(self, title: str, text: str, whole: dict) -> None:
        """NAME.md and NAME.json in the folder of the results."""
        folder = Path(self.options.out)
        folder.mkdir(parents=True, exist_ok=True)
        report.replace(folder / f"{self.name}.json", json.dumps({"machine": self.machine()} | whole, indent=1) + "\n")
        report.replace(folder / f"{self.name}.md", f"# {title}\n\n{self.machine()}\n\n{text}")
        print(f"{folder / self.name}.md")


def median(records: list[dict], field: str):
    values = [record[field] for record in records if record.get(field) is not None]
    return statistics.median(values) if values else None


def show(value, digits: int = 0, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def least_bytes(error: str) -> int | None:
    """From "... it needs at least N"."""
    found = re.search(r"at least (\d+)", error)
    return int(found.group(1)) if found else None

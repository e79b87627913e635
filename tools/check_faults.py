#!/usr/bin/env python3
"""Training by several ranks under faults: the weights must be those of an undisturbed run, nothing may hang or stay.

    tools/check_faults.py build/release/bin/linnet [--kills 50] [--ranks 2] [--seed 1] [--part PART]...

PART: all       one run whose faults are drawn at random from all kinds: SIGKILL and SIGSTOP of a rank, after which it
                goes on by --restart, and a full disk and a cut link, after which it goes on by --resume
      kills     ranks chosen at random get SIGKILL or SIGSTOP at random times, under --restart
      disk      the run's file system becomes full at a random time: one line names the reason, --resume goes on
      network   two network namespaces stand for two machines; the link between them is cut, and --resume goes on
      starters  mpirun, srun and torchrun, those that are installed, give the bits of one process
Without --part: all parts but `all`. The parts `disk` and `network` need root. Needs mpirun; `network` needs iproute2.
`all` leaves out the kinds that need what is missing, and says so.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from two_machines import TwoMachines, missing, mpirun  # noqa: E402

PATIENCE = 900  # seconds after which a run counts as hanging
NOTICE = 15  # seconds within which a lost rank or link ends all: 8 to notice, some for a busy machine


class Failure(Exception):
    pass


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


class Check:
    def __init__(self, options):
        self.options = options
        self.linnet = str(Path(options.linnet).resolve())
        self.random = random.Random(options.seed)
        self.folder = Path(tempfile.mkdtemp(prefix="linnet-faults-"))
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENBLAS_")}
        self.reference = None

    def arguments(self, run: Path, *more: str) -> list[str]:
        settings = ["data_shards=4", f"max_steps={self.options.steps}", "eval_every=100", "save_every=10", "dropout=0.1",
                    "train_samples=4000", "threads=1"]
        return ["train", "dates", "--run", str(run), *(word for one in settings for word in ("--set", one)), *more]

    def command(self, run: Path, *more: str) -> list[str]:
        return [self.linnet, *self.arguments(run, *more), "--ranks", str(self.options.ranks)]

    def start(self, command: list[str], log: Path) -> subprocess.Popen:
        return subprocess.Popen(command, stdout=log.open("a"), stderr=subprocess.STDOUT, env=self.environment,
                                stdin=subprocess.DEVNULL, start_new_session=True)

    def finish(self, process: subprocess.Popen, log: Path, seconds: float = PATIENCE) -> int:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failure(f"it did not end within {seconds} s: {last_lines(log)}") from None

    def undisturbed(self) -> dict:
        """What one process makes of the same configuration."""
        if not self.reference:
            run, log = self.folder / "alone", self.folder / "alone.log"
            code = self.finish(self.start([self.linnet, *self.arguments(run)], log), log)
            expect(code == 0, f"the undisturbed run ended with {code}: {last_lines(log)}")
            self.reference = result_of(run)
        return self.reference

    def same(self, run: Path) -> None:
        expect(result_of(run) == self.undisturbed(), "losses or weights are not those of the undisturbed run")
        left = processes_of(run)
        expect(not left, f"processes are left: {left}")

    def signal_a_rank(self, run: Path, name: str) -> bool:
        """False: they have not all started, it has just ended, or all would be stopped, as a user suspends a job."""
        alive = ranks_of(run)
        if len(alive) < self.options.ranks or (name == "SIGSTOP" and any(map(is_stopped, alive.values()))):
            return False
        try:
            os.kill(self.random.choice(list(alive.values())), getattr(signal, name))
        except ProcessLookupError:
            return False
        return True

    def kills(self) -> str:
        run, log = self.folder / "kills", self.folder / "kills.log"
        process = self.start(self.command(run, "--restart", "1000000"), log)
        done = {"SIGKILL": 0, "SIGSTOP": 0}
        began = time.time()
        while sum(done.values()) < self.options.kills and process.poll() is None:
            time.sleep(self.random.uniform(0.1, 3.0))
            chosen = self.random.choice(["SIGKILL", "SIGKILL", "SIGSTOP"])
            done[chosen] += self.signal_a_rank(run, chosen)
        code = self.finish(process, log)
        expect(code == 0, f"the run ended with {code}: {last_lines(log)}")
        self.same(run)
        return f"{done['SIGKILL']} ranks killed, {done['SIGSTOP']} stopped, {time.time() - began:.0f} s"

    def all(self) -> str:
        kinds, left_out = ["SIGKILL", "SIGSTOP"], []
        for kind, problem in (("disk", None if os.geteuid() == 0 else "a small disk needs root"),
                              ("network", missing() if self.options.ranks == 2 else "it is for --ranks 2")):
            left_out.append(f"{kind} left out: {problem}") if problem else kinds.append(kind)
        done = dict.fromkeys(kinds, 0)
        with contextlib.ExitStack() as stack:
            place = self.folder / "all"
            stack.enter_context(small_disk(place)) if "disk" in kinds else place.mkdir()
            machines = stack.enter_context(TwoMachines(self.folder)) if "network" in kinds else None
            run, log = place / "run", self.folder / "all.log"
            command = [*(machines.inside() if machines else []), *self.command(run, "--restart", "1000000")]
            process = self.start(command, log)
            began, seen = time.time(), 0
            while sum(done.values()) < self.options.kills and process.poll() is None:
                time.sleep(self.random.uniform(0.1, 3.0))
                if steps_of(run) <= seen or len(ranks_of(run)) < self.options.ranks:
                    continue  # it has not gone on yet
                seen = steps_of(run)
                kind = self.random.choice(kinds)
                if kind.startswith("SIG"):
                    done[kind] += self.signal_a_rank(run, kind)
                    continue
                if kind == "disk":
                    self.fill_disk(place, process, log)
                else:
                    self.cut_link(machines, run, process, log)
                done[kind] += 1
                if process.poll():  # a fault that --restart leaves to the user
                    process = self.start([*command, "--resume"], log)
            code = self.finish(process, log)
            expect(code == 0, f"the run ended with {code}: {last_lines(log)}")
            self.same(run)
            expect(sum(done.values()) >= self.options.kills,
                   f"the run ended after {sum(done.values())} faults: give it more --steps")
        return "; ".join([", ".join(f"{count} {kind}" for kind, count in done.items()) +
                          f", {time.time() - began:.0f} s", *left_out])

    def fill_disk(self, place: Path, process: subprocess.Popen, log: Path) -> float:
        """Seconds to the run's end. There is room again then."""
        before = len(log.read_text(errors="replace"))
        filler = place / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 65536)
        began = time.time()
        code = self.finish(process, log, 60)
        filler.unlink()
        expect(code != 0, "a full disk was not told")
        said = log.read_text(errors="replace")[before:]
        told = "No space left" in said or "its disk has 0 MB free" in said  # a checkpoint fails, or a start is refused
        expect(told, f"the reason is not told: {last_lines(log)}")
        return time.time() - began

    def cut_link(self, machines: TwoMachines, run: Path, process: subprocess.Popen, log: Path) -> float:
        """Seconds to the end of all ranks. The link is there again then, and the run has ended or goes on."""
        machines.cut()
        began = time.time()
        wait_for(lambda: not ranks_of(run), None, log)
        seconds = time.time() - began
        machines.join()
        expect(seconds < NOTICE, f"the cut link was noticed after {seconds:.0f} s")
        wait_for(lambda: process.poll() is not None or ranks_of(run), None, log)
        return seconds

    def disk(self) -> str:
        place, log = self.folder / "disk", self.folder / "disk.log"
        with small_disk(place):
            run = place / "run"
            process = self.start(self.command(run), log)
            wait_for(lambda: steps_of(run) > 20, process, log)
            seconds = self.fill_disk(place, process, log)
            code = self.finish(self.start(self.command(run, "--resume"), log), log)
            expect(code == 0, f"--resume ended with {code}: {last_lines(log)}")
            self.same(run)
            return f"ended {seconds:.1f} s after the disk was full; resumed"

    def network(self) -> str:
        if problem := missing():
            raise Failure(problem)
        with TwoMachines(self.folder) as machines:
            run, log = self.folder / "network", self.folder / "network.log"
            command = [*machines.inside(), *mpirun("-n", "2"), self.linnet]
            process = self.start([*command, *self.arguments(run)], log)
            wait_for(lambda: steps_of(run) > 20, process, log)
            machines.cut()
            began = time.time()
            code = self.finish(process, log, 60)
            seconds = time.time() - began
            expect(code != 0 and seconds < NOTICE, f"the cut link was noticed after {seconds:.0f} s, exit code {code}")
            wait_for(lambda: not ranks_of(run), None, log)
            machines.join()
            code = self.finish(self.start([*command, *self.arguments(run, "--resume")], log), log)
            expect(code == 0, f"--resume ended with {code}: {last_lines(log)}")
            self.same(run)
            return f"two machines; all ended {seconds:.1f} s after the cut; resumed"

    def starters(self) -> str:
        ways = {"mpirun": mpirun("-n", "2"), "srun": ["srun", "--mpi=pmix", "-n", "2"],
                "torchrun": ["torchrun", "--nproc-per-node", "2", "--no-python", "--"]}
        done, left_out = [], []
        for name, command in ways.items():
            if not shutil.which(name):
                left_out.append(name)
                continue
            run, log = self.folder / name, self.folder / f"{name}.log"
            code = self.finish(self.start([*command, self.linnet, *self.arguments(run)], log), log)
            expect(code == 0, f"{name} ended with {code}: {last_lines(log)}")
            self.same(run)
            done.append(name)
        return ", ".join(done) + (f" (not installed: {', '.join(left_out)})" if left_out else "")


@contextlib.contextmanager
def small_disk(place: Path):
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def last_lines(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-4:])


def result_of(run: Path) -> dict:
    """Losses by step, and the checksum of the weights."""
    losses = {}
    for text in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(text)
        if "loss" in record:
            losses[record["step"]] = record["loss"]
    return {"losses": losses, "weights": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()}


def steps_of(run: Path) -> int:
    try:
        return len((run / "metrics.jsonl").read_text().splitlines())
    except OSError:
        return 0


def processes_of(run: Path) -> dict[int, dict[str, str]]:
    """Pid -> environment of the processes whose command names the run's folder."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.name.isdigit() and str(run).encode() in words:
                variables = (process / "environ").read_bytes().decode(errors="replace").split("\0")
                found[int(process.name)] = dict(one.split("=", 1) for one in variables if "=" in one)
        except OSError:
            pass  # it has ended meanwhile
    return found


def ranks_of(run: Path) -> dict[int, int]:
    """Rank -> pid of what mpirun has started."""
    return {int(variables["OMPI_COMM_WORLD_RANK"]): pid for pid, variables in processes_of(run).items()
            if "OMPI_COMM_WORLD_RANK" in variables}


def is_stopped(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return False


def wait_for(condition, process, log: Path) -> None:
    began = time.time()
    while not condition():
        expect(process is None or process.poll() is None, f"it ended early: {last_lines(log)}")
        expect(time.time() - began < PATIENCE, f"it did not get there: {last_lines(log)}")
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("kills", "disk", "network", "starters")
    parser.add_argument("linnet")
    parser.add_argument("--part", dest="parts", action="append", choices=("all", *parts), help="may be repeated")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    check = Check(options)
    failed = 0
    for part in options.parts or parts:
        try:
            print(f"{part}: {getattr(check, part)()}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"{part}: FAILED: {failure}; see {check.folder}", flush=True)
    if not failed:
        shutil.rmtree(check.folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The examples of the Python package beside the same programs in PyTorch: length, time, memory and result.

    bench/python_examples.py [EXAMPLE...] --data FOLDER [--rounds 3] [--modes eager,one] [--encoder FOLDER]

examples/python/NAME.py beside bench/peers/examples/NAME.py, which has the same network, data, optimizer and number of
steps. Sides take turns, each in a process of its own; a cell is the median over the rounds. PyTorch runs eagerly with
--threads threads, and with one, which is faster for small networks; --modes adds `compile`, torch.compile, where a
network of the example's own is trained. The fastest mode is set beside Linnet. FOLDER (default: LINNET_DATA) has MNIST,
SST-2, tinyshakespeare and BERT's vocabulary; models have random weights (peers/example_inputs.py), only --encoder names
one for embeddings. Both sides keep compiled Python, which a short run that is not counted has made. Run by --python, a
Python with torch, transformers and peft, and --linnet-python. Results: bench/results/python_examples.md and .json.
Exit code 1 when results do not agree.
"""

import ast
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import study
from study import show

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import rounds  # noqa: E402

PEERS = Path(__file__).resolve().parent / "peers"
OURS, THEIRS = study.ROOT / "examples" / "python", PEERS / "examples"
INPUTS = study.common.HOME / "examples"
MODES = ("eager", "one", "compile")
FAR_BEHIND = 0.8  # of the best mode's speed; a mode below that in its first round is not run again


@dataclass
class Example:
    """arguments: of main() for a number of steps. number: what is compared, of a record. agree: whether two of these,
    Linnet's and PyTorch's, are alike. network: the class that torch.compile takes."""

    steps: int
    short: int
    arguments: Callable[[int], list]
    number: Callable[[dict], float | str]
    agree: Callable[[float | str, float | str], bool]
    text: str = "{}"
    network: str = ""


def both(low: float, high: float) -> Callable[[float, float], bool]:
    return lambda ours, theirs: low <= ours <= high and low <= theirs <= high


def near(share: float) -> Callable[[float, float], bool]:
    return lambda ours, theirs: abs(ours - theirs) <= share * abs(theirs)


def result(found: dict):
    return found["result"]


def first(found: dict):
    return found["result"][0]


def second(found: dict):
    return found["result"][1]


def best_likeness(found: dict) -> float:
    return found["result"][0][0]


def printed_loss(found: dict) -> float:
    """Of an example that returns a text."""
    return float(re.findall(r"^loss ([\d.]+)", found["printed"], re.MULTILINE)[-1])


def examples(options) -> dict[str, Example]:
    mnist, sst2 = f"{options.data}/images/mnist", f"{options.data}/text-classification/sst2"
    train, valid, run = f"{sst2}/train.tsv", f"{sst2}/dev.tsv", "run"
    encoder, text = options.encoder or str(INPUTS / "encoder"), INPUTS / "text.txt"
    query = "a puppy outside"
    return {
        "mnist": Example(2, 1, lambda n: [mnist, n], result, both(0.97, 1), "accuracy {:.4f}", "Net"),
        "gpt": Example(300, 4, lambda n: [text.read_text(), n], first, near(0.1), "loss {:.3f}", "GPT"),
        "translation": Example(400, 4, lambda n: [run, n], result, lambda a, b: a == b == "one two three"),
        "classifier": Example(
            400,
            4,
            lambda n: [str(INPUTS / "bert"), train, valid, run, n],
            result,
            both(0.68, 1),
            "accuracy {:.3f}",
        ),
        "embeddings": Example(1, 1, lambda n: [encoder, query], best_likeness, near(1e-4), "{:.5f}"),
        "chat_lora": Example(
            60, 4, lambda n: [str(INPUTS / "llama"), str(text), run, n], printed_loss, near(0.05), "loss {:.3f}"
        ),
        "vae": Example(5000, 4, lambda n: [n], result, both(0.7, 1.3), "radius {:.3f}"),
        "gan": Example(5000, 4, lambda n: [n], first, both(2.2, 3.8), "mean {:.3f}"),
        "own_op": Example(5000, 4, lambda n: [n], result, both(0, 0.01), "error {:.1e}"),
        "distillation": Example(2000, 4, lambda n: [n], second, both(0.85, 1), "student {:.3f}"),
    }


def code_lines(path: Path) -> int:
    """Lines that hold more than comments and documentation."""
    source = path.read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            lines.update(range(token.start[0], token.end[0] + 1) if token.string else ())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


class Sides:
    def __init__(self, runs: study.Study, options):
        self.runs, self.options = runs, options
        # Compiled Python is kept apart from the packages, which may not be written to, and the same way on both sides.
        kept = {"PYTHONPYCACHEPREFIX": str(INPUTS / "pycache")}
        self.ours = study.common.plain_environment() | kept | {"PYTHONPATH": options.package}
        self.theirs = study.common.environment(options.threads) | kept
        for environment in (self.ours, self.theirs):
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.theirs.pop("PYTHONPATH", None)
        self.theirs |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        self.inputs = digest(PEERS / "example_inputs.py")
        self.package = digest(*sorted(Path(options.package, "linnet").glob("*.*")))

    def make_inputs(self) -> None:
        ready = INPUTS / "ready"
        if ready.exists() and ready.read_text() == self.inputs:
            return
        command = [self.options.python, str(PEERS / "example_inputs.py"), self.options.data, str(INPUTS)]
        done = subprocess.run(command, env=self.theirs, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"the inputs could not be made: {done.stderr.strip()}")
        ready.write_text(self.inputs)

    def process(self, side: str, name: str, example: Example, steps: int) -> dict:
        """One process from its start to its end."""
        command, environment = [self.options.linnet_python], self.ours
        extra: list[str] = []
        if side != "linnet":
            threads = 1 if side == "one" else self.options.threads
            counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
            command, environment = [self.options.python], self.theirs | counts
            extra = ["--threads", str(threads)] + (["--compile", example.network] if side == "compile" else [])
        file = (OURS if side == "linnet" else THEIRS) / f"{name}.py"
        with tempfile.TemporaryDirectory() as folder:
            out, errors = Path(folder, "out"), Path(folder, "errors")
            arguments = Path(folder, "arguments.json")
            arguments.write_text(json.dumps(example.arguments(steps)))
            command += [str(PEERS / "run_example.py"), str(file), str(arguments), *extra]
            with out.open("w") as standard, errors.open("w") as error:
                begin = time.perf_counter()
                process = subprocess.Popen(
                    command,
                    stdout=standard,
                    stderr=error,
                    cwd=folder,
                    env=environment,
                    preexec_fn=lambda: os.sched_setaffinity(0, self.runs.pinned),
                )
                _, status, usage = os.wait4(process.pid, 0)
                seconds = time.perf_counter() - begin
                process.returncode = os.waitstatus_to_exitcode(status)
            printed = out.read_text()
            if process.returncode != 0:
                said = [line for line in errors.read_text().splitlines() if line.strip()]
                return {"error": (said or [f"exit code {process.returncode}"])[-1][:200]}
            # What it is compared by is taken from the text here, so that a record need not hold all of it.
            found = json.loads(printed.splitlines()[-1]) | {"printed": printed}
            found["number"] = example.number(found)
            del found["printed"], found["result"]
        return found | {
            "seconds": seconds,
            "peak_mb": usage.ru_maxrss * 1024 / 1e6,
            "processor_seconds": usage.ru_utime + usage.ru_stime,
        }

    def once(self, side: str, name: str, example: Example, turn: int) -> dict:
        source = digest((OURS if side == "linnet" else THEIRS) / f"{name}.py")
        key = {
            "example": name,
            "side": side,
            "steps": example.steps,
            "round": turn,
            "source": source,
            "inputs": self.inputs,
        }
        key |= {"data": [self.options.data, self.options.encoder]}
        key |= {"build": self.package} if side == "linnet" else {"python": self.options.python}
        return self.runs.once(key, lambda: self.process(side, name, example, example.steps))

    def warm(self, side: str, name: str, example: Example) -> None:
        """Compiled Python and files in the system's memory, for a build and a machine's start."""
        key = {
            "example": name,
            "side": f"{side}, short",
            "booted": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "build": self.package,
        }
        self.runs.once(key, lambda: self.process(side, name, example, example.short))

    def row(self, name: str, example: Example) -> dict:
        modes = [mode for mode in self.options.modes if mode != "compile" or example.network]
        sides = ["linnet", *(modes if self.runs.with_peer else [])]
        records: list[dict] = []
        for turn in range(self.options.rounds):
            for side in sides:
                if rounds.still_wanted(records, side, turn, FAR_BEHIND):
                    if turn == 0:
                        self.warm(side, name, example)
                    found = self.once(side, name, example, turn)
                    speed = {} if "error" in found else {"median": 1 / found["seconds"]}
                    records.append({"side": side, "round": turn} | speed | found)
        good = [record for record in records if "error" not in record]
        kept = {side: [record for record in good if record["side"] == side] for side in sides}
        medians = {side: summary(found) for side, found in kept.items() if found}
        peers = [side for side in medians if side != "linnet"]
        best = min(peers, key=lambda side: medians[side]["seconds"], default=None)
        agree = None
        if best and "linnet" in medians:
            agree = example.agree(medians["linnet"]["number"], medians[best]["number"])
        return {
            "example": name,
            "steps": example.steps,
            "best": best,
            "agree": agree,
            "sides": medians,
            "lines": {"linnet": code_lines(OURS / f"{name}.py"), "pytorch": code_lines(THEIRS / f"{name}.py")},
            "failed": {record["side"]: record["error"] for record in records if "error" in record},
        }


def summary(found: list[dict]) -> dict:
    """Of a side's rounds: medians, and the result of the first."""
    fields = ("seconds", "main_seconds", "processor_seconds", "peak_mb")
    numbers = [record["number"] for record in found]
    return {field: study.median(found, field) for field in fields} | {"number": numbers[0], "numbers": numbers}


def cells(row: dict, example: Example) -> list[str]:
    ours, theirs = row["sides"].get("linnet"), row["sides"].get(row["best"])

    def pair(field: str, digits: int) -> list[str]:
        left, right = ours and ours[field], theirs and theirs[field]
        return [show(left, digits), show(right, digits), show(right / left if left and right else None, 2)]

    lines = row["lines"]
    numbers = [example.text.format(side["number"]) if side else "-" for side in (ours, theirs)]
    shown = [str(lines["linnet"]), str(lines["pytorch"]), show(lines["pytorch"] / lines["linnet"], 2)]
    shown += pair("seconds", 2) + pair("main_seconds", 2) + pair("peak_mb", 0)
    return [row["example"], *shown, *numbers, row["best"] or "-"]


def page(rows: list[dict], all_of: dict[str, Example]) -> str:
    head = [""]
    for what in ("lines", "process, s", "main(), s", "peak, MB"):
        head += [what, "PyTorch", "ratio"]
    head += ["result", "PyTorch", "mode"]
    text = (
        "Lines hold code: no comments, no documentation. A process counts from its start to its end, imports included; "
        "its peak is of resident memory. Ratios are PyTorch's by Linnet's. Mode is PyTorch's fastest; `one` has one "
        "thread. Both sides draw their own initial values.\n\n"
    )
    text += study.table(head, [cells(row, all_of[row["example"]]) for row in rows])
    slower = [
        f"{row['example']}: "
        + ", ".join(
            f"{side} {found['seconds']:.2f} s, main() {found['main_seconds']:.2f} s"
            for side, found in row["sides"].items()
            if side != "linnet"
        )
        for row in rows
        if len(row["sides"]) > 2
    ]
    text += "\nPyTorch's modes. " + "; ".join(slower) + ".\n" if slower else ""
    for row in rows:
        text += f"\n{row['example']}: the results do not agree.\n" if row["agree"] is False else ""
        text += "".join(f"\n{row['example']}, {side}: {error}\n" for side, error in row["failed"].items())
    return text


def main() -> int:
    parser = study.parser("python-examples", __doc__)
    parser.add_argument("names", nargs="*", metavar="EXAMPLE", help="default: all")
    parser.add_argument("--data", default=os.environ.get("LINNET_DATA"), help="folder of real data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", default="eager,one", help=f"of {', '.join(MODES)}")
    parser.add_argument("--encoder", default="", help="folder of a sentence encoder")
    build = study.ROOT / "build"
    parser.add_argument("--package", default=str(build / "release/python"), help="folder of the package linnet")
    parser.add_argument("--linnet-python", default=str(build / "python/bin/python"), help="a Python with numpy")
    options = parser.parse_args()
    if not options.data:
        sys.exit("where is the data? --data FOLDER, or LINNET_DATA in the environment")
    options.data, options.package = (str(Path(path).resolve()) for path in (options.data, options.package))
    options.encoder = str(Path(options.encoder).resolve()) if options.encoder else ""
    options.modes = options.modes.split(",")
    for mode in options.modes:
        if mode not in MODES:
            sys.exit(f"there is no mode {mode}; there are {', '.join(MODES)}")
    all_of = examples(options)
    for name in options.names:
        if name not in all_of:
            sys.exit(f"there is no example {name}; there are {', '.join(all_of)}")
    runs = study.Study("python_examples", options)
    sides = Sides(runs, options)
    sides.make_inputs()
    rows = [sides.row(name, all_of[name]) for name in options.names or all_of]
    runs.write("The Python examples beside PyTorch", page(rows, all_of), {"rows": rows})
    return 1 if any(row["agree"] is False or row["failed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

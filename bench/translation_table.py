#!/usr/bin/env python3
"""Translating the lines of a file beside CTranslate2, with the same model.

    bench/translation_table.py --model FOLDER --source FILE [--beams 1,4] [--isas auto,avx2] [--rounds 3]

FOLDER is in Marian's layout, as `linnet export RUN --out FOLDER` writes it of a run with architecture = "marian";
CTranslate2 converts it as it is. fp32 and int8, greedily and with a beam, 32 lines at a time on both sides, which sort
the lines by length. Sides take turns, each in a process of its own; a cell is the median over the rounds. Loading and
tokenization are columns of their own. --isas avx2 holds both sides to AVX2. Run by --python, a Python with ctranslate2,
sentencepiece, transformers and torch. Results: bench/results/translation.md and .json.
"""

import subprocess
import sys
from pathlib import Path

import study
from study import show

PEER = Path(__file__).parent / "peers" / "ctranslate.py"
TYPES = {"fp32": "float32", "int8": "int8"}


class Table:
    def __init__(self, runs, options):
        self.runs, self.options = runs, options
        self.folder = study.common.HOME / "translation"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.converted = str(self.folder / "converted")

    def convert(self) -> None:
        subprocess.run([self.options.python, str(PEER), "make", "--model", self.options.model, "--out",
                        self.converted], check=True, stdout=subprocess.DEVNULL)

    def row(self, isa: str, precision: str, beam: int) -> dict:
        ours, theirs = (str(self.folder / f"{side}-{isa}-{precision}-{beam}.txt") for side in ("linnet", "peer"))
        shared = ["--model", self.options.model, "--source", self.options.source, "--beam", beam, "--isa", isa]
        mine, its = [], []
        for turn in range(self.options.rounds):
            quantize = ["--quantize", "int8"] if precision == "int8" else []
            mine.append(self.checked(self.runs.bench("translate", [*shared, *quantize, "--translations", ours], turn)))
            if self.runs.with_peer:
                its.append(self.checked(self.runs.peer("translate", [
                    *shared, "--type", TYPES[precision], "--converted", self.converted, "--translations", theirs], turn,
                    PEER)))
        equal = None
        if its:
            pairs = list(zip(lines_of(ours), lines_of(theirs), strict=True))
            equal = sum(left == right for left, right in pairs) / len(pairs)
        medians = {side: {field: study.median(found, field) for field in ("seconds", "token_seconds", "load_seconds")}
                   for side, found in (("linnet", mine), ("peer", its))}
        return {"isa": mine[0]["isa"], "precision": precision, "beam": beam, "lines": mine[0]["lines"], "equal": equal,
                **medians}

    @staticmethod
    def checked(found: dict) -> dict:
        if "error" in found:
            sys.exit(found["error"])
        return found


def lines_of(path: str) -> list[str]:
    return Path(path).read_text().split("\n")[:-1]


def cells(row: dict) -> list[str]:
    ours, its, equal = row["linnet"], row["peer"], row["equal"]
    speed = its["seconds"] / ours["seconds"] if its["seconds"] else None
    return [row["isa"], row["precision"], str(row["beam"]), show(ours["seconds"], 2), show(its["seconds"], 2),
            show(speed, 2), show(None if equal is None else 100 * equal, 1, "%"),
            *(show(side[field], 2) for field in ("token_seconds", "load_seconds") for side in (ours, its))]


def main():
    parser = study.parser("translate", __doc__)
    parser.add_argument("--model", required=True, help="folder in Marian's layout")
    parser.add_argument("--source", required=True, help="the lines to translate")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--isas", default="auto", help="auto, avx2 or both (default: auto)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.model, options.source = (str(Path(path).resolve()) for path in (options.model, options.source))
    runs = study.Study("translation", options)
    table = Table(runs, options)
    if runs.with_peer:
        table.convert()
    rows = [table.row(isa, precision, int(beam)) for isa in options.isas.split(",") for precision in TYPES
            for beam in options.beams.split(",")]
    head = ["", "", "beam", "Linnet, s", "CTranslate2, s", "speed, of CTranslate2's", "equal lines",
            "tokenization, s", "its", "loading, s", "its"]
    peer = f"Beside {runs.torch}: " if runs.torch else ""
    runs.torch = runs.isa = None  # the line on the machine would say PyTorch, and of rows only the last
    text = (f"{peer}{rows[0]['lines']:,} lines, 32 at a time. Seconds are of encoding and search alone; tokenization and "
            "loading are apart.\n\n" + study.table(head, list(map(cells, rows))))
    runs.write("Translation beside CTranslate2", text, {"rows": rows})


main()

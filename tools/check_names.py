#!/usr/bin/env python3
"""Names that readers and linkers rely on.

- A source file that a comment, a README of src/ or docs/ names exists.
- A type that a header declares in a namespace has one definition: two types of one name in a program that includes both
  break the one-definition rule, and no compiler says so.

Prints every violation as file:line and ends with 1 when there is one.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

FILE = re.compile(r"(?<![\w*/.-])((?:[\w-]+/)*[\w-]+\.(?:h|cpp|cuh|cu))\b")
COMMENT = re.compile(r"//(.*)")
TYPE = re.compile(r"^(?:template <[^;{]*> )?(?:class|struct|enum class|union)(?: \[\[\w+\]\]| alignas\(\w+\))? (\w+)(?: final)?(?: :[^;]*)? \{")
# Other projects' headers, and names that stand for any file.
OTHERS = {"nvrtc.h", "nccl.h", "nvml.h", "hwy/foreach_target.h", "linnet.h", "net.cpp", "gpt.cpp", "file.cpp"}
NAMESPACE = re.compile(r"^namespace ([\w:]*) ?\{")


def missing_files(paths: list[str], known: set[str]) -> list[str]:
    """`known`: the ends of all tracked paths."""
    problems = []
    for path in paths:
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            if path.endswith(".md"):
                texts = re.findall(r"`([^`]*)`", line)
            else:
                texts = [] if line.startswith("#include") else COMMENT.findall(line)
            for text in texts:
                for name in FILE.findall(text):
                    # Copied headers are included as linnet/NAME.h; x_cuda.cu and _cuda.cu stand for endings.
                    if name.removeprefix("linnet/") not in known | OTHERS and not name.startswith(("_", "x_")):
                        problems.append(f"{path}:{number}: there is no {name}")
    return problems


def types_defined_twice(headers: list[str]) -> list[str]:
    places = defaultdict(list)
    for path in headers:
        namespaces: list[str] = []
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            if opened := NAMESPACE.match(line):
                namespaces.append(opened[1])
            elif line.startswith("}  // namespace") and namespaces:
                namespaces.pop()
            elif (found := TYPE.match(line)) and "" not in namespaces:
                places["::".join([*namespaces, found[1]])].append(f"{path}:{number}")
    return [f"{where[0]}: {name} is defined in {', '.join(where[1:])}, too" for name, where in places.items() if len(where) > 1]


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    files = [path for path in root.glob("*") if path.is_file()]
    for folder in ("bench", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools"):
        files += [path for path in (root / folder).rglob("*") if path.is_file()]
    paths = [str(path.relative_to(root)) for path in files]
    known = {"/".join(parts[i:]) for path in paths for parts in [path.split("/")] for i in range(len(parts))}
    headers = [path for path in paths if path.startswith(("src/", "include/")) and path.endswith((".h", ".cuh"))]
    texts = [path for path in paths if path.startswith(("src/", "include/", "tests/")) and path.endswith((".h", ".cpp", ".cu", ".cuh"))]
    texts += [path for path in paths if path.endswith(".md") and path.startswith(("src/", "docs/", "CONTRIBUTING", "README"))]
    problems = missing_files(texts, known) + types_defined_twice(headers)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

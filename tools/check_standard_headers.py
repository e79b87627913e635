#!/usr/bin/env python3
"""Names files of src/ that use a name of namespace std without its header, included by themselves or by a file of ours.

Our builds precompile the standard headers, so the compiler does not notice; projects that take Linnet into their build do.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = {
    "algorithm": "all_of any_of clamp copy_n count fill_n find find_if lower_bound max_element min_element none_of reverse "
                 "sort stable_sort transform upper_bound",
    "array": "array", "atomic": "atomic", "bit": "bit_cast", "chrono": "chrono", "cmath": "abs ceil exp floor isfinite isnan "
    "log pow round sqrt", "condition_variable": "condition_variable", "cstring": "memcmp memcpy memset strlen",
    "deque": "deque", "exception": "exception_ptr", "filesystem": "filesystem", "fstream": "ifstream ofstream",
    "functional": "function", "future": "future", "limits": "numeric_limits", "list": "list", "map": "map",
    "memory": "make_shared make_unique shared_ptr unique_ptr", "mutex": "lock_guard mutex scoped_lock unique_lock",
    "numeric": "accumulate iota", "optional": "nullopt optional", "random": "mt19937 mt19937_64", "regex": "regex",
    "set": "set", "span": "span", "sstream": "istringstream ostringstream stringstream", "string": "string",
    "string_view": "string_view", "thread": "jthread thread", "tuple": "tuple", "unordered_map": "unordered_map",
    "unordered_set": "unordered_set", "variant": "variant visit", "vector": "vector"}
HEADER_OF = {name: header for header, names in HEADERS.items() for name in names.split()}
# What libstdc++'s headers include anyway.
BRINGS = {
    "string": ["string_view"], "filesystem": ["string", "string_view", "chrono", "memory"], "map": ["tuple", "array"],
    "memory": ["tuple", "atomic"], "functional": ["tuple", "vector", "array", "unordered_map", "memory"],
    "optional": ["exception"], "mutex": ["tuple", "chrono", "exception"], "thread": ["memory", "chrono"],
    "sstream": ["string"], "fstream": ["string"], "unordered_map": ["tuple"], "chrono": ["sstream"], "span": ["array"],
    "condition_variable": ["mutex", "memory"], "random": ["cmath", "string", "vector", "numeric", "limits"],
    "tuple": ["array"], "string_view": []}


@functools.lru_cache(None)
def included(path):
    text = path.read_text()
    headers = set()
    for header in re.findall(r"#include <([a-z_0-9]+)>", text):
        headers |= {header, *BRINGS.get(header, [])}
    for name in re.findall(r'#include "([^"]+)"', text):
        for folder in (ROOT / "src", ROOT / "include"):
            if (folder / name).exists() and folder / name != path:
                headers |= included(folder / name)
    return headers


def main():
    faults = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        code = re.sub(r"//.*", "", path.read_text())
        used = {HEADER_OF[name] for name in re.findall(r"std::([a-z_0-9]+)", code) if name in HEADER_OF}
        for header in sorted(used - included(path)):
            faults += 1
            print(f"{path.relative_to(ROOT)} does not include <{header}>", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    sys.exit(main())

"""Runs one example in this process and prints one line of JSON: the seconds of main() alone and what it returned.

    run_example.py FILE ARGUMENTS.json [--threads N] [--compile CLASS]

With --threads it is PyTorch's side. --compile: the network of that class through torch.compile, the example as it is.
"""

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("arguments", type=Path, help="of main(), as a list in JSON")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--compile", metavar="CLASS")
    options = parser.parse_args()
    found = {}
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        found = {"peer": True, "version": torch.__version__}
    # In a name of its own: bench/peers has modules that are called as examples are.
    spec = importlib.util.spec_from_file_location("example", options.file)
    example = importlib.util.module_from_spec(spec)
    sys.modules["example"] = example
    spec.loader.exec_module(example)
    if options.compile:
        plain = getattr(example, options.compile)
        setattr(example, options.compile, lambda *args, **named: torch.compile(plain(*args, **named)))
    begin = time.perf_counter()
    result = example.main(*json.loads(options.arguments.read_text()))
    found |= {"main_seconds": time.perf_counter() - begin, "result": result}
    print()  # an example may have left its line open
    print(json.dumps(found), flush=True)


main()

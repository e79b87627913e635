#!/usr/bin/env python3
"""The fast tests of the arm64 build (build/arm64) under qemu-user, two programs at a time.

Emulated vectors take 100 to 250 times as long, so a test that took a second or more in build/release is left out;
`./dev test -L fast` there measures them. So are tests of the emulated GPU and of several processes, which have no code
for one processor, and two that limit the address space, which qemu does not. Prints a line for each program and the
tests that were left out. Ends with 1 when a test fails.

Needs `binfmt_misc` with the entry for aarch64 and the flag F: docs/install.md.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

UNLIMITED = {"ThreadPoolDeathTest.ThreadsThatCannotBeStartedAreOneLine", "BadInput.TooLittleAddressSpaceIsOneLine"}
ROOT = pathlib.Path(__file__).resolve().parent.parent


def fast_tests():
    """Seconds that each test took in build/release, by program and name."""
    release = ROOT / "build/release"
    command = ["ctest", "-L", "fast", "--show-only=json-v1"]
    listed = subprocess.run(command, cwd=release, check=True, capture_output=True)
    rows = (line.split() for line in (release / "Testing/Temporary/CTestCostData.txt").read_text().splitlines())
    seconds = {row[0]: float(row[2]) for row in rows if len(row) == 3}
    programs = collections.defaultdict(dict)
    for test in json.loads(listed.stdout)["tests"]:
        program = os.path.relpath(test.get("command", ["?"])[0], release)
        if program.endswith("_test") and not re.search("cuda_emulation|_ranks|/ranks", program):
            programs[program][test["name"]] = seconds.get(test["name"], 0)
    return programs


def run(program, shard, shards, left_out, limit):
    begin = time.monotonic()
    environment = os.environ | {
        "GTEST_TOTAL_SHARDS": str(shards),
        "GTEST_SHARD_INDEX": str(shard),
        "GTEST_FILTER": "-" + ":".join(left_out),
    }
    try:
        done = subprocess.run(
            [ROOT / "build/arm64" / program], env=environment, cwd=ROOT, timeout=limit, text=True, capture_output=True
        )
        output, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace"), 124
    return program, output, code, time.monotonic() - begin


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--most", type=float, default=1, help="leave out tests that took longer; seconds")
    arguments.add_argument("--jobs", type=int, default=2, help="programs at a time")
    arguments.add_argument("--limit", type=float, default=2400, help="seconds for one program")
    options = arguments.parse_args()
    jobs, left_out = [], []
    for program, tests in fast_tests().items():
        slow = [name for name, seconds in tests.items() if seconds >= options.most or name in UNLIMITED]
        left_out += slow
        work = sum(seconds for name, seconds in tests.items() if name not in slow)
        shards = max(1, min(8, round(work / 2)))
        jobs += [(work / shards, program, shard, shards, slow) for shard in range(shards)]
    begin, counts = time.monotonic(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        ordered = sorted(jobs, reverse=True, key=lambda job: job[0])
        running = [pool.submit(run, *job[1:], options.limit) for job in ordered]
        for done in concurrent.futures.as_completed(running):
            program, output, code, seconds = done.result()
            passed, skipped = (len(re.findall(rf"^\[ +{word} \] .*ms\)$", output, re.M)) for word in ("OK", "SKIPPED"))
            failed = sorted(set(re.findall(r"^\[  FAILED  \] (\S+) \(", output, re.M)))
            counts.update({"passed": passed, "skipped": skipped, "failed": len(failed)})
            counts["ended badly"] += code not in (0, 1)
            said = [f"{program}: {passed} passed, {skipped} skipped, {seconds:.0f} s"]
            said += failed + ([f"ended with {code}"] if code not in (0, 1) else [])
            print(*said, sep="  ", flush=True)
    print(f"{dict(counts)} in {(time.monotonic() - begin) / 60:.0f} minutes; left out: {len(left_out)}")
    print(*left_out)
    sys.exit(counts["failed"] > 0 or counts["ended badly"] > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What an active profile costs: the same run with few and with many recorded steps, alternately, in processor seconds.

    bench/profile_overhead.py [--rounds 5] [--steps 100] [--linnet PROGRAM] [SETTING...]

Each round trains the preset `dates` twice on one thread. Both profile one step, so both measure the machine and write the
files; one waits for it without recording, the other records all steps before it and throws them away (warmup). Processor
seconds of whole processes are what a busy machine disturbs least. Settings (KEY=VALUE) go to both.
"""
import argparse, resource, statistics, subprocess, tempfile


def processor_seconds(options, recorded):
    before = options.steps - 4
    schedule = f"wait=1,warmup={before},active=1" if recorded else f"wait={before},warmup=1,active=1"
    with tempfile.TemporaryDirectory() as folder:
        command = [options.linnet, "train", "dates", "--run", folder + "/run", "--steps", str(options.steps), "--threads", "1",
                   "--profile", schedule]
        for setting in ["eval_every=100000", "save_every=100000", "train_samples=20000", "valid_samples=4", *options.settings]:
            command += ["--set", setting]
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--linnet", default="build/release/bin/linnet")
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    ratios = []
    print("round  waiting  recording   ratio    (processor seconds)")
    for index in range(options.rounds):
        found = {recorded: processor_seconds(options, recorded) for recorded in ((False, True) if index % 2 == 0 else (True, False))}
        ratios.append(found[True] / found[False])
        print(f"{index + 1:5} {found[False]:8.2f} {found[True]:10.2f} {ratios[-1]:7.3f}", flush=True)
    print(f"recording takes {100 * (statistics.median(ratios) - 1):+.1f}% processor time, the median of {options.rounds} "
          f"({100 * (min(ratios) - 1):+.1f}% to {100 * (max(ratios) - 1):+.1f}%)")


main()

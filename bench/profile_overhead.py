#!/usr/bin/env python3
"""What an active profile costs: the same run without and with `--profile`, alternately.

    bench/profile_overhead.py [--rounds 5] [--steps 160] [--linnet PROGRAM] [-- SETTING...]

Each round trains the preset `dates` twice on one thread. Compared are the steps' speeds in metrics.jsonl, of the steps that
are profiled in one and not in the other; what is done after them (measuring the machine, writing the files) is not part of
a step. Of each round the median and the fastest tenth, which is what a busy machine disturbs least. Settings go to both.
"""
import argparse, json, statistics, subprocess, tempfile


def speeds(options, folder, profiled):
    command = [options.linnet, "train", "dates", "--run", folder, "--steps", str(options.steps), "--threads", "1"]
    for setting in ["eval_every=100000", "save_every=100000", "train_samples=20000", "valid_samples=4", *options.settings]:
        command += ["--set", setting]
    if profiled:
        command += ["--profile", f"wait=5,warmup=5,active={options.steps - 12}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(folder + "/metrics.jsonl")]
    of_steps = sorted(line["tokens_per_second"] for line in lines if line["split"] == "train" and 11 <= line["step"] <= options.steps - 3)
    return statistics.median(of_steps), of_steps[int(0.9 * len(of_steps))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--linnet", default="build/release/src/cli/linnet")
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    ratios = []
    print("round   median off      on   ratio    fastest tenth off      on   ratio    (tokens/s)")
    for round_number in range(options.rounds):
        found = {}
        for profiled in (False, True) if round_number % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                found[profiled] = speeds(options, folder + "/run", profiled)
        ratios.append([found[False][i] / found[True][i] for i in (0, 1)])
        (a, b), (c, d) = found[False], found[True]
        print(f"{round_number + 1:5} {a:12.0f} {c:7.0f} {a / c:7.3f} {b:20.0f} {d:7.0f} {b / d:7.3f}", flush=True)
    print("a step with an active profile takes %.1f%% longer by the medians, %.1f%% by the fastest tenth"
          % tuple(100 * (statistics.median(ratio[i] for ratio in ratios) - 1) for i in (0, 1)))


main()

"""Writing text with GPT-2's 124M (random weights) one token at a time: Linnet beside transformers, in one run.

    python3 bench/generate_table.py [--linnet build/release/bin/linnet] [--threads 2] [--json FILE]

Run by a Python that has torch and transformers (build/peers/bin/pip install transformers). The time without a cache is
taken from timed passes over lengths 64 apart, times how many tokens take each: what both do for each token is one such
pass. Alternate rounds, medians; tokens a second with the prompt of 8 tokens included.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

PROMPT, COUNTS, STEP = 8, (100, 500, 1000), 64


def linnet_round(program, threads):
    command = [program, "bench", "generate", "--json", "--threads", str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Peer:
    def __init__(self, threads):
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch = torch
        self.version = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=None, bos_token_id=None)).eval()

    def cached(self):
        """Seconds until 100, 500 and 1,000 tokens were written."""

        class Clock:
            def __init__(self):
                self.times, self.began = [], time.perf_counter()

            def put(self, tokens):
                self.times.append(time.perf_counter() - self.began)

            def end(self):
                pass

        clock = Clock()
        with self.torch.inference_mode():
            self.model.generate(
                self.torch.full((1, PROMPT), 17), max_new_tokens=COUNTS[-1], min_new_tokens=COUNTS[-1],
                do_sample=False, use_cache=True, streamer=clock, pad_token_id=0)
        return [clock.times[count] for count in COUNTS]  # the prompt is put first

    def uncached(self):
        seconds = {}
        with self.torch.inference_mode():
            for length in range(STEP, PROMPT + COUNTS[-1] + STEP, STEP):
                ids = self.torch.full((1, min(length, 1024)), 17)
                best = float("inf")
                for _ in range(2):
                    began = time.perf_counter()
                    self.model(ids, use_cache=False, logits_to_keep=1)
                    best = min(best, time.perf_counter() - began)
                seconds[length] = best
        total = lambda count: sum(seconds[-(-(PROMPT + t) // STEP) * STEP] for t in range(count))
        return [total(count) for count in COUNTS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--linnet", default="build/release/bin/linnet")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    peer = Peer(arguments.threads)
    ours, cached, uncached = [], [], []
    for _ in range(arguments.rounds):
        ours.append(linnet_round(arguments.linnet, arguments.threads))
        cached.append(peer.cached())
        uncached.append(peer.uncached())
    rows = []
    for i, count in enumerate(COUNTS):
        median = lambda key: statistics.median(run["rows"][i][key] for run in ours)
        rows.append({
            "tokens": count,
            "linnet_cached": median("cached_tokens_per_second"),
            "linnet_uncached": median("uncached_tokens_per_second"),
            "fraction_of_bandwidth_bound": median("fraction_of_bandwidth_bound"),
            "transformers_cached": count / statistics.median(run[i] for run in cached),
            "transformers_uncached": count / statistics.median(run[i] for run in uncached),
        })
    print(f"GPT-2 124M, batch 1, fp32, {arguments.threads} threads; {peer.version}; tokens/s\n")
    print("| tokens | Linnet, cache | of the bandwidth bound | transformers, cache | Linnet, none | transformers, none |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['tokens']:,} | {row['linnet_cached']:.1f} | {row['fraction_of_bandwidth_bound']:.0%} | "
              f"{row['transformers_cached']:.1f} | {row['linnet_uncached']:.2f} | {row['transformers_uncached']:.2f} |")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"versions": peer.version, "threads": arguments.threads, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

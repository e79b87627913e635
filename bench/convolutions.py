"""One convolution after another, Linnet beside oneDNN as PyTorch calls it:

  build/peers/bin/python bench/convolutions.py BENCH [--threads 2] [--rounds 3] [--seconds 0.2] [--filter resnet20] \
      [--isa avx2]

BENCH is the program convolution_bench. Prints a Markdown table of milliseconds and ratios for the forward pass, the input
gradient and the weight gradient. Both sides take turns for every shape; of every side the best time of all rounds counts.
PyTorch runs with channels last and with channels first, and the faster of the two counts for each pass.
"""

import argparse
import math
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import common  # noqa: E402

if "--isa" in sys.argv and "ATEN_CPU_CAPABILITY" not in os.environ:  # has to be set before torch is imported
    os.environ |= common.HELD_TO["avx2"]

import torch  # noqa: E402

# As in convolution_bench.cpp: images, size, channels, filters, window, stride, padding, groups.
ROWS = {
    "resnet20 first": (128, 32, 3, 16, 3, 1, 1, 1),
    "resnet20 16": (128, 32, 16, 16, 3, 1, 1, 1),
    "resnet20 16 to 32": (128, 32, 16, 32, 3, 2, 1, 1),
    "resnet20 32": (128, 16, 32, 32, 3, 1, 1, 1),
    "resnet20 32 to 64": (128, 16, 32, 64, 3, 2, 1, 1),
    "resnet20 64": (128, 8, 64, 64, 3, 1, 1, 1),
    "resnet18 first": (8, 224, 3, 64, 7, 2, 3, 1),
    "resnet18 64": (8, 56, 64, 64, 3, 1, 1, 1),
    "resnet18 64 to 128": (8, 56, 64, 128, 3, 2, 1, 1),
    "resnet18 shortcut": (8, 56, 64, 128, 1, 2, 0, 1),
    "resnet18 128": (8, 28, 128, 128, 3, 1, 1, 1),
    "resnet18 256": (8, 14, 256, 256, 3, 1, 1, 1),
    "resnet18 512": (8, 7, 512, 512, 3, 1, 1, 1),
    "mobilenet 32 each": (8, 112, 32, 32, 3, 1, 1, 32),
    "mobilenet 128 each": (8, 56, 128, 128, 3, 2, 1, 128),
    "mobilenet 512 each": (8, 14, 512, 512, 3, 1, 1, 512),
    "mobilenet 512": (8, 14, 512, 512, 1, 1, 0, 1),
}


def best_time(run, seconds: float) -> float:
    run()
    least, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - begin)
    return least * 1e3


def peer(row, layout, seconds: float) -> list[float]:
    n, size, c, o, k, stride, padding, groups = row
    x = torch.randn(n, c, size, size).contiguous(memory_format=layout)
    weight = torch.randn(o, c // groups, k, k).contiguous(memory_format=layout)
    y = torch.conv2d(x, weight, None, stride, padding, 1, groups)
    dy = torch.randn_like(y)

    def backward(mask):
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, mask)

    forward = lambda: torch.conv2d(x, weight, None, stride, padding, 1, groups)  # noqa: E731
    with torch.no_grad():
        return [best_time(run, seconds) for run in (forward, backward([True, False, False]), backward([False, True, False]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--filter", default="")
    parser.add_argument("--isa", choices=("avx2",), help="both sides held to these instructions")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {args.threads} threads; "
          "ms Linnet / ms PyTorch (PyTorch's time as a multiple of Linnet's)\n")
    print("| convolution | y | dx | dweight |\n|---|---|---|---|")
    ratios = []
    with subprocess.Popen([args.bench, "--ask", args.isa or "auto"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as linnet:
        for name, row in ROWS.items():
            if args.filter not in name:
                continue
            ours, theirs = [1e9] * 3, [1e9] * 3
            for _ in range(args.rounds):
                linnet.stdin.write(f"{args.threads} {args.seconds} {' '.join(map(str, row))}\n")
                linnet.stdin.flush()
                ours = list(map(min, ours, map(float, linnet.stdout.readline().split())))
                for layout in (torch.channels_last, torch.contiguous_format):
                    theirs = list(map(min, theirs, peer(row, layout, args.seconds / 2)))
            cells = [f"{a:.3f} / {b:.3f} ({b / a:.2f})" for a, b in zip(ours, theirs)]
            ratios += [b / a for a, b in zip(ours, theirs)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        linnet.stdin.close()
    print(f"\ngeometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}, "
          f"{sum(r < 0.9 for r in ratios)} of {len(ratios)} below 0.9")


if __name__ == "__main__":
    main()

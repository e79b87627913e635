"""Trains one workload in PyTorch for some seconds and prints one line of JSON.

    build/peers/bin/python bench/peers/peer.py r-64 --mode compile --precision bf16 --threads 2 --seconds 5 [--data FILE]

Modes, the fastest of which is what Linnet is set beside:
  eager    as most people run it: SDPA attention, fused Adam
  compile  torch.compile (inductor), the model in one graph; PyTorch's own generator for dropout, which is faster than
           what inductor makes of it
  tuned    loss and gradients as one compiled graph, dropout's bits from a hash, and what the workload's file says
All of them: MKL kept from choosing slower kernels for processors of another maker, freed memory kept, denormals flushed.

With --device cuda (on_gpu.py): eager; compile, which is max-autotune; graph, the same and the whole step, data and update
with it, captured as one CUDA graph; captured, that without max-autotune. Precisions there: fp32 (strict), tf32, bf16 (autocast; weights and moments fp32).
"""

import argparse
import json
import os
import sys

import common

MODES = {"cpu": ("eager", "compile", "tuned"), "cuda": ("eager", "compile", "captured", "graph")}
FAMILIES = {"r": "transformer_r", "cnn": "cnn", "gpt": "gpt", "gpt2": "gpt", "bert": "bert", "lora": "lora",
            "resnet20": "resnet", "resnet18": "resnet"}


def arguments():
    parser = argparse.ArgumentParser(description="a training workload in PyTorch")
    parser.add_argument("workload", help="r-64 r-128 r-256 r-384 cnn-128 cnn-1024 resnet20 resnet18 "
                        "gpt-6l gpt2-124m[-8] bert-base[-32] lora-135m[-int4]")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--mode", default="eager", help="eager, compile, tuned (CPU), captured or graph (GPU)")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32", help="bf16: torch.autocast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="timed, after warm-up")
    parser.add_argument("--data", help="safetensors with the batches; made up when absent")
    parser.add_argument("--dropout", type=float, default=0.1, help="of r-* and bert-base")
    parser.add_argument("--batch", type=int, help="of gpt* and bert*, instead of the workload's own")
    parser.add_argument("--attention", choices=("usual", "steps", "sdpa"), default="usual",
                        help="steps: with the matrix of scores in memory; sdpa: PyTorch's op; usual: the faster")
    parser.add_argument("--checkpoint", action="store_true", help="every block is computed again in the backward pass")
    parser.add_argument("--activation-budget", type=float, metavar="SHARE",
                        help="of compile: torch._functorch.config.activation_memory_budget")
    parser.add_argument("--inductor", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of torch._inductor.config, to try what else might help")
    options = parser.parse_args()
    if options.workload.partition("-")[0] not in FAMILIES:
        parser.error(f"no workload {options.workload}")
    kind = options.device.partition(":")[0]
    if kind not in MODES:
        parser.error(f"no device {options.device}; there are cpu, cuda and cuda:N")
    if options.mode not in MODES[kind]:
        parser.error(f"on {kind} there are the modes {', '.join(MODES[kind])}")
    if options.activation_budget is not None and options.mode != "compile":
        parser.error("--activation-budget is the compiler's: it needs --mode compile")
    if kind == "cpu" and options.precision == "tf32":
        parser.error("tf32 is a GPU's precision")
    return options


def configure_compiler(options) -> None:
    import torch._functorch.config
    import torch._inductor.config

    torch._inductor.config.fallback_random = True
    # Masks of bool are slow to write in vectorized code; computing them again costs less.
    torch._functorch.config.ban_recompute_materialized_backward = False
    if options.activation_budget is not None:
        torch._functorch.config.activation_memory_budget = options.activation_budget
    for setting in options.inductor:
        key, _, value = setting.partition("=")
        config, _, name = key.rpartition(".")
        target = getattr(torch._inductor.config, config) if config else torch._inductor.config
        setattr(target, name, json.loads(value))


def main() -> None:
    options = arguments()
    if common.MARK not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], common.environment(options.threads, options.device))
    os.environ.pop("LD_PRELOAD", None)  # loaded; the compiler's processes do without

    if options.device != "cpu":
        import on_gpu

        print(json.dumps(on_gpu.run(options, FAMILIES[options.workload.partition("-")[0]])))
        return
    import torch

    after_import = common.memory_mb("VmRSS")
    common.reset_peak()
    common.keep_freed_memory()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if options.mode != "eager":
        configure_compiler(options)

    family = __import__(FAMILIES[options.workload.partition("-")[0]])
    fields = common.measure(family.create(options), options.seconds, split=options.workload.startswith("gpt"))
    fields["memory_mb"] = round(fields.pop("steady_mb") - after_import, 1)  # of steady training
    fields["memory_with_warmup_mb"] = round(fields.pop("peak_mb") - after_import, 1)  # and with the compiler's
    print(json.dumps({"peer": "pytorch", "version": torch.__version__, "workload": options.workload,
                      "mode": options.mode, "precision": options.precision, "threads": options.threads} | fields))


if __name__ == "__main__":
    main()

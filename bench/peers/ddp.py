"""PyTorch's DistributedDataParallel over gloo: this process is one of those that torchrun starts, with one thread.

    python -m torch.distributed.run --nproc-per-node 2 bench/peers/ddp.py gpt2-124m --mode eager --steps 8

Each rank trains on an equal part of the workload's batch; the first prints one line of JSON: the median of the steps'
times, units of the whole batch a second, and the ranks' highest memory above what they had after importing torch.
"""

import argparse
import json
import statistics
import time

import common

FAMILIES = {"r": "transformer_r", "gpt2": "gpt", "gpt": "gpt"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8, help="timed, after 3 others")
    options = parser.parse_args()
    import torch
    import torch.distributed as dist

    after_import = common.memory_mb("VmRSS")
    common.keep_freed_memory()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    family = __import__(FAMILIES[options.workload.partition("-")[0]])
    options.device, options.data, options.dropout, options.checkpoint = "cpu", None, 0.1, False
    options.attention = "usual"
    if hasattr(family, "BATCH"):
        family.BATCH //= ranks
        options.batch = None
    else:
        options.batch = family.SHAPES[options.workload].batch // ranks
    mode, options.mode = options.mode, "eager"
    workload = family.create(options)
    model = torch.nn.parallel.DistributedDataParallel(workload.gradients.model, gradient_as_bucket_view=True)
    workload.gradients.model = torch.compile(model) if mode == "compile" else model
    times = []
    for step in range(options.steps + 3):
        begin = time.perf_counter()
        loss = workload.gradients.forward(workload.batches[step % len(workload.batches)])
        workload.gradients.backward(loss)
        workload.update()
        loss.item()
        times.append(time.perf_counter() - begin)
    memory = torch.tensor([common.memory_mb("VmHWM") - after_import])
    dist.all_reduce(memory, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        seconds = statistics.median(times[3:])
        print(json.dumps({"peer": "pytorch ddp", "version": torch.__version__, "workload": options.workload, "mode": mode,
                          "ranks": ranks, "seconds": seconds, "unit": workload.unit,
                          "median": ranks * workload.per_step / seconds, "memory_mb": round(memory.item(), 1)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""PyTorch's side of bench/mini_gpt_table.py; prints one line of JSON.

    mini_gpt.py TRAIN.json train --eval TEST.json --steps 150 [--precision bf16] [--checkpoint] [--mode compile]
    mini_gpt.py FOLDER write --tokens 200 [--no-cache] [--int8 --eval TEST.json]      a GPT-2 folder, by transformers
    mini_gpt.py 1024 attention                                   one layer's attention at that many tokens

Token files are lists of ids in JSON. Writing needs transformers.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time

import common

CONTEXT, BATCH, LAYERS, WIDTH, HEADS = 512, 8, 6, 512, 8
RATE, LEAST_RATE = 1e-3, 1e-4


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("subject")
    parser.add_argument("task", choices=("train", "write", "attention"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--eval")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--int8", action="store_true")
    parsed = parser.parse_args()
    parsed.device = "cpu"
    return parsed


def perplexity(loss_sum_of, ids) -> float:
    """exp of the mean loss over chunks that do not overlap. loss_sum_of(tokens, targets) -> (sum, count)"""
    import torch

    total, count = 0.0, 0
    with torch.no_grad():
        for first in range(0, len(ids) - 1, CONTEXT):
            chunk = torch.tensor(ids[first:first + CONTEXT + 1])
            total += loss_sum_of(chunk[None, :-1], chunk[None, 1:])
            count += len(chunk) - 1
    return math.exp(total / count)


def rate_at(step: int, steps: int) -> float:
    """Warm-up over at most a quarter of the steps, then a cosine, as the preset mini-gpt has it."""
    warmup = min(200, steps // 4)
    if step < warmup:
        return RATE * (step + 1) / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return LEAST_RATE + (RATE - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * share))


def train(options) -> dict:
    import torch
    import torch.nn.functional as F

    import gpt
    import training

    shape = gpt.Shape(LAYERS, WIDTH, HEADS, options.vocabulary, BATCH, CONTEXT, dropout=0.1)
    model = gpt.Model(shape)
    gradients = training.gradients(model, options)
    optimizer = torch.optim.AdamW(training.decayed(model, 0.1), lr=RATE, betas=(0.9, 0.95), fused=True)
    ids = torch.tensor(json.load(open(options.subject)))
    chunks = (len(ids) - 1) // CONTEXT
    after_start = common.memory_mb("VmRSS")
    common.reset_peak()
    seconds, processor, order = [], [], torch.randperm(chunks)
    for step in range(options.steps):
        first = step * BATCH % (chunks - BATCH + 1)
        if first < BATCH:
            order = torch.randperm(chunks)
        rows = [ids[c * CONTEXT:c * CONTEXT + CONTEXT + 1] for c in order[first:first + BATCH]]
        batch = torch.stack(rows)
        began, used = time.perf_counter(), time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, options.steps)
        loss = gradients.forward((batch[:, :-1], batch[:, 1:]))
        gradients.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    peak = common.memory_mb("VmHWM")
    found = {"speed": BATCH * CONTEXT / statistics.median(seconds), "processor_ms": 1e3 * statistics.median(processor),
             "memory_mb": peak - after_start + sum(4 * p.numel() for p in model.parameters()) / 1e6}
    if options.eval:
        model.eval()
        test = json.load(open(options.eval))
        found["perplexity"] = perplexity(lambda x, y: F.cross_entropy(model.logits(x).flatten(0, 1), y.flatten(),
                                                                      reduction="sum").item(), test)
    return found


def plain_linears(model) -> None:
    """transformers' Conv1D layers of GPT-2 as nn.Linear, which dynamic quantization takes."""
    import torch
    from transformers.pytorch_utils import Conv1D

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Conv1D):
                linear = torch.nn.Linear(*child.weight.shape)
                linear.weight.data, linear.bias.data = child.weight.data.t().contiguous(), child.bias.data
                setattr(parent, name, linear)


def write(options) -> dict:
    import torch
    import torch.nn.functional as F
    import transformers

    after_import = common.memory_mb("VmRSS")
    model = transformers.GPT2LMHeadModel.from_pretrained(options.subject).eval()
    if options.int8:
        plain_linears(model)
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    prompt = torch.full((1, 8), 17)

    def seconds(tokens: int) -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0,
                           use_cache=not options.no_cache)
        return time.perf_counter() - began

    seconds(2)
    found = {"speed": (options.tokens - 1) / (seconds(options.tokens) - seconds(1))}
    found["memory_mb"] = common.memory_mb("VmHWM") - after_import
    if options.eval:
        ids = json.load(open(options.eval))
        found["perplexity"] = perplexity(lambda x, y: F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten(),
                                                                      reduction="sum").item(), ids)
    return found


def chunked(q, k, v, size: int):
    """Causal attention with a running softmax over chunks of keys, each of `size`; forward only."""
    import torch

    length, scale = q.shape[-2], q.shape[-1] ** -0.5
    out, top = torch.zeros_like(v), torch.full((*q.shape[:-1], 1), -math.inf)
    total, rows = torch.zeros_like(top), torch.arange(length)[:, None]
    for first in range(0, length, size):
        keys = slice(first, min(first + size, length))
        seen = slice(first, length)  # no query before the chunk sees it
        scores = (q[..., seen, :] * scale) @ k[..., keys, :].transpose(-2, -1)
        scores = scores.masked_fill(torch.arange(first, keys.stop) > rows[seen], -math.inf)
        highest = torch.maximum(top[..., seen, :], scores.amax(-1, keepdim=True))
        shrink, weights = torch.exp(top[..., seen, :] - highest), torch.exp(scores - highest)
        out[..., seen, :] = out[..., seen, :] * shrink + weights @ v[..., keys, :]
        total[..., seen, :] = total[..., seen, :] * shrink + weights.sum(-1, keepdim=True)
        top[..., seen, :] = highest
    return out / total


def attention(options) -> dict:
    import torch
    import torch.nn.functional as F

    length = int(options.subject)
    q, k, v = (torch.randn(1, HEADS, length, WIDTH // HEADS, requires_grad=True) for _ in range(3))
    mask = torch.ones(length, length, dtype=torch.bool).tril()

    def steps():
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v

    def milliseconds(run) -> float:
        times = []
        while len(times) < 5 or sum(times) < 0.5:
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        return 1e3 * statistics.median(times[1:])

    def grow(run) -> float:
        common.reset_peak()
        before = common.memory_mb("VmRSS")
        run()
        return max(0.0, common.memory_mb("VmHWM") - before)

    usual = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(chunked(q, k, v, 128), steps(), atol=1e-4)
    found = {}
    for name, run in (("sdpa", usual), ("steps", steps)):
        with_backward = lambda run=run: run().sum().backward()
        memory = grow(with_backward)
        with torch.no_grad():
            found[name] = {"forward_ms": milliseconds(run)}
        found[name] |= {"both_ms": milliseconds(with_backward), "memory_mb": memory}
    with torch.no_grad():
        found["chunks"] = {str(size): milliseconds(lambda size=size: chunked(q, k, v, size))
                           for size in (32, 64, 128, 256, 512, 1024, 2048) if size <= length}
    return found


def main():
    options = arguments()
    if common.MARK not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], common.environment(options.threads))
    os.environ.pop("LD_PRELOAD", None)
    import torch

    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if options.task != "attention":
        common.keep_freed_memory()
    if options.mode == "compile":
        import torch._functorch.config
        import torch._inductor.config

        torch._inductor.config.fallback_random = True
        torch._functorch.config.ban_recompute_materialized_backward = False
    found = {"train": train, "write": write, "attention": attention}[options.task](options)
    print(json.dumps({"peer": "pytorch", "version": torch.__version__} | found))


if __name__ == "__main__":
    main()

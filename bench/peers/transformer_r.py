"""PyTorch's training step of reference shape R, on the CPU: the figure our own benchmark is set beside.

    python bench/peers/transformer_r.py --sequence 64 --threads 2 --mode eager|compile --steps 20 --precision fp32|bf16

R: torch.nn.Transformer, d 256, 8 heads, ff 1024, 2+2 layers, ReLU, post-LN, dropout 0.1 (its defaults), scaled
embeddings, sinusoidal positions, linear head, vocabulary 256, batch 16, 1,024 samples, Adam 1e-4, padding and causal
masks from lengths uniform in [shortest * S, S], token mean cross-entropy. A step is forward, backward, update.

Prints one line of JSON. Tuned as far as PyTorch goes without changing the sums: fused Adam, no graph breaks, malloc
kept from handing memory back to the kernel after every step (--malloc default leaves it alone), MKL kept from choosing
slower kernels for processors of another maker (--mkl default lets it; its float32 products then run at half the speed
on Zen 5). What remains slow is dropout: its random bits come from one sequential generator. --dropout 0 shows the rest.
"""

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def arguments():
    parser = argparse.ArgumentParser(description="PyTorch training step of reference shape R")
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: torch.autocast")
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--shortest", type=float, default=0.5, help="shortest length as a share of the sequence")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--malloc", choices=("tuned", "default"), default="tuned")
    parser.add_argument("--mkl", choices=("tuned", "default"), default="tuned")
    return parser.parse_args()


def unlock_mkl():
    """Restarts under a preloaded function that tells MKL "yes, the processor is yours" -> "tuned" once done.

    MKL asks mkl_serv_intel_cpu_true() before it takes its AVX-512 kernels, whatever the processor can do.
    """
    folder = os.environ.pop("LINNET_PEER_PRELOAD", None)
    if folder is not None:  # restarted: the library is loaded, children (the compiler) do without it
        os.environ.pop("LD_PRELOAD", None)
        shutil.rmtree(folder)
        return "tuned"
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "mkl_vendor.so")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True,
                       input=b"int mkl_serv_intel_cpu_true(void) { return 1; }")
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(folder)
        print("no C compiler: MKL left as it is", file=sys.stderr)
        return "default"
    os.environ.update(LINNET_PEER_PRELOAD=folder, LD_PRELOAD=library)
    os.execv(sys.executable, [sys.executable] + sys.argv)


if __name__ == "__main__":  # before torch, which reads the environment when it is imported
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"):
        os.environ.pop(name, None)  # any of these would hold the peer to an older core
    OPTIONS = arguments()
    if OPTIONS.mkl == "tuned":
        OPTIONS.mkl = unlock_mkl()

import torch
import torch.nn.functional as F

D, HEADS, FF, LAYERS, BATCH, VOCAB, SAMPLES = 256, 8, 1024, 2, 16, 256, 1024
PAD, BEGIN, END, FIRST_WORD = 0, 2, 3, 4


def memory_mib(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":")) / 1024


def reset_peak():
    """Sets VmHWM back to the present VmRSS (proc(5), clear_refs); where that is forbidden the peak stays."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def keep_freed_memory():
    """Large tensors from the heap, never trimmed: else each step maps and faults in all its activations anew."""
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def sinusoids(length):
    """PE[p, 2i] = sin(p / 10000^(2i/d)), PE[p, 2i+1] = cos(the same), [length, D]."""
    angle = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, D, 2) / D)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(length, D)


class Model(torch.nn.Module):
    def __init__(self, sequence, dropout):
        super().__init__()
        self.source_embedding = torch.nn.Embedding(VOCAB, D)
        self.target_embedding = torch.nn.Embedding(VOCAB, D)
        self.transformer = torch.nn.Transformer(D, HEADS, LAYERS, LAYERS, FF, dropout=dropout, batch_first=True)
        self.head = torch.nn.Linear(D, VOCAB)
        self.register_buffer("positions", sinusoids(sequence))
        self.register_buffer("columns", torch.arange(sequence))
        self.register_buffer("causal", torch.ones(sequence, sequence, dtype=torch.bool).triu(1))

    def forward(self, source, source_lengths, target_in, target_out, target_lengths):
        source_padding = self.columns >= source_lengths[:, None]
        target_padding = self.columns >= target_lengths[:, None]
        decoded = self.transformer(
            self.source_embedding(source) * D**0.5 + self.positions,
            self.target_embedding(target_in) * D**0.5 + self.positions,
            tgt_mask=self.causal, tgt_is_causal=True, src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding, memory_key_padding_mask=source_padding)
        return F.cross_entropy(self.head(decoded).flatten(0, 1), target_out.flatten(), ignore_index=PAD)


def batches(sequence, shortest):
    """1,024 samples of uniformly random tokens, cut into batches."""
    def rows():
        lengths = torch.randint(max(1, round(shortest * sequence)), sequence + 1, (SAMPLES,))
        return torch.randint(FIRST_WORD, VOCAB, (SAMPLES, sequence)), lengths

    columns = torch.arange(sequence)
    source, source_lengths = rows()
    words, target_lengths = rows()
    target_in = torch.cat([torch.full((SAMPLES, 1), BEGIN), words[:, :-1]], dim=1)
    target_out = words.masked_fill(columns == target_lengths[:, None] - 1, END)
    source = source.masked_fill(columns >= source_lengths[:, None], PAD)
    target_in = target_in.masked_fill(columns >= target_lengths[:, None], PAD)
    target_out = target_out.masked_fill(columns >= target_lengths[:, None], PAD)
    whole = (source, source_lengths, target_in, target_out, target_lengths)
    return list(zip(*(tensor.split(BATCH) for tensor in whole)))


def main(options):
    after_import = memory_mib("VmRSS")
    reset_peak()
    if options.malloc == "tuned":
        keep_freed_memory()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)

    if options.mode == "compile":  # one thread of eager's generator beats what the compiler makes of dropout on a CPU
        torch._inductor.config.fallback_random = True
    model = Model(options.sequence, options.dropout).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model, fullgraph=True, dynamic=False) if options.mode == "compile" else model
    data = batches(options.sequence, options.shortest)

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            loss = forward(*batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    start = time.perf_counter()
    for index in range(options.warmup):
        step(data[index % len(data)])
    warmup_seconds = time.perf_counter() - start
    peak = memory_mib("VmHWM")
    reset_peak()

    rates, losses = [], []
    for index in range(options.steps):
        start = time.perf_counter()
        losses.append(step(data[(options.warmup + index) % len(data)]))
        rates.append(BATCH / (time.perf_counter() - start))
    steady = memory_mib("VmHWM")

    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "workload": "transformer_r", "sequence": options.sequence,
        "batch": BATCH, "threads": options.threads, "mode": options.mode, "precision": options.precision,
        "dropout": options.dropout, "shortest": options.shortest, "malloc": options.malloc,
        "mkl": options.mkl, "steps": options.steps,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "samples_per_second": {"median": round(statistics.median(rates), 2), "min": round(min(rates), 2),
                               "max": round(max(rates), 2)},
        "peak_memory_mib": round(max(peak, steady) - after_import, 1),  # with warm-up, so with compilation
        "steady_memory_mib": round(steady - after_import, 1),
        "after_import_mib": round(after_import, 1), "warmup_seconds": round(warmup_seconds, 2),
        "first_loss": round(losses[0], 4), "last_loss": round(losses[-1], 4)}))


if __name__ == "__main__":
    main(OPTIONS)

"""What every peer shares: a fair environment, timing, memory, one line of JSON.

The environment has to be set before torch is imported; peer.py restarts itself in `environment()` when it is not.
"""

import ctypes
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / "build" / "peers"  # the virtual environment; build/ is not in git
MARK = "LINNET_PEER"  # set in the environment of a peer

# Any variable that starts like this could hold a library to older cores or to other kernels than it would choose.
UNSET = ("OPENBLAS_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH", "PYTORCH_", "OMP_", "KMP_", "GOMP_", "MALLOC_",
         "XLA_", "JAX_", "TF_", "GLIBC_TUNABLES", "LD_PRELOAD", "CC", "CXX")


def plain_environment() -> dict[str, str]:
    """This process's environment without what would tilt either side."""
    return {name: value for name, value in os.environ.items() if not name.startswith(UNSET)}


def unlocked_mkl() -> str | None:
    """A library whose one function tells MKL "yes, the processor is yours"; None without a C compiler.

    MKL asks mkl_serv_intel_cpu_true() before it takes its AVX-512 kernels, whatever the processor can do; without the
    answer float32 products run at half the speed on Zen 5.
    """
    library = HOME / "mkl_vendor.so"
    if library.exists():
        return str(library)
    library.parent.mkdir(parents=True, exist_ok=True)
    draft = library.with_suffix(f".{os.getpid()}")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(draft)], check=True,
                       input=b"int mkl_serv_intel_cpu_true(void) { return 1; }")
    except (OSError, subprocess.CalledProcessError):
        print("peer: no C compiler: MKL left as it is", file=sys.stderr)
        return None
    draft.rename(library)
    return str(library)


# Holds PyTorch's own kernels and inductor's, oneDNN and MKL to an instruction set of Linnet's (--isa).
HELD_TO = {None: {}, "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                              "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}


def environment(threads: int, device: str = "cpu", isa: str | None = None) -> dict[str, str]:
    """The environment of a peer process; the caller may add to it."""
    library = unlocked_mkl() if device == "cpu" else None
    chosen = {
        MARK: "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_DYNAMIC": "false",
        "MKL_DYNAMIC": "FALSE",
        "TORCHINDUCTOR_CACHE_DIR": str(HOME / "inductor"),
    }
    if library:
        chosen["LD_PRELOAD"] = library
    return plain_environment() | chosen | HELD_TO[isa]


def memory_mb(field: str, process: int | str = "self") -> float:
    """VmRSS or VmHWM of a process in MB (10^6 bytes)."""
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":")) * 1024 / 1e6


def reset_peak() -> None:
    """Sets VmHWM back to the present VmRSS (proc(5), clear_refs); where that is forbidden the peak stays."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def keep_freed_memory() -> None:
    """Large tensors from the heap, never trimmed: else each step maps and faults in all its activations anew."""
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def seconds_since_start() -> float:
    """Seconds since the kernel started this process (proc(5), stat: field 22), to a hundredth."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Gradients:
    """The mode's way to a loss and to the gradients in the parameters' .grad."""

    apart = True  # forward() is the forward pass alone

    def forward(self, batch: tuple):
        """-> loss, a scalar tensor"""
        raise NotImplementedError

    def backward(self, loss) -> None:
        raise NotImplementedError

    def evaluate(self, batch: tuple) -> None:
        """A forward pass alone, where forward() is more than that."""


@dataclass
class Workload:
    """What a family file makes: one training step in three parts, and the data it goes over."""

    parameters: list
    gradients: "Gradients"
    update: Callable  # () -> None: clip, optimizer step, gradients gone
    batches: list[tuple]
    per_step: int  # samples or tokens
    unit: str


def evaluation_ms(workload: Workload, seconds: float) -> float:
    """Milliseconds of a forward pass alone (the median; two of warm-up)."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        workload.gradients.evaluate(workload.batches[0])
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:]) * 1e3


def measure(workload: Workload, seconds: float, split: bool) -> dict:
    """Warms up, then trains for some seconds (3 steps at least) -> the fields of the line of JSON.

    split: forward and backward times are wanted even where they have to be measured apart.
    """
    phases: list[tuple[float, float, float, float]] = []
    losses: list[float] = []

    def step() -> float:
        batch = workload.batches[len(losses) % len(workload.batches)]
        start, used = time.perf_counter(), time.process_time()
        loss = workload.gradients.forward(batch)
        forward_end = time.perf_counter()
        workload.gradients.backward(loss)
        backward_end = time.perf_counter()
        workload.update()
        losses.append(loss.item())
        end = time.perf_counter()
        phases.append((forward_end - start, backward_end - forward_end, end - start, time.process_time() - used))
        return end - start

    start = time.perf_counter()
    step()
    first_step_seconds = seconds_since_start()
    while len(losses) < 3 or (time.perf_counter() - start < min(1.0, seconds) and len(losses) < 20):
        step()
    with_warmup = memory_mb("VmHWM")
    reset_peak()

    phases.clear()
    end = time.perf_counter() + seconds
    while len(phases) < 3 or time.perf_counter() < end:
        step()
    rates = [workload.per_step / whole for _, _, whole, _ in phases]
    peak, steady = max(with_warmup, memory_mb("VmHWM")), memory_mb("VmHWM")
    forward, backward, _, processor = (statistics.median(column) * 1e3 for column in zip(*phases))
    if not workload.gradients.apart:
        backward = forward
        forward = evaluation_ms(workload, seconds / 4) if split else None
        backward = backward - forward if split else None
    return {
        "unit": workload.unit,
        "median": statistics.median(rates), "min": min(rates), "max": max(rates), "steps": len(rates),
        "per_step": workload.per_step,
        "processor_ms": round(processor, 1),
        "forward_ms": forward and round(forward, 2), "backward_ms": backward and round(backward, 2),
        "peak_mb": peak, "steady_mb": steady,
        "first_step_seconds": round(first_step_seconds, 2),
        "parameters": sum(math.prod(parameter.shape) for parameter in workload.parameters),
        "first_loss": round(losses[0], 4), "last_loss": round(losses[-1], 4),
    }

"""A workload's training steps on a GPU: peer.py --device cuda calls it.

The host waits for the GPU once a chunk of steps (about a fifth of a second), where the loss is read too; Linnet does
the same. Data lies on the device before the first step.
"""

import statistics
import time

import torch

import common
import nvml

WARMUP = 5  # steps, the first of which compiles
CHUNK_SECONDS = 0.2


def set_precision(precision: str) -> None:
    """fp32: products in fp32 and nothing else. tf32: in TF32. bf16: what autocast leaves in fp32 is TF32's, too."""
    narrow = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = narrow
    torch.backends.cudnn.allow_tf32 = narrow
    torch.backends.cudnn.benchmark = True


class Steps:
    """One training step after the other, as eager and compile run them."""

    def __init__(self, workload: common.Workload):
        self.workload, self.count = workload, 0

    def step(self):
        """Queues a step -> its loss, on the device, valid until the next one."""
        torch.compiler.cudagraph_mark_step_begin()
        batch = self.workload.batches[self.count % len(self.workload.batches)]
        self.count += 1
        return self.train(batch)

    def train(self, batch):
        loss = self.workload.gradients.forward(batch)
        self.workload.gradients.backward(loss)
        self.workload.update()
        return loss.detach()


class CapturedSteps(Steps):
    """The whole step as one CUDA graph: the batch is chosen on the device, so a step is one launch."""

    def __init__(self, workload: common.Workload):
        super().__init__(workload)
        self.data = [torch.stack(column) for column in zip(*workload.batches)]
        self.position = torch.zeros(1, dtype=torch.long, device=self.data[0].device)
        self.graph = self.loss = None

    def body(self):
        batch = tuple(column.index_select(0, self.position).squeeze(0) for column in self.data)
        loss = self.train(batch)
        self.position.add_(1).remainder_(len(self.workload.batches))
        return loss

    def step(self):
        if self.graph:
            self.graph.replay()
            return self.loss
        self.count += 1
        if self.count < WARMUP - 1:  # on a stream of its own, as capturing asks for
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                loss = self.body()
            torch.cuda.current_stream().wait_stream(side)
            return loss
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.body()
        self.graph.replay()
        return self.loss


def measure(steps: Steps, seconds: float, energy: nvml.Card) -> dict:
    """Warms up, then trains for some seconds -> the fields of the line of JSON."""
    workload = steps.workload
    first_loss = steps.step().item()
    first_step_seconds = common.seconds_since_start()
    torch.cuda.reset_peak_memory_stats()  # without what compiling and autotuning took; capturing is still to come
    for _ in range(WARMUP - 1):
        steps.step()
    torch.cuda.synchronize()
    start, trial = time.perf_counter(), 3
    for _ in range(trial):
        steps.step()
    torch.cuda.synchronize()
    chunk = max(1, int(CHUNK_SECONDS * trial / (time.perf_counter() - start)))

    rates, count, last_loss = [], 0, first_loss
    joules, begin = energy.joules(), time.perf_counter()
    while len(rates) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(chunk):
            loss = steps.step()
        last_loss = loss.item()
        rates.append(chunk * workload.per_step / (time.perf_counter() - start))
        count += chunk
    after = energy.joules()
    used = None if joules is None or after is None else (after - joules) / (count * workload.per_step)
    return {
        "unit": workload.unit, "per_step": workload.per_step,
        "median": statistics.median(rates), "min": min(rates), "max": max(rates), "steps": count,
        "memory_mb": round(torch.cuda.max_memory_allocated() / 1e6, 1),
        "reserved_mb": round(torch.cuda.max_memory_reserved() / 1e6, 1),
        "first_step_seconds": round(first_step_seconds, 2), "joules_per_unit": used,
        "parameters": sum(parameter.numel() for parameter in workload.parameters),
        "first_loss": round(first_loss, 4), "last_loss": round(last_loss, 4),
    }


def run(options, family: str) -> dict:
    """-> the line of JSON."""
    if not torch.cuda.is_available():
        raise SystemExit("peer: error: this PyTorch sees no GPU")
    device = torch.device(options.device)
    torch.cuda.set_device(device.index or 0)
    torch.manual_seed(1)
    set_precision(options.precision)
    workload = __import__(family).create(options)
    steps = (CapturedSteps if options.mode in ("captured", "graph") else Steps)(workload)
    return {"peer": "pytorch", "version": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(),
            "workload": options.workload, "mode": options.mode, "precision": options.precision,
            } | measure(steps, options.seconds, nvml.Card(options.device))

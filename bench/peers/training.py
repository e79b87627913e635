"""What the workload files share beside blocks: data from a file or made up, compilation, precision, weight decay."""

import functools
import json
from pathlib import Path

import torch
import torch.utils.checkpoint

from common import Gradients


def batches(options, names: tuple[str, ...], made_up) -> list[tuple]:
    """One tuple of tensors per batch, in the order of names; made_up() -> the same tensors as the file would hold."""
    whole = read_tensors(options.data) if options.data else made_up()
    return list(zip(*(widened(whole[name]).to(options.device) for name in names)))


DTYPES = {"U8": torch.uint8, "I32": torch.int32, "I64": torch.int64, "F32": torch.float32}


def read_tensors(path: str) -> dict:
    """The tensors of a safetensors file: a machine with PyTorch need not have the package of that name."""
    raw = bytearray(Path(path).read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, about in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            flat = torch.frombuffer(bytearray(raw[start + begin:start + end]), dtype=DTYPES[about["dtype"]])
            found[name] = flat.view(about["shape"])
    return found


def widened(tensor):
    """Indices as i64, which PyTorch wants of targets; images stay bytes."""
    return tensor if tensor.dtype == torch.uint8 else tensor.long()


def gradients(model, options) -> Gradients:
    """The model's loss and gradients as the mode computes them."""
    if options.checkpoint:
        checkpoint_blocks(model)
    return OneGraph(model, options) if options.mode == "tuned" else Autograd(model, options)


def checkpoint_blocks(model) -> None:
    """Has every layer of the model keep its input alone and compute the rest again in the backward pass."""
    for module in model.modules():
        if type(module).__name__ in ("Block", "Layer"):
            module.forward = functools.partial(torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False)


class Autograd(Gradients):
    """Forward, then backward: eager, or each a compiled graph."""

    # On a GPU "compile" has CUDA graphs of its own; "captured" and "graph" capture the whole step (on_gpu.py) and do
    # without them. "captured" takes the libraries' matrix products as they are, which compiles in half a minute.
    TUNED = {"compile": "max-autotune", "captured": "default", "graph": "max-autotune-no-cudagraphs"}

    def __init__(self, model, options):
        self.model = model
        if options.mode != "eager":
            tuned = None if options.device == "cpu" else self.TUNED[options.mode]
            self.model = torch.compile(model, fullgraph=True, dynamic=False, mode=tuned)
        self.kind = options.device.partition(":")[0]
        self.bf16 = options.precision == "bf16"

    def forward(self, batch):
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.bf16):
            return self.model(*batch)

    def backward(self, loss):
        loss.backward()


class OneGraph(Gradients):
    """Loss and gradients as one compiled graph.

    Left to itself the compiler cuts the step in two before it knows what it will fuse, and chooses to store masks of
    bool, which its vectorized code is slow to write; in one graph nothing is cut.
    """

    apart = False

    def __init__(self, model, options):
        self.parameters = list(model.parameters())
        names = [name for name, _ in model.named_parameters()]

        def loss_of(parameters, batch):
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
                return torch.func.functional_call(model, dict(zip(names, parameters)), batch)

        self.both = torch.compile(torch.func.grad_and_value(loss_of), fullgraph=True, dynamic=False)
        self.loss = torch.compile(loss_of, fullgraph=True, dynamic=False)

    @torch.no_grad()
    def forward(self, batch):
        found, loss = self.both(self.parameters, batch)
        for parameter, gradient in zip(self.parameters, found):
            parameter.grad = gradient
        return loss

    def backward(self, loss):
        pass

    @torch.no_grad()
    def evaluate(self, batch):
        self.loss(self.parameters, batch).item()


def optimizer_settings(options) -> dict:
    """Adam in one kernel; in a captured graph its step counter lies on the device."""
    return {"fused": True, "capturable": options.mode in ("captured", "graph")}


def clipped_step(parameters: list, optimizer):
    """-> a function that clips the gradients' norm at 1, updates the parameters and forgets the gradients."""

    def update():
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def decayed(model, weight_decay: float) -> list[dict]:
    """Parameter groups for AdamW: decay on matrices only."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]

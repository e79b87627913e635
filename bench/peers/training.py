"""What the workload files share beside blocks: data from a file or made up, compilation, precision, weight decay."""

import torch
from safetensors.torch import load_file

from common import Gradients


def batches(options, names: tuple[str, ...], made_up) -> list[tuple]:
    """One tuple of tensors per batch, in the order of names; made_up() -> the same tensors as the file would hold."""
    whole = load_file(options.data) if options.data else made_up()
    return list(zip(*(widened(whole[name]) for name in names)))


def widened(tensor):
    """Indices as i64, which PyTorch wants of targets; images stay bytes."""
    return tensor if tensor.dtype == torch.uint8 else tensor.long()


def gradients(model, options) -> Gradients:
    """The model's loss and gradients as the mode computes them."""
    return OneGraph(model, options) if options.mode == "tuned" else Autograd(model, options)


class Autograd(Gradients):
    """Forward, then backward: eager, or each a compiled graph."""

    def __init__(self, model, options):
        self.model = model if options.mode == "eager" else torch.compile(model, fullgraph=True, dynamic=False)
        self.bf16 = options.precision == "bf16"

    def forward(self, batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
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


def decayed(model, weight_decay: float) -> list[dict]:
    """Parameter groups for AdamW: decay on matrices only."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]

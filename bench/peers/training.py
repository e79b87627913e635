"""What the workload files share beside blocks: data from a file or made up, compilation, precision, weight decay."""

import torch
from safetensors.torch import load_file


def batches(options, names: tuple[str, ...], made_up) -> list[tuple]:
    """One tuple of tensors per batch, in the order of names; made_up() -> the same tensors as the file would hold."""
    whole = load_file(options.data) if options.data else made_up()
    return list(zip(*(widened(whole[name]) for name in names)))


def widened(tensor):
    """Indices as i64, which PyTorch wants of targets; images stay bytes."""
    return tensor if tensor.dtype == torch.uint8 else tensor.long()


def compiled(model, options):
    """The model as the mode runs it."""
    return model if options.mode == "eager" else torch.compile(model, fullgraph=True, dynamic=False)


def autocast(options):
    """A function that makes the context of a forward pass."""
    return lambda: torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16")


def decayed(model, weight_decay: float) -> list[dict]:
    """Parameter groups for AdamW: decay on matrices only."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]

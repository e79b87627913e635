"""transformers computes norms, softmax and rotary positions in float32 even where the model is float64. Within
`exact()` it stays in float64, so that its results can be compared to 1e-9."""

import contextlib

import torch


@contextlib.contextmanager
def exact():
    to, as_float, softmax = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax

    def keep(tensor, *args, **kwargs):
        narrows = torch.float32 in args or kwargs.get("dtype") is torch.float32
        return tensor if narrows and tensor.dtype is torch.float64 else to(tensor, *args, **kwargs)

    def softmax_as_given(tensor, *args, dtype=None, **kwargs):
        return softmax(tensor, *args, dtype=None if tensor.dtype is torch.float64 else dtype, **kwargs)

    torch.Tensor.to, torch.nn.functional.softmax = keep, softmax_as_given
    torch.Tensor.float = lambda tensor: tensor if tensor.dtype is torch.float64 else as_float(tensor)
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax = to, as_float, softmax

"""Weights as torch.save() writes them: tests/golden/pickled/weights.bin."""
import pathlib
from collections import OrderedDict

import torch

values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
weights = OrderedDict(
    float=values,
    half=torch.tensor([0.5, -2, 65504], dtype=torch.float16),
    bfloat=torch.tensor([1, 3], dtype=torch.bfloat16),
    transposed=values.t(),
    row=values[1],
    parameter=torch.nn.Parameter(torch.tensor([7.0])),
    empty=torch.zeros(0, 4),
    ids=torch.tensor([1 << 40, -1]),
)
folder = pathlib.Path(__file__).parent / "pickled"
folder.mkdir(exist_ok=True)
torch.save(weights, folder / "weights.bin")

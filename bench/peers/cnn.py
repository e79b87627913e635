"""CNN: images u8[B, 28, 28, 1] -> conv 16 @ 3x3 (same) -> ReLU -> max pool 2 -> dense 10, Adam 1e-3, batch 128 or 1024.

Bytes become floats in [0, 1] within the step. Channels last, as the images come.
"""

import torch
import torch.nn.functional as F
from torch import nn

import training
from common import Workload


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1).to(memory_format=torch.channels_last)
        self.dense = nn.Linear(14 * 14 * 16, 10)

    def forward(self, images, labels):
        x = images.permute(0, 3, 1, 2) * (1 / 255.0)
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.cross_entropy(self.dense(x.permute(0, 2, 3, 1).flatten(1)), labels)


def made_up(batch: int, count: int = 8) -> dict:
    return {"images": torch.randint(256, (count, batch, 28, 28, 1), dtype=torch.uint8),
            "labels": torch.randint(10, (count, batch))}


def create(options) -> Workload:
    batch = int(options.workload.removeprefix("cnn-"))
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(
        parameters=list(model.parameters()), forward=training.compiled(model, options), update=update,
        batches=training.batches(options, ("images", "labels"), lambda: made_up(batch)), per_step=batch,
        unit="samples/s", autocast=training.autocast(options))

"""CNN: images u8[B, 28, 28, 1] -> conv 16 @ 3x3 (same) -> ReLU -> max pool 2 -> dense 10, Adam 1e-3, batch 128 or 1024.

Bytes become floats in [0, 1] within the step. Channels last, as the images come.
"""

import torch
import torch.nn.functional as F
from torch import nn

import training
from common import Workload


class ReluOfPool(torch.autograd.Function):
    """relu(max over 2 x 2) of [B, H, W, C], for the compiler: its own pooling is slower than eager's by far.

    Same sums as F.max_pool2d of F.relu: the first of equal values gets the gradient. Without masks of bool.
    """

    @staticmethod
    def forward(x):
        rows = torch.maximum(x[:, ::2], x[:, 1::2])
        return torch.maximum(rows[:, :, ::2], rows[:, :, 1::2]).clamp_min(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        left = gradient * torch.where(y > 0, 1.0, 0.0)
        shares = []
        for row in (0, 1):
            for column in (0, 1):
                share = left * torch.where(x[:, row::2, column::2] == y, 1.0, 0.0)
                shares.append(share)
                left = left - share
        rows = [torch.stack(shares[:2], 3), torch.stack(shares[2:], 3)]  # of [B, H / 2, W / 2, 2, C]
        return torch.stack(rows, 2).view(x.shape)


class Model(nn.Module):
    def __init__(self, tuned: bool):
        super().__init__()
        self.tuned = tuned
        self.conv = nn.Conv2d(1, 16, 3, padding=1).to(memory_format=torch.channels_last)
        self.dense = nn.Linear(14 * 14 * 16, 10)

    def forward(self, images, labels):
        x = images.permute(0, 3, 1, 2) * (1 / 255.0)
        if self.tuned:
            x = ReluOfPool.apply(self.conv(x).permute(0, 2, 3, 1))
        else:
            x = F.max_pool2d(F.relu(self.conv(x)), 2).permute(0, 2, 3, 1)
        return F.cross_entropy(self.dense(x.flatten(1)), labels)


def made_up(batch: int, count: int = 8) -> dict:
    return {"images": torch.randint(256, (count, batch, 28, 28, 1), dtype=torch.uint8),
            "labels": torch.randint(10, (count, batch))}


def create(options) -> Workload:
    batch = int(options.workload.removeprefix("cnn-"))
    model = Model(options.mode == "tuned").to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **training.optimizer_settings(options))

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(
        parameters=list(model.parameters()), gradients=training.gradients(model, options), update=update,
        batches=training.batches(options, ("images", "labels"), lambda: made_up(batch)), per_step=batch,
        unit="samples/s")

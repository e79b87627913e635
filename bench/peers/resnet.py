"""ResNet: images u8[B, S, S, 3] -> ResNet-20 on 32 x 32 or ResNet-18 on 224 x 224, SGD with momentum, batch 128 or 8.

Bytes become floats in [0, 1] within the step. Layers and their order are torchvision's. Channels last; "tuned" leaves
the layout to the compiler instead: statistics that a step updates in place cannot be in one graph with the gradients.
"""

import torch
import torch.nn.functional as F
from torch import nn

import training
from common import Workload

SHAPES = {"resnet20": (32, 128), "resnet18": (224, 8)}  # size of the images, batch


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Model(nn.Module):
    def __init__(self, small: bool):
        super().__init__()
        widths, blocks = ((16, 32, 64), 3) if small else ((64, 128, 256, 512), 2)
        self.small = small
        self.conv1 = nn.Conv2d(3, widths[0], 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        layers, inputs = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(Block(inputs, width, 2 if stage > 0 and block == 0 else 1))
                inputs = width
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, 10)

    def forward(self, images, labels):
        x = F.relu(self.bn1(self.conv1(images.permute(0, 3, 1, 2) * (1 / 255.0))), inplace=True)
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        return F.cross_entropy(self.fc(self.layers(x).mean((2, 3))), labels)


def made_up(size: int, batch: int, count: int = 8) -> dict:
    return {"images": torch.randint(256, (count, batch, size, size, 3), dtype=torch.uint8),
            "labels": torch.randint(10, (count, batch))}


def create(options) -> Workload:
    size, batch = SHAPES[options.workload]
    tuned = options.mode == "tuned"
    layout = torch.contiguous_format if tuned else torch.channels_last
    model = Model(options.workload == "resnet20").to(options.device, memory_format=layout)
    fused = {"fused": True} if options.mode != "graph" else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, **fused)

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    gradients = training.Autograd(model, options) if tuned else training.gradients(model, options)
    return Workload(
        parameters=list(model.parameters()), gradients=gradients, update=update,
        batches=training.batches(options, ("images", "labels"), lambda: made_up(size, batch)), per_step=batch,
        unit="samples/s")

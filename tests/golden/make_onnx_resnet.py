#!/usr/bin/env python3
"""A small residual network as PyTorch exports it, which examples/library/onnx_resnet.cpp trains.

    tests/golden/make_onnx_resnet.py        needs onnx, torch

Writes onnx_resnet.onnx: input "images" f32 [batch, 3, 32, 32], output "logits" [batch, 10], weights drawn from
a seed.
"""

import os

import torch
from torch import nn

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_resnet.onnx")


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def main() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                        Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    torch.onnx.export(net.eval(), (torch.randn(2, 3, 32, 32),), OUT, dynamo=False, input_names=["images"],
                      output_names=["logits"], dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}})


main()

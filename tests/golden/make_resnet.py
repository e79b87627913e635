"""resnet.safetensors: residual networks of torchvision's layout in float64, without their weights.

Each weight is a function of its name and of its index in torchvision's layout (see `values`), which the test computes
too; so the file holds results alone. The modules are torchvision's BasicBlock, Bottleneck and ResNet in plain PyTorch,
with the same names. A case is a depth; its tensors:

    <depth>.eval_logits    in evaluation, with the running statistics as they are
    <depth>.train_logits   in training, before any update
    <depth>.loss           [1], mean cross-entropy in training; label of image i: i modulo the classes
    <depth>.grad.<name>    [9] of each parameter's gradient: its norm and its first 8 elements in torchvision's layout
    <depth>.running_mean   bn1's after the step

    pip install torch numpy safetensors
    python tests/golden/make_resnet.py
"""

import json
import os

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn

CLASSES = 10
CASES = {20: (4, 16), 18: (4, 32), 50: (4, 32)}  # depth: images, size


def values(name: str, count: int) -> np.ndarray:
    """Uniform in [-1, 1): SplitMix64 of the FNV-1a hash of the name and the index, 24 bits."""
    mask = 0xFFFFFFFFFFFFFFFF
    start = 0xCBF29CE484222325
    for byte in name.encode():
        start = ((start ^ byte) * 0x100000001B3) & mask
    x = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def weight_of(name: str, shape) -> np.ndarray:
    """Scaled so that activations keep their size; rounded to float32."""
    u = values(name, int(np.prod(shape))).reshape(shape)
    if len(shape) == 4:
        u = u * np.sqrt(6 / (shape[0] * shape[2] * shape[3]))
    elif name == "fc.weight":
        u = u / np.sqrt(shape[1])
    elif name.endswith("running_var") or name.endswith("weight"):
        u = 1 + 0.5 * u
    else:
        u = 0.1 * u
    return u.astype(np.float32).astype(np.float64)


class Block(nn.Module):
    def __init__(self, into, width, stride, bottleneck):
        super().__init__()
        out = 4 * width if bottleneck else width
        conv = lambda a, b, k, s: nn.Conv2d(a, b, k, s, k // 2, bias=False)  # noqa: E731
        if bottleneck:
            self.conv1, self.bn1 = conv(into, width, 1, 1), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = conv(width, out, 1, 1), nn.BatchNorm2d(out)
        else:
            self.conv1, self.bn1 = conv(into, width, 3, stride), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = conv(width, width, 3, 1), nn.BatchNorm2d(width)
        self.bottleneck, self.downsample = bottleneck, None
        if stride != 1 or into != out:
            self.downsample = nn.Sequential(conv(into, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(torch.relu(y)))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        small = depth % 6 == 2 and depth != 50
        blocks = [(depth - 2) // 6] * 3 if small else {18: [2, 2, 2, 2], 50: [3, 4, 6, 3]}[depth]
        width, into = (16, 16) if small else (64, 64)
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        for i, count in enumerate(blocks):
            stage = []
            for j in range(count):
                stage.append(Block(into, width, 2 if i > 0 and j == 0 else 1, depth == 50))
                into = 4 * width if depth == 50 else width
            setattr(self, f"layer{i + 1}", nn.Sequential(*stage))
            width *= 2
        self.stages = len(blocks)
        self.fc = nn.Linear(into, CLASSES)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


def main():
    torch.set_default_dtype(torch.float64)
    out = {}
    for depth, (images, size) in CASES.items():
        model = ResNet(depth)
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                if not name.endswith("num_batches_tracked"):
                    tensor.copy_(torch.from_numpy(weight_of(name, tensor.shape)))
        pixels = values("images", images * size * size * 3).reshape(images, size, size, 3)
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        with torch.no_grad():
            out[f"{depth}.eval_logits"] = model.eval()(x)
        model.train()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, torch.arange(images) % CLASSES)
        loss.backward()
        out[f"{depth}.train_logits"], out[f"{depth}.loss"] = logits, loss.reshape(1)
        for name, parameter in model.named_parameters():
            gradient = parameter.grad.reshape(-1)
            out[f"{depth}.grad.{name}"] = torch.cat([gradient.norm().reshape(1), gradient[:8]])
        out[f"{depth}.running_mean"] = model.bn1.running_mean
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "resnet.safetensors")
    save_file({name: np.ascontiguousarray(t.detach().numpy()) for name, t in out.items()}, path,
              metadata={"torch_version": json.dumps(torch.__version__)})


if __name__ == "__main__":
    main()

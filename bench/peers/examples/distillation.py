"""A small student learns from a large teacher's probabilities (Hinton et al. 2015): python distillation.py [STEPS]"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def network(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 4))


def spiral(rows: int, draw: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    labels = draw.integers(0, 4, rows)
    radius = draw.uniform(0.1, 1, rows)
    angle = 2 * radius + labels * np.pi / 2 + 0.15 * draw.normal(size=rows)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
    return torch.from_numpy(points), torch.from_numpy(labels)


def main(steps: int, rows: int = 256, temperature: float = 3.0) -> tuple[float, float]:
    draw = np.random.default_rng(1)
    teacher, student = network(128), network(8)

    optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3, fused=True)
    for _ in range(steps):
        x, labels = spiral(rows, draw)
        loss = F.cross_entropy(teacher(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2, fused=True)
    for _ in range(steps):
        x, labels = spiral(rows, draw)
        logits = student(x)
        with torch.no_grad():
            wanted = F.softmax(teacher(x) / temperature, dim=-1)
        soft = F.cross_entropy(logits / temperature, wanted)
        loss = soft * temperature**2 + F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    x, labels = spiral(2000, draw)
    with torch.inference_mode():
        accuracies = [(net(x).argmax(1) == labels).float().mean().item() for net in (teacher, student)]
    print(f"teacher {accuracies[0]:.3f}, student {accuracies[1]:.3f}")
    return accuracies[0], accuracies[1]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)

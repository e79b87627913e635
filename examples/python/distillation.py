"""A small student learns from a large teacher's probabilities (Hinton et al. 2015): python distillation.py [STEPS]"""

import sys

import linnet as ln
import numpy as np


def network(width: int) -> ln.Sequential:
    return ln.Sequential(ln.Linear(2, width), ln.tanh, ln.Linear(width, 4))


def spiral(rows: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    labels = draw.integers(0, 4, rows).astype(np.int32)
    radius = draw.uniform(0.1, 1, rows)
    angle = 2 * radius + labels * np.pi / 2 + 0.15 * draw.normal(size=rows)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), labels


def main(steps: int, rows: int = 256, temperature: float = 3.0) -> tuple[float, float]:
    draw = np.random.default_rng(1)
    teacher, student = network(128), network(8)

    def teacher_loss(x: ln.Tensor, labels: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        logits = teacher(x)
        return ln.cross_entropy(logits, labels), {"logits": logits}

    class Both(ln.Module):
        def __init__(self) -> None:
            self.teacher, self.student = teacher, student

    def student_loss(x: ln.Tensor, labels: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        logits = student(x)
        wanted = ln.softmax(ln.stop_gradient(teacher(x)) / temperature)
        soft = -(wanted * ln.log_softmax(logits / temperature)).sum() / rows
        return soft * temperature**2 + ln.cross_entropy(logits, labels).mean(), {"logits": logits}

    batch = spiral(rows, draw)
    first = ln.Learner(teacher, teacher_loss, batch, optimizer=ln.Adam())
    for _ in range(steps):
        first.step(*spiral(rows, draw), rate=5e-3)
    frozen = [ln.Group(["teacher.*"], frozen=True)]
    second = ln.Learner(Both(), student_loss, batch, optimizer=ln.Adam(), groups=frozen, shares=[first])
    for _ in range(steps):
        second.step(*spiral(rows, draw), rate=1e-2)

    x, labels = spiral(2000, draw)
    accuracies = [float((net.predict(x=x)["logits"].argmax(1) == labels).mean()) for net in (first, second)]
    print(f"teacher {accuracies[0]:.3f}, student {accuracies[1]:.3f}")
    return accuracies[0], accuracies[1]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)

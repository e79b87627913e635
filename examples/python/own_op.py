"""An op of one's own with a kernel in NumPy, checked, then trained with: python own_op.py [STEPS]"""

import sys
from typing import Any

import linnet as ln
import numpy as np


def kernel(x: Any, y: Any) -> None:
    y[...] = x + np.sin(x) ** 2


def decompose(x: ln.Tensor) -> ln.Tensor:
    return x + ln.square(ln.sin(x))


def gradient(inputs: list[ln.Tensor], outputs: list[ln.Tensor], grads: list[ln.Tensor]) -> list[ln.Tensor]:
    (x,), (grad,) = inputs, grads
    return [grad * (1.0 + 2.0 * ln.sin(x) * ln.cos(x))]


# x + sin(x)^2 (Ziyin et al. 2020): an activation for what repeats.
snake = ln.OwnOp("snake", kernel=kernel, decompose=decompose, gradient=gradient)


class Net(ln.Module):
    def __init__(self) -> None:
        self.hidden, self.out = ln.Linear(1, 64), ln.Linear(64, 1)

    def forward(self, x: ln.Tensor) -> Any:
        return self.out(snake(self.hidden(x)))


def main(steps: int) -> float:
    problems = ln.check_op(snake, [(3, 5)])
    print("\n".join(problems) or "gradient, kernel and threads agree")
    assert not problems
    x = np.linspace(-3, 3, 256, dtype=np.float32)[:, None]
    y = np.sin(2 * x) + 0.2 * x
    net = Net()

    def loss(x: ln.Tensor, y: ln.Tensor) -> ln.Loss:
        return ln.mse_loss(net(x), y)

    learner = ln.Learner(net, loss, (x, y), optimizer=ln.AdamW())
    for _ in range(steps):
        result = learner.step(x, y, rate=1e-2)
    print(f"mean squared error {result.loss:.5f}")
    return result.loss


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

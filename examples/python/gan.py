"""A generative adversarial network (Goodfellow et al. 2014) of numbers around 3: python gan.py [STEPS]. Two learners
train two parts of one model."""

import sys

import linnet as ln
import numpy as np


class Gan(ln.Module):
    def __init__(self) -> None:
        self.generator = ln.Sequential(ln.Linear(4, 32), ln.tanh, ln.Linear(32, 1))
        self.critic = ln.Sequential(ln.Linear(1, 32), ln.tanh, ln.Linear(32, 1))


def main(steps: int, rows: int = 128) -> tuple[float, float]:
    gan, draw = Gan(), np.random.default_rng(1)

    def critic_loss(real: ln.Tensor, made: ln.Tensor) -> ln.Tensor:
        return ln.softplus(-gan.critic(real)).mean() + ln.softplus(gan.critic(made)).mean()

    def generator_loss(noise: ln.Tensor) -> tuple[ln.Tensor, dict[str, ln.Tensor]]:
        made = gan.generator(noise)
        return ln.softplus(-gan.critic(made)).mean(), {"made": made}

    def noise() -> np.ndarray:
        return draw.normal(size=(rows, 4)).astype(np.float32)

    one = np.zeros((rows, 1), np.float32)
    slow = ln.Adam(beta1=0.5)
    critic = ln.Learner(gan.critic, lambda real, made: critic_loss(real, made), (one, one), optimizer=slow)
    frozen = [ln.Group(["critic.*"], frozen=True)]
    generator = ln.Learner(gan, generator_loss, (noise(),), optimizer=slow, groups=frozen, shares=[critic])

    for step in range(steps):
        made = generator.predict(noise())["made"]
        real = (3 + 0.5 * draw.normal(size=(rows, 1))).astype(np.float32)
        judged = critic.step(real, made, rate=2e-3)
        fooled = generator.step(noise(), rate=2e-3)
        if step % 200 == 199:
            print(f"step {step + 1}: critic {judged.loss:.3f}, generator {fooled.loss:.3f}, mean {made.mean():.2f}")
    made = np.concatenate([generator.predict(noise())["made"] for _ in range(8)])
    print(f"mean {made.mean():.2f} +- {made.std():.2f}; wanted 3 +- 0.5")
    return float(made.mean()), float(made.std())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

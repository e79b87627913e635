"""A generative adversarial network (Goodfellow et al. 2014) of numbers around 3: python gan.py [STEPS]"""

import sys

import torch
import torch.nn.functional as F
from torch import nn


def main(steps: int, rows: int = 128) -> tuple[float, float]:
    generator = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    critic = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=True)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=True)

    for step in range(steps):
        with torch.no_grad():
            made = generator(torch.randn(rows, 4))
        real = 3 + 0.5 * torch.randn(rows, 1)
        judged = F.softplus(-critic(real)).mean() + F.softplus(critic(made)).mean()
        critic_optimizer.zero_grad()
        judged.backward()
        critic_optimizer.step()

        fooled = F.softplus(-critic(generator(torch.randn(rows, 4)))).mean()
        generator_optimizer.zero_grad()
        fooled.backward()
        generator_optimizer.step()
        if step % 200 == 199:
            print(f"step {step + 1}: critic {judged:.3f}, generator {fooled:.3f}, mean {made.mean():.2f}")

    with torch.inference_mode():
        made = generator(torch.randn(8 * rows, 4))
    print(f"mean {made.mean():.2f} +- {made.std():.2f}; wanted 3 +- 0.5")
    return made.mean().item(), made.std().item()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

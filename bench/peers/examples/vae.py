"""A variational autoencoder (Kingma & Welling 2014) of points on a ring: python vae.py [STEPS]"""

import sys

import numpy as np
import torch
from torch import nn


class Vae(nn.Module):
    def __init__(self, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * torch.exp(log_variance * 0.5)
        return self.decoder(z), mean, log_variance


def ring(rows: int, draw: np.random.Generator) -> torch.Tensor:
    angle = draw.uniform(0, 2 * np.pi, rows)
    points = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.02 * draw.normal(size=(rows, 2))
    return torch.from_numpy(points.astype(np.float32))


def main(steps: int, rows: int = 128, latent: int = 2) -> float:
    vae, draw = Vae(latent), np.random.default_rng(1)
    optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3, fused=True)
    for step in range(steps):
        x = ring(rows, draw)
        answer, mean, log_variance = vae(x)
        error = (answer - x).square().sum() * 50.0
        divergence = (log_variance.exp() + mean.square() - log_variance - 1.0).sum() * 0.5
        loss = (error + divergence) / rows
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 199:
            print(f"step {step + 1}: {loss.item():.3f}")

    with torch.inference_mode():
        radius = vae.decoder(torch.randn(rows, latent)).norm(dim=1)
    print(f"radius of samples {radius.mean():.2f} +- {radius.std():.2f}")
    return radius.mean().item()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)

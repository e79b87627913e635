"""A variational autoencoder (Kingma & Welling 2014) of points on a ring: python vae.py [STEPS]"""

import sys

import linnet as ln
import numpy as np


class Vae(ln.Module):
    def __init__(self, latent: int) -> None:
        self.encoder = ln.Sequential(ln.Linear(2, 64), ln.relu, ln.Linear(64, 2 * latent))
        self.decoder = ln.Sequential(ln.Linear(latent, 64), ln.relu, ln.Linear(64, 2))

    def forward(self, x: ln.Tensor, noise: ln.Tensor) -> tuple[ln.Tensor, ln.Tensor, ln.Tensor]:
        mean, log_variance = ln.chunk(self.encoder(x), 2)
        z = mean + noise * ln.exp(log_variance * 0.5)
        return self.decoder(z), mean, log_variance


def ring(rows: int, draw: np.random.Generator) -> np.ndarray:
    angle = draw.uniform(0, 2 * np.pi, rows)
    return (np.stack([np.cos(angle), np.sin(angle)], 1) + 0.02 * draw.normal(size=(rows, 2))).astype(np.float32)


def main(steps: int, rows: int = 128, latent: int = 2) -> float:
    vae, draw = Vae(latent), np.random.default_rng(1)

    def loss(x: ln.Tensor, noise: ln.Tensor) -> ln.Loss:
        answer, mean, log_variance = vae(x, noise)
        error = ln.square(answer - x).sum() * 50.0
        divergence = (ln.exp(log_variance) + ln.square(mean) - log_variance - 1.0).sum() * 0.5
        return ln.Loss(error + divergence, ln.full((), rows))

    def sampled(z: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        points = vae.decoder(z)
        return ln.Loss(points.sum()), {"points": points}

    batch = (ring(rows, draw), np.zeros((rows, latent), np.float32))
    learner = ln.Learner(vae, loss, batch, optimizer=ln.Adam())
    for step in range(steps):
        noise = draw.normal(size=(rows, latent)).astype(np.float32)
        result = learner.step(ring(rows, draw), noise, rate=2e-3)
        if step % 200 == 199:
            print(f"step {step + 1}: {result.loss:.3f}")

    # The same weights, asked for points alone.
    z = draw.normal(size=(rows, latent)).astype(np.float32)
    sampler = ln.Learner(vae, sampled, {"z": z}, training=False, shares=[learner])
    radius = np.linalg.norm(sampler.predict(z=z)["points"], axis=1)
    print(f"radius of samples {radius.mean():.2f} +- {radius.std():.2f}")
    return float(radius.mean())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)

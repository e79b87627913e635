"""Losses of embeddings by sentence-transformers, and their gradients, in float64.

    python make_embedding_losses.py          needs torch and sentence-transformers

writes embedding_losses.json: a list of {"kind", "parts", "dimensions", "embeddings": [parts * rows][width], "labels",
"loss", "gradients"}. The loss is the mean over the rows, but for "cosent", whose loss is one for the batch.
"""

import json
import os

import torch
from sentence_transformers.sentence_transformer import losses

ROWS, WIDTH = 5, 6


class Given(torch.nn.Module):
    """A model whose embeddings are its inputs."""

    def get_embedding_dimension(self):
        return WIDTH

    def forward(self, features):
        return {"sentence_embedding": features["embedding"]}


def main():
    torch.manual_seed(11)
    torch.set_default_dtype(torch.float64)
    cases = []
    matryoshka = lambda kind: lambda model: losses.MatryoshkaLoss(model, kind(model), [6, 4, 2])
    in_batch, triplet = losses.MultipleNegativesRankingLoss, losses.TripletLoss
    for kind, parts, dimensions, make in [
        ("in_batch", 2, [], in_batch), ("in_batch", 3, [], in_batch), ("in_batch", 4, [6, 4, 2], matryoshka(in_batch)),
        ("triplet", 3, [], triplet), ("triplet", 3, [6, 4, 2], matryoshka(triplet)),
        ("cosent", 2, [], losses.CoSENTLoss), ("cosine", 2, [], losses.CosineSimilarityLoss),
        ("cosent", 2, [6, 4, 2], matryoshka(losses.CoSENTLoss)),
    ]:
        embeddings = [torch.randn(ROWS, WIDTH, requires_grad=True) for _ in range(parts)]
        labels = torch.tensor([0.25, 0.875, 0.25, -0.125, 0.5])
        loss = make(Given())([{"embedding": part} for part in embeddings], labels)
        gradients = torch.autograd.grad(loss, embeddings)
        cases.append({"kind": kind, "parts": parts, "dimensions": dimensions,
                      "embeddings": torch.cat(embeddings).tolist(), "labels": labels.tolist(), "loss": loss.item(),
                      "gradients": torch.cat(gradients).tolist()})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "embedding_losses.json")
    with open(path, "w") as file:
        file.write("[" + ",\n".join(json.dumps(case) for case in cases) + "]\n")


if __name__ == "__main__":
    main()

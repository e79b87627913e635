"""A convolutional network on MNIST: python mnist.py FOLDER [EPOCHS], the folder of MNIST's four files."""

import gzip
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = nn.Linear(7 * 7 * 32, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = (images / 255 - 0.1307) / 0.3081
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.out(F.relu(self.hidden(x.flatten(1))))


def read(images: str, labels: str) -> TensorDataset:
    with gzip.open(images) as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(labels) as file:
        classes = np.frombuffer(file.read(), np.uint8, offset=8)
    return TensorDataset(torch.tensor(pixels), torch.tensor(classes, dtype=torch.long))


def evaluate(net: nn.Module, batches: DataLoader) -> float:
    net.eval()
    right = 0
    with torch.inference_mode():
        for images, labels in batches:
            right += (net(images).argmax(1) == labels).sum().item()
    return right / len(batches.dataset)


def main(folder: str, epochs: int) -> float:
    train = read(f"{folder}/train-images-idx3-ubyte.gz", f"{folder}/train-labels-idx1-ubyte.gz")
    test = read(f"{folder}/t10k-images-idx3-ubyte.gz", f"{folder}/t10k-labels-idx1-ubyte.gz")
    net = Net()
    batches = DataLoader(train, batch_size=128, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    for _ in range(epochs):
        net.train()
        total = 0.0
        for images, labels in batches:
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        accuracy = evaluate(net, DataLoader(test, batch_size=1000))
        print(f"loss {total / len(batches):.4f}, accuracy {100 * accuracy:.2f}%")
    torch.save(net.state_dict(), "mnist.pt")
    return accuracy


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".", int(sys.argv[2]) if len(sys.argv) > 2 else 2)

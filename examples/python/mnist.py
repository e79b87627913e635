"""A convolutional network on MNIST: python mnist.py FOLDER [EPOCHS], the folder of MNIST's four files."""

import sys

import linnet as ln


class Net(ln.Module):
    def __init__(self) -> None:
        self.conv1 = ln.ConvReluPool(1, 16, mean=[0.1307], deviation=[0.3081])
        self.conv2 = ln.ConvReluPool(16, 32)
        self.hidden = ln.Linear(7 * 7 * 32, 128)
        self.out = ln.Linear(128, 10)

    def forward(self, images: ln.Tensor) -> ln.Tensor:
        x = self.conv2(self.conv1(images))
        return self.out(ln.relu(self.hidden(x.reshape(images.shape[0], -1))))


def main(folder: str, epochs: int) -> float:
    train = ln.Dataset.idx(f"{folder}/train-images-idx3-ubyte.gz", f"{folder}/train-labels-idx1-ubyte.gz")
    test = ln.Dataset.idx(f"{folder}/t10k-images-idx3-ubyte.gz", f"{folder}/t10k-labels-idx1-ubyte.gz")
    net = Net()

    def loss(images: ln.Tensor, labels: ln.Tensor) -> tuple[ln.Loss, dict[str, ln.Tensor]]:
        logits = net(images)
        return ln.cross_entropy(logits, labels), {"logits": logits}

    batches = ln.Loader(train, batch=128, shuffle=True, drop_last=True)
    learner = ln.Learner(net, loss, batches, optimizer=ln.AdamW(weight_decay=0.01))
    print(learner.memory())
    for _ in range(epochs):
        report = learner.fit(batches, rate=1e-3)
        result = learner.evaluate(test, ["accuracy"], batch=128)
        print(f"loss {report.loss:.4f}, accuracy {100 * result.metrics['accuracy']:.2f}%")
    learner.save("mnist.safetensors")
    return result.metrics["accuracy"]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".", int(sys.argv[2]) if len(sys.argv) > 2 else 2)

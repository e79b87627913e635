"""The examples, each with few steps: that they run and learn."""

import numpy as np


def test_mnist(mnist: str) -> None:
    import mnist as example

    assert example.main(mnist, epochs=1) > 0.95


def test_gpt() -> None:
    import gpt

    loss, sample = gpt.main("the quick brown fox jumps. " * 200, steps=120, length=32)
    assert loss < 0.5
    assert "quick" in sample


def test_translation() -> None:
    import translation

    assert translation.main("run", steps=400) == "one two three"


def test_classifier(bert: str) -> None:
    import classifier

    lines = [
        f"{'the' if i % 3 else 'a'} {'good' if i % 2 else 'bad'} film\t{'yes' if i % 2 else 'no'}\n" for i in range(64)
    ]
    for name in ("train.tsv", "valid.tsv"):
        with open(name, "w") as file:
            file.writelines(lines)
    assert classifier.main(bert, "train.tsv", "valid.tsv", "run", steps=80) > 0.95
    assert "<html" in open("run/report.html").read()


def test_embeddings(bert: str) -> None:
    import embeddings

    found = embeddings.main(bert, embeddings.TEXTS[0])
    assert found[0][1] == embeddings.TEXTS[0] and abs(found[0][0] - 1) < 1e-5


def test_chat_lora(chatter: str) -> None:
    import chat_lora

    with open("text.txt", "w") as file:
        file.write("who are you? a linnet, a bird that sings. " * 200)
    assert isinstance(chat_lora.main(chatter, "text.txt", "run", steps=20), str)


def test_vae() -> None:
    import vae

    assert abs(vae.main(600) - 1) < 0.3


def test_gan() -> None:
    import gan

    assert abs(gan.main(500)[0] - 3) < 0.5


def test_own_op() -> None:
    import own_op

    assert own_op.main(500) < 0.01


def test_distillation() -> None:
    import distillation

    teacher, student = distillation.main(200)
    assert teacher > 0.7 and student > 0.7
    assert np.isfinite(teacher)

"""What the tests of the Python package share."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "pretrained"


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> str:
    """MNIST's files where LINNET_DATA has them, else some of the same form."""
    data = os.environ.get("LINNET_DATA")
    if data and os.path.isdir(f"{data}/images/mnist"):
        return f"{data}/images/mnist"
    folder = tmp_path_factory.mktemp("mnist")
    subprocess.run([sys.executable, ROOT / "examples" / "make_mnist.py", folder], check=True)
    return str(folder)


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small BERT folder with a vocabulary."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    shutil.copytree(GOLDEN / "bert_model", folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "the", "dog", "cat"]
    (folder / "vocab.txt").write_text("".join(word + "\n" for word in words))
    return str(folder)


@pytest.fixture(scope="session")
def llama() -> str:
    """A small language model whose text is token numbers with spaces between."""
    return str(GOLDEN / "llama")


@pytest.fixture(scope="session")
def chatter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with a tokenizer of letters and a chat template."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    letters = ["<s>", "</s>", "\u0120", *"abcdefghijklmnopqrstuvwxyz.?,WA:"]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            dict(
                id=i, content=letters[i], special=True, single_word=False, lstrip=False, rstrip=False, normalized=False
            )
            for i in (0, 1)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "python"))

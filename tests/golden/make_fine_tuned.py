"""What examples/library/bert.cpp makes of a tiny BERT folder, and the logits that transformers computes with it.

    python make_fine_tuned.py PROGRAM        needs torch, transformers and safetensors; PROGRAM: the built example

Writes fine_tuned/: config.json, model.safetensors, head.safetensors and vocab.txt as the program saved them, and
logits.txt, a line for each text: its tokens, "|", two logits in float64.
"""

import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["a b c", "d e f g", "z", "h i j k l m n o", "x y x y", "q w e r t a s d f g h j"]


@torch.no_grad()
def main(program):
    folder, out = os.path.join(HERE, "pretrained", "bert_model"), os.path.join(HERE, "fine_tuned")
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        lines = os.path.join(work, "lines.tsv")
        with open(lines, "w") as file:
            file.write("text\tlabel\n" + "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(TEXTS)) * 8)
        subprocess.run([program, folder, lines, out, "5"], check=True)
    os.remove(os.path.join(out, "logits.txt"))  # Linnet's own
    model, report = transformers.BertModel.from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    model = model.double().eval()
    head = {name: tensor.double() for name, tensor in load_file(os.path.join(out, "head.safetensors")).items()}
    vocabulary = open(os.path.join(folder, "vocab.txt")).read().split("\n")
    shutil.copy(os.path.join(folder, "vocab.txt"), out)
    with open(os.path.join(out, "logits.txt"), "w") as file:
        for text in TEXTS:
            ids = [vocabulary.index(word) for word in ("[CLS] " + text + " [SEP]").split()]
            first = model(input_ids=torch.tensor([ids])).last_hidden_state[:, 0]
            hidden = torch.relu(torch.nn.functional.linear(first, head["hidden.weight"], head["hidden.bias"]))
            logits = torch.nn.functional.linear(hidden, head["out.weight"], head["out.bias"])[0].tolist()
            file.write(" ".join(map(str, ids)) + " | " + " ".join(f"{x:.10f}" for x in logits) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    main(os.path.abspath(sys.argv[1]))

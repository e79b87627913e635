"""Twenty steps of distillation in PyTorch beside `linnet train`: losses of the same teacher, student and data.

    build/peers/bin/python bench/peers/distillation.py LINNET WORK_FOLDER [--task language|classification]

Makes small random models in WORK_FOLDER, trains the student with both, and prints the largest difference of the losses as
one JSON object. Needs torch and transformers.
"""

import argparse
import array
import json
import os
import pathlib
import random
import shutil
import subprocess

import torch
import transformers
from preferences import WORDS, make_folder

STEPS, ROWS, LENGTH, RATE, TEMPERATURE, ALPHA = 20, 8, 128, 1e-3, 2.5, 0.7


def make_classifier(folder, seed, width):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(special + WORDS) + "\n")
    tokenizer = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(special) + len(WORDS), hidden_size=width, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=2 * width, max_position_embeddings=64, num_labels=3, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.2,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return tokenizer


def train_linnet(linnet, work, preset, data, more):
    run = work / "run"
    shutil.rmtree(run, ignore_errors=True)
    settings = {
        "model.from": work / "student", "teacher": work / "teacher", "temperature": TEMPERATURE, "teacher_alpha": ALPHA,
        "batch_size": ROWS, "batch_tokens": 0, "context": LENGTH, "optimizer": "adamw", "learning_rate": RATE,
        "schedule": "constant", "final_learning_rate": 0, "warmup_steps": 0, "weight_decay": 0, "beta1": 0.9,
        "beta2": 0.999, "epsilon": 1e-8, "clip_norm": 1.0, "max_steps": STEPS, "max_epochs": 0, "eval_every": STEPS,
        "save_every": 1000, "patience": 0, "precision": "fp32", **more,
    }  # fmt: skip
    command = [linnet, "train", preset, "--run", run, "--data", data]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run([str(word) for word in command], check=True, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
    return [line["loss"] for line in lines if line.get("split") == "train"]


def train_pytorch(student, teacher, logits_of, labels):
    optimizer = torch.optim.AdamW(student.parameters(), lr=RATE, weight_decay=0)
    with torch.no_grad():
        wanted = (logits_of(teacher) / TEMPERATURE).log_softmax(-1)
    losses = []
    for _ in range(STEPS):
        given = logits_of(student)
        soft = torch.nn.functional.kl_div(
            (given / TEMPERATURE).log_softmax(-1), wanted, log_target=True, reduction="batchmean"
        )
        loss = (1 - ALPHA) * torch.nn.functional.cross_entropy(given, labels) + ALPHA * TEMPERATURE**2 * soft
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
    return losses


def compare_language(linnet, work):
    make_folder(work / "student")
    make_folder(work / "teacher", seed=2, width=96)
    draw = random.Random(1)
    ids = [draw.randrange(4, 256) for _ in range(LENGTH + 1)]  # without separators; one row can be cut in one way alone
    with open(work / "text.bin", "wb") as file:
        array.array("H", ids).tofile(file)
    own = train_linnet(linnet, work, "text", work / "text.bin", {"valid_text": work / "text.bin", "batch_size": 1})
    load = lambda name: transformers.AutoModelForCausalLM.from_pretrained(work / name, dtype=torch.float32)
    rows = torch.tensor([ids[:-1]])
    return own, train_pytorch(
        load("student"), load("teacher"), lambda model: model(rows).logits.flatten(0, 1), torch.tensor(ids[1:])
    )


def compare_classification(linnet, work):
    tokenizer = make_classifier(work / "student", 1, 32)
    make_classifier(work / "teacher", 2, 48)
    draw = random.Random(1)
    texts = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 9))) for _ in range(ROWS)]
    labels = [i % 3 for i in range(ROWS)]
    with open(work / "texts.tsv", "w") as file:
        file.writelines(f"{text}\tLABEL_{label}\n" for text, label in zip(texts, labels, strict=True))
    own = train_linnet(linnet, work, "classify", work / "texts.tsv", {"valid_tsv": work / "texts.tsv"})
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    load = lambda name: transformers.AutoModelForSequenceClassification.from_pretrained(work / name)
    return own, train_pytorch(
        load("student"), load("teacher").eval(), lambda model: model(**inputs).logits, torch.tensor(labels)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("linnet")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--task", default="language", choices=["language", "classification"])
    options = parser.parse_args()
    compare = {"language": compare_language, "classification": compare_classification}[options.task]
    own, other = compare(os.path.abspath(options.linnet), options.work)
    apart = max(abs(a - b) for a, b in zip(own, other, strict=True))
    print(json.dumps({"task": options.task, "steps": len(own), "first_loss": own[0], "last_loss": own[-1],
                      "largest_difference_of_losses": apart}))  # fmt: skip


if __name__ == "__main__":
    main()

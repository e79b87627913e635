"""Fine-tuning a text classifier: python classifier.py BERT_FOLDER TRAIN.TSV VALID.TSV RUN [STEPS]. Lines of the files
are text, tab, label."""

import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BatchEncoding,
    get_linear_schedule_with_warmup,
)


def read(path: str) -> list[tuple[str, str]]:
    with open(path, encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")) for line in lines]


def endless(loader: DataLoader) -> Iterator[BatchEncoding]:
    while True:
        yield from loader


@torch.inference_mode()
def evaluate(model: nn.Module, batches: DataLoader) -> float:
    model.eval()
    right = sum((model(**batch).logits.argmax(-1) == batch["labels"]).sum().item() for batch in batches)
    model.train()
    return right / len(batches.dataset)


def main(folder: str, train: str, valid: str, run: str, steps: int) -> float:
    train_rows, valid_rows = read(train), read(valid)
    labels = sorted({label for _, label in train_rows})
    label2id = {label: i for i, label in enumerate(labels)}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(labels), label2id=label2id, id2label=dict(enumerate(labels))
    )

    def collate(rows: list[tuple[str, str]]) -> BatchEncoding:
        texts, answers = zip(*rows)
        batch = tokenizer(list(texts), padding=True, truncation=True, max_length=128, return_tensors="pt")
        batch["labels"] = torch.tensor([label2id[answer] for answer in answers])
        return batch

    batches = endless(DataLoader(train_rows, batch_size=16, shuffle=True, collate_fn=collate))
    # By length, so that little of a batch is padding.
    held_out = DataLoader(sorted(valid_rows, key=lambda row: len(row[0])), batch_size=32, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 4, steps)

    best = 0.0
    model.train()
    for step in range(1, steps + 1):
        loss = model(**next(batches)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(steps // 4, 1) == 0:
            accuracy = evaluate(model, held_out)
            print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")
            if accuracy > best:
                best = accuracy
                model.save_pretrained(run)
                tokenizer.save_pretrained(run)
            if best >= 0.999:
                break

    model = AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    texts = [text for text, _ in valid_rows[:3]]
    with torch.inference_mode():
        probabilities = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    for text, row in zip(texts, probabilities):
        print(f"{model.config.id2label[row.argmax().item()]} ({row.max():.2f}): {text}")
    return best


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]) if len(sys.argv) > 5 else 200)

"""The recipe of `linnet train sst2` in PyTorch and transformers: accuracy and time of fine-tuning a BERT on SST-2.

    build/peers/bin/python bench/peers/sst2.py MODEL_FOLDER DATA_FOLDER [--threads 2] [--seed 1] [--steps 651] [--bf16]

Prints one JSON object: dev accuracy of the checkpoint chosen, its test accuracy, seconds of training with evaluations.
"""

import argparse
import copy
import json
import random
import time

import torch
import transformers

BATCH, LENGTH, WARMUP, RATE, EVERY, POOL = 32, 64, 65, 1e-4, 217, 32


def read(path, tokenizer):
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\r\n").split("\t") for line in file]
    ids = tokenizer([text for text, _ in lines], truncation=True, max_length=LENGTH)["input_ids"]
    return [(tokens, int(label)) for tokens, (_, label) in zip(ids, lines)]


def batches(data, shuffled):
    """Batches of sequences of like length; while training in another order every epoch."""
    order = list(range(len(data)))
    if shuffled:
        random.shuffle(order)
    size = POOL * BATCH if shuffled else len(order)
    pools = [sorted(order[i : i + size], key=lambda j: len(data[j][0])) for i in range(0, len(order), size)]
    order = [j for pool in pools for j in pool]
    result = [[data[j] for j in order[i : i + BATCH]] for i in range(0, len(order), BATCH)]
    if shuffled:
        random.shuffle(result)
    return result


def tensors(batch):
    length = max(len(tokens) for tokens, _ in batch)
    ids = torch.tensor([tokens + [0] * (length - len(tokens)) for tokens, _ in batch])
    mask = torch.tensor([[1] * len(tokens) + [0] * (length - len(tokens)) for tokens, _ in batch])
    return ids, mask, torch.tensor([label for _, label in batch])


@torch.inference_mode()
def accuracy(model, data):
    model.eval()
    right = 0
    for batch in batches(data, False):
        ids, mask, labels = tensors(batch)
        right += (model(input_ids=ids, attention_mask=mask).logits.argmax(-1) == labels).sum().item()
    model.train()
    return right / len(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=651)
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    model = transformers.BertForSequenceClassification.from_pretrained(arguments.model, num_labels=2).train()
    train, dev, test = (read(f"{arguments.data}/{name}.tsv", tokenizer) for name in ("train", "dev", "test"))

    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=RATE, fused=True)
    rate = lambda step: min((step + 1) / WARMUP, (arguments.steps - step - 1) / (arguments.steps - WARMUP))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    best, weights, step, began = 0.0, None, 0, time.perf_counter()
    while step < arguments.steps:
        for batch in batches(train, True)[: arguments.steps - step]:
            ids, mask, labels = tensors(batch)
            with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % EVERY == 0 or step == arguments.steps:
                now = accuracy(model, dev)
                if now > best:
                    best, weights = now, copy.deepcopy(model.state_dict())
    seconds = time.perf_counter() - began
    model.load_state_dict(weights)
    print(json.dumps({"dev_accuracy": best, "test_accuracy": accuracy(model, test), "seconds": seconds,
                      "steps": step, "torch": torch.__version__, "transformers": transformers.__version__}))


if __name__ == "__main__":
    main()

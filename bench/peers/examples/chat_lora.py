"""Adapters for a language model, trained on a text, then a conversation: python chat_lora.py FOLDER TEXT RUN [STEPS]"""

import math
import sys
from collections.abc import Iterator

import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

CONTEXT = 32


def endless(loader: DataLoader) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


@torch.inference_mode()
def evaluate(model: nn.Module, batches: DataLoader) -> float:
    model.eval()
    losses = [model(input_ids=batch, labels=batch).loss.item() for batch in batches]
    model.train()
    return sum(losses) / len(losses)


def main(folder: str, text: str, run: str, steps: int) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(model, config)

    with open(text, encoding="utf-8") as file:
        ids = tokenizer(file.read(), return_tensors="pt").input_ids[0]
    chunks = ids.unfold(0, CONTEXT + 1, CONTEXT)
    split = len(chunks) * 9 // 10
    batches = endless(DataLoader(chunks[:split], batch_size=4, shuffle=True))
    held_out = DataLoader(chunks[split:], batch_size=4)

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    warmup = max(steps // 4, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
    )
    model.train()
    for _ in range(steps):
        batch = next(batches)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
    print(f"loss {evaluate(model, held_out)} after {steps} steps")
    model.save_pretrained(run)
    tokenizer.save_pretrained(run)

    model = AutoPeftModelForCausalLM.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    question = "Who are you?"
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    else:  # a folder without a chat template goes on from a text
        prompt = tokenizer(question, return_tensors="pt")
    torch.manual_seed(1)
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    with torch.inference_mode():
        (written,) = model.generate(
            **prompt, max_new_tokens=20, do_sample=True, temperature=0.7, top_k=0, streamer=streamer
        )
    return tokenizer.decode(written[prompt["input_ids"].shape[1] :], skip_special_tokens=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 100)

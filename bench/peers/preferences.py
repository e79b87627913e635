"""Twenty steps of DPO or IPO in TRL beside `linnet train preferences`: losses and rewards of the same folder and pairs.

    build/peers/bin/python bench/peers/preferences.py LINNET WORK_FOLDER [--loss dpo] [--form texts|messages]

Makes a small random Llama with a tokenizer and a chat template in WORK_FOLDER, trains it with both, and prints the largest
differences as one JSON object. ORPO is compared with its formula in PyTorch. Needs torch, transformers and trl.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess

import tokenizers
import torch
import transformers

STEPS, PAIRS, RATE, BETA = 20, 12, 1e-3, 0.3
TEMPLATE = (  # ChatML
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "red green blue large small tree house river runs sleeps slowly never always under over seven".split()


def make_folder(folder, seed=1, width=64):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    # PyTorch does not train the embedding of the padding token (padding_idx). The end token, which ends every turn of a
    # prompt, is trained; as padding it would not be, and losses of messages, not those of texts, would differ by 1e-2.
    special = ["<|im_end|>", "<|im_start|>", "<|pad|>"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(fast),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        pad_token_id=fast.pad_token_id,
        initializer_range=0.1,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return fast


def make_pairs(form):
    draw = random.Random(1)
    sentence = lambda: " ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 9)))
    pairs = [{"prompt": sentence() + "?", "chosen": " " + sentence(), "rejected": " " + sentence()} for _ in range(PAIRS)]
    if form == "texts":
        return pairs
    turn = lambda role, text: [{"role": role, "content": text}]
    roles = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    return [{key: turn(roles[key], text) for key, text in pair.items()} for pair in pairs]


def train_linnet(linnet, work, loss, smoothing):
    run = work / "run"
    shutil.rmtree(run, ignore_errors=True)
    settings = {
        "model.from": work / "model", "valid_text": work / "pairs.jsonl", "batch_size": PAIRS, "context": 128,
        "lora.rank": 0, "lora.alpha": 16, "lora.base_storage": "fp32", "preferences.method": loss, "beta": BETA,
        "label_smoothing": smoothing, "learning_rate": RATE, "schedule": "constant", "final_learning_rate": 0,
        "warmup_steps": 0, "max_steps": STEPS, "max_epochs": 0, "eval_every": 1, "save_every": 1000, "patience": 0,
    }  # fmt: skip
    command = [linnet, "train", "preferences", "--run", run, "--data", work / "pairs.jsonl"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run([str(word) for word in command], check=True, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
    trained = [line["loss"] for line in lines if line.get("split") == "train"]
    # What an evaluation finds after a step is what the next step begins with.
    rewards = [[line["chosen_reward"], line["rejected_reward"], line["accuracy"]]
               for line in lines if line.get("split") != "train"]  # fmt: skip
    return trained, rewards[: STEPS - 1]


def train_trl(work, loss):
    import datasets
    import trl

    arguments = trl.DPOConfig(
        output_dir=str(work / "trl"), max_steps=STEPS, per_device_train_batch_size=PAIRS, learning_rate=RATE, beta=BETA,
        loss_type={"dpo": ["sigmoid"], "ipo": ["ipo"]}[loss], lr_scheduler_type="constant", warmup_steps=0,
        optim="adamw_torch", adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0,
        logging_steps=1, save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[],
        max_length=128,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_pretrained(work / "model", dtype=torch.float32)
    trainer = trl.DPOTrainer(
        model=model,
        ref_model=transformers.AutoModelForCausalLM.from_pretrained(work / "model", dtype=torch.float32),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(make_pairs_of(work)),
        processing_class=transformers.AutoTokenizer.from_pretrained(work / "model"),
    )
    trainer.train()
    history = [line for line in trainer.state.log_history if "loss" in line]
    rewards = [[line["rewards/chosen"], line["rewards/rejected"], line["rewards/accuracies"]] for line in history]
    return [line["loss"] for line in history], rewards[1:]


def make_pairs_of(work):
    return [json.loads(line) for line in open(work / "pairs.jsonl")]


def encoded(tokenizer, pair, side):
    """The tokens of a prompt with an answer, and how many are the prompt's."""
    if isinstance(pair["prompt"], str):
        prompt = tokenizer(pair["prompt"])["input_ids"]
        return tokenizer(pair["prompt"] + pair[side])["input_ids"] + [tokenizer.eos_token_id], len(prompt)
    render = lambda messages, begin: tokenizer(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=begin), add_special_tokens=False
    )["input_ids"]
    return render(pair["prompt"] + pair[side], False), len(render(pair["prompt"], True))


def train_formula(work, loss, smoothing):
    """The same in PyTorch alone: DPO with label smoothing, and ORPO."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(work / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(work / "model", dtype=torch.float32)
    pairs = [[encoded(tokenizer, pair, side) for side in ("chosen", "rejected")] for pair in make_pairs_of(work)]

    def scores():
        rows = []
        for side in (0, 1):
            for pair in pairs:
                ids, prompt = pair[side]
                logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
                found = logits.gather(1, torch.tensor(ids[1:])[:, None])[prompt - 1 :, 0]
                rows.append(found.mean() if loss == "orpo" else found.sum())
        return torch.stack(rows).view(2, -1)

    reference = torch.zeros(2, len(pairs)) if loss == "orpo" else scores().detach()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0)
    losses, rewards = [], []
    sigmoid = torch.nn.functional.logsigmoid
    for _ in range(STEPS):
        chosen, rejected = scores() - reference
        rewards.append([(BETA * chosen).mean().item(), (BETA * rejected).mean().item(),
                        (chosen > rejected).float().mean().item()])  # fmt: skip
        if loss == "orpo":
            odds = lambda x: x - torch.log1p(-torch.exp(x))
            value = -chosen - BETA * sigmoid(odds(chosen) - odds(rejected))
        else:
            z = BETA * (chosen - rejected)
            value = -sigmoid(z) * (1 - smoothing) - sigmoid(-z) * smoothing
        value = value.mean()
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return losses, rewards[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("linnet")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--loss", default="dpo", choices=["dpo", "ipo", "orpo"])
    parser.add_argument("--form", default="texts", choices=["texts", "messages"])
    parser.add_argument("--smoothing", type=float, default=0)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    make_folder(options.work / "model")
    with open(options.work / "pairs.jsonl", "w") as file:
        for pair in make_pairs(options.form):
            file.write(json.dumps(pair) + "\n")
    own, own_rewards = train_linnet(os.path.abspath(options.linnet), options.work, options.loss, options.smoothing)
    by_formula = options.loss == "orpo" or options.smoothing > 0
    if by_formula:
        other, other_rewards = train_formula(options.work, options.loss, options.smoothing)
    else:
        other, other_rewards = train_trl(options.work, options.loss)
    apart = lambda a, b: max(abs(x - y) for x, y in zip(a, b, strict=True))
    flat = lambda rows: [value for row in rows for value in row]
    print(json.dumps({
        "loss": options.loss, "form": options.form, "beside": "PyTorch" if by_formula else "TRL", "steps": len(own),
        "first_loss": own[0], "last_loss": own[-1], "last_rewards": own_rewards[-1],
        "largest_difference_of_losses": apart(own, other),
        "largest_difference_of_rewards": apart(flat(own_rewards), flat(other_rewards)),
    }))  # fmt: skip


if __name__ == "__main__":
    main()

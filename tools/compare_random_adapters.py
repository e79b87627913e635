#!/usr/bin/env python3
"""Random LoRA adapters that PEFT writes for the tiny models of tests/golden/pretrained, merged by Linnet.

    tools/compare_random_adapters.py LINNET [--first 0] [--count 100] [--only llama,bert_classifier,...]

LINNET is the program. Adapters have random targets, ranks, alphas, biases, magnitudes (DoRA) and modules trained in
full. What `linnet convert --merge` writes is loaded by transformers, and its outputs in float64 are those of PEFT. Needs
torch, transformers and peft. Ends with 1 when a number differs by more than 1e-5 of the largest.
"""

import argparse
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers

FOLDERS = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/pretrained"
MOST = 1e-5
# "task_type" by the ends of architectures.
TASKS = {
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "MTModel": "SEQ_2_SEQ_LM",
    "Model": "FEATURE_EXTRACTION",
}


def flip(r, share=0.3):
    return r.random() < share


def load(name, folder, more_tokens=0):
    model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if more_tokens:
        model.resize_token_embeddings(model.config.vocab_size + more_tokens)
    return model.eval()


def settings(r, model, task):
    """A random LoraConfig for the linear layers of a model."""
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    linear = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    heads = ("lm_head", "embed_out", "classifier", "score", "decoder", "out_proj")
    parts = sorted({name.split(".")[-1] for name in linear if not name.startswith(heads) and "." in name})
    parts = [part for part in parts if not part.isdigit() and part not in heads]
    some = r.sample(parts, r.randint(1, len(parts)))
    if flip(r, 0.2) and "lm_head" in linear and not model.config.tie_word_embeddings:
        some.append("lm_head")
    choice = {"target_modules": r.choice([some, ".*\\.(" + "|".join(some) + ")"])}
    if flip(r, 0.2) and task == "CAUSAL_LM":
        choice["target_modules"] = "all-linear"
    found = dict(task_type=task, r=r.choice([1, 2, 3]), lora_alpha=r.choice([1, 4, 7]), **choice)
    found["use_dora"], found["use_rslora"] = flip(r), flip(r)
    found["bias"] = r.choice(["none", "none", "none", "all", "lora_only"])
    if flip(r):
        found["rank_pattern"] = {r.choice(parts): r.choice([1, 4])}
    if flip(r):
        found["alpha_pattern"] = {r.choice(parts): r.choice([2, 9])}
    if flip(r) and isinstance(choice["target_modules"], list):
        found[r.choice(["layers_to_transform", "exclude_modules"])] = [1] if flip(r, 0.5) else [0]
        if "exclude_modules" in found:
            found["exclude_modules"] = ".*1.*"
    if flip(r) and task == "CAUSAL_LM" and "lm_head" not in some:
        tied = model.config.tie_word_embeddings
        choices = [["embed_tokens"], ["norm"]] + ([] if tied else [["lm_head"], ["embed_tokens", "lm_head"]])
        found["modules_to_save"], found["ensure_weight_tying"] = r.choice(choices), tied
    return peft.LoraConfig(fan_in_fan_out="gpt2" in model.config.model_type, **found)


def outputs(model, task):
    ids = torch.tensor([[3 * i % 29 for i in range(7 * row, 7 * row + 7)] for row in range(2)])
    more = {"decoder_input_ids": ids} if task == "SEQ_2_SEQ_LM" else {}
    if not any(name.endswith("experts") for name, _ in model.named_modules()):  # whose products have no float64
        model = copy.deepcopy(model).double()
    with torch.no_grad():
        found = model(input_ids=ids, **more)
    return found.last_hidden_state if task == "FEATURE_EXTRACTION" else found.logits


def compare(linnet, name, seed, scratch):
    folder = FOLDERS / name
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    task = next((word for ending, word in TASKS.items() if architecture.endswith(ending)), None)
    if task is None or not hasattr(transformers, architecture):
        return None
    r = random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    more_tokens = r.choice([0, 0, 1, 3]) if task == "CAUSAL_LM" else 0
    model = load(architecture, folder, more_tokens)
    plain = outputs(model, task)
    adapted = peft.get_peft_model(model, settings(r, model, task))
    with torch.no_grad():
        for key, value in adapted.named_parameters():
            if "lora_magnitude" in key:
                value.mul_(1 + 0.3 * torch.rand_like(value))
            elif value.requires_grad:
                value.add_(torch.randn_like(value) * (0.3 if "lora_" in key else 0.05))
    adapter, out = os.path.join(scratch, "adapter"), os.path.join(scratch, "out")
    adapted.save_pretrained(adapter)
    base = load(architecture, folder, more_tokens)
    wanted = outputs(peft.PeftModel.from_pretrained(base, adapter).eval(), task)
    command = [linnet, "convert", folder, out, "--merge", adapter]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().split("\n")[-1])
    found, largest = outputs(load(architecture, out), task), wanted.abs().max()
    return ((found - wanted).abs().max() / largest).item(), ((plain - wanted).abs().max() / largest).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    names = sorted(path.parent.name for path in FOLDERS.glob("*/config.json"))
    parser.add_argument("--only", type=lambda text: text.split(","), default=names)
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    linnet, bad = os.path.abspath(a.linnet), 0
    for seed in range(a.first, a.first + a.count):
        name = a.only[seed % len(a.only)]
        with tempfile.TemporaryDirectory() as scratch:
            try:
                found = compare(linnet, name, seed, scratch)
            except Exception as error:  # settings that PEFT or Linnet refuses are told
                print(f"{name} {seed}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
                continue
        if found is None:
            continue
        error, moved = found
        print(f"{name} {seed}: {error:.1e} of {moved:.1e}{'' if error <= MOST else ' DIFFERS'}", flush=True)
        bad += not error <= MOST
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Adapter folders that PEFT writes for the tiny checkpoints in pretrained/, and the weights that it merges them into.

    tests/golden/make_lora.py [NAME...]    needs torch, transformers and peft; writes lora/<name>/

adapter_config.json and adapter_model.safetensors are as PeftModel.save_pretrained() writes them; merged.safetensors holds
the tensors of merge_and_unload() that differ from the checkpoint's, under the checkpoint's names. logits.safetensors
holds what the adapted model computes in float64, of two rows of seven tokens; an encoder-decoder has none.
"""

import json
import os
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {
    "gpt2": ("gpt2", "GPT2LMHeadModel", dict(task_type="CAUSAL_LM", r=3, lora_alpha=6, fan_in_fan_out=True,
                                             target_modules=["c_attn", "mlp.c_proj"], use_rslora=True)),
    "bert_classifier": ("bert_classifier", "BertForSequenceClassification",
                        dict(task_type="SEQ_CLS", r=2, lora_alpha=8, target_modules=["query", "value"],
                             modules_to_save=["classifier", "pooler.dense"])),
    "llama": ("llama", "LlamaForCausalLM", dict(task_type="CAUSAL_LM", r=4, lora_alpha=4,
                                                target_modules="all-linear")),
    "t5": ("t5", "T5ForConditionalGeneration", dict(task_type="SEQ_2_SEQ_LM", r=2, lora_alpha=16,
                                                    target_modules=["q", "v", "wi"])),
    # Its projections also project embeddings of distances.
    "deberta_classifier": ("deberta_classifier", "DebertaV2ForSequenceClassification",
                           dict(task_type="SEQ_CLS", r=2, lora_alpha=8,
                                target_modules=["query_proj", "key_proj", "value_proj"], modules_to_save=["classifier", "pooler.dense"])),
    # Queries, keys and values are one tensor, head by head.
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", dict(task_type="CAUSAL_LM", r=3, lora_alpha=6,
                                                        target_modules=["query_key_value", "dense_4h_to_h"])),
    # Magnitudes, a head with an adapter, embeddings trained in full.
    "llama_dora": ("llama", "LlamaForCausalLM",
                   dict(task_type="CAUSAL_LM", r=2, lora_alpha=6, use_dora=True, modules_to_save=["embed_tokens"],
                        target_modules=r".*\.(q_proj|down_proj)|lm_head")),
    # The pooler has an adapter, layers have ranks and alphas of their own, biases are trained.
    "bert_all": ("bert_classifier", "BertForSequenceClassification",
                 dict(task_type="SEQ_CLS", r=2, lora_alpha=8, target_modules="all-linear", bias="all",
                      rank_pattern={"query": 3}, alpha_pattern={"layer.1.intermediate.dense": 5})),
    # Embeddings that are the output layer too.
    "llama_tied": ("llama_tied", "LlamaForCausalLM",
                   dict(task_type="CAUSAL_LM", r=2, target_modules=["v_proj"], modules_to_save=["embed_tokens"],
                        ensure_weight_tying=True)),
    # Two tokens more than the checkpoint has.
    "llama_tokens": ("llama", "LlamaForCausalLM",
                     dict(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"],
                          modules_to_save=["embed_tokens", "lm_head"])),
}
NEW_TOKENS = {"llama_tokens": 2}


def load_base(name, folder, architecture):
    model = getattr(transformers, architecture).from_pretrained(folder, dtype=torch.float32)
    if name in NEW_TOKENS:
        model.resize_token_embeddings(model.config.vocab_size + NEW_TOKENS[name])
    return model


def make(name, folder, architecture, settings):
    torch.manual_seed(1)
    base = os.path.join(HERE, "pretrained", folder)
    model = load_base(name, base, architecture)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings))
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    out = os.path.join(HERE, "lora", name)
    shutil.rmtree(out, ignore_errors=True)
    adapted.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    path = os.path.join(out, "adapter_config.json")
    with open(path) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = "tests/golden/pretrained/" + folder
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")
    merged = adapted.merge_and_unload().state_dict()
    changed = {key: value.contiguous() for key, value in merged.items()
               if key not in before or not torch.equal(value, before[key])}
    if model.config.tie_word_embeddings:
        changed.pop("lm_head.weight", None)
    save_file(changed, os.path.join(out, "merged.safetensors"), {"format": "pt"})
    print(name, len(changed), "tensors changed")


def write_logits(name, folder, architecture):
    base = os.path.join(HERE, "pretrained", folder)
    out = os.path.join(HERE, "lora", name)
    model = load_base(name, base, architecture)
    adapted = peft.PeftModel.from_pretrained(model, out).eval().double()
    tokens = torch.tensor([[3 * i % 29 for i in range(7 * row, 7 * row + 7)] for row in range(2)])
    with torch.inference_mode():
        logits = adapted(input_ids=tokens).logits
    save_file({"logits": logits.contiguous()}, os.path.join(out, "logits.safetensors"))
    print(name, "logits", list(logits.shape))


for case, (checkpoint, kind, options) in CASES.items():
    if case not in sys.argv[1:] and len(sys.argv) > 1:
        continue
    make(case, checkpoint, kind, options)
    if kind != "T5ForConditionalGeneration":
        write_logits(case, checkpoint, kind)

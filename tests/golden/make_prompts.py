#!/usr/bin/env python3
"""What transformers feeds a decoder-only model for a prompt, of small tokenizer folders.

    tests/golden/make_prompts.py        writes tests/golden/tokenizers/prompts.json

Needs transformers and sentencepiece. Each case is a folder of one of tests/golden/tokenizers' tokenizers, with another
template ("post_processor") or none, and a tokenizer_config.json.
"""
import json
import os
import shutil
import tempfile

from transformers import AutoTokenizer

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
PROMPTS = ["A gentle hum", "", " two  spaces", "the </s> end", "naïve 世界 don't"]


def template(begin, end):
    item = lambda name, segment: {"SpecialToken": {"id": name, "type_id": segment}}
    around = lambda text, segment: (
        ([item("<s>", segment)] if begin else []) + [{"Sequence": {"id": text, "type_id": segment}}] + ([item("</s>", segment)] if end else []))
    tokens = {name: {"id": name, "ids": [i], "tokens": [name]} for i, name in enumerate(["<s>", "</s>"])}
    return {"type": "TemplateProcessing", "single": around("A", 0), "pair": around("A", 0) + around("B", 1), "special_tokens": tokens}


llama = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
fast = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
gpt2 = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
cases = {
    "template": ("llama.json", template(True, False), fast),
    "template_with_end": ("llama.json", template(True, True), fast),
    "byte_level_template": ("llama3.json", template(True, False), fast),
    "no_template": ("llama3.json", None, fast),
    "llama_model": ("spbpe.model", None, {**llama, "add_bos_token": True}),
    "llama_model_without": ("spbpe.model", None, {**llama, "add_bos_token": False}),
    "llama_model_with_end": ("spbpe.model", None, {**llama, "add_bos_token": True, "add_eos_token": True}),
    "gpt2_files": ("gpt2.json", "files", gpt2),
    "gpt2_files_with_begin": ("gpt2.json", "files", {**gpt2, "add_bos_token": True}),
}
golden = {"prompts": PROMPTS, "cases": {}}
for name, (file, post, config) in cases.items():
    with tempfile.TemporaryDirectory() as folder:
        if file.endswith(".model"):
            shutil.copy(f"{FOLDER}/{file}", f"{folder}/tokenizer.model")
        else:
            with open(f"{FOLDER}/{file}") as source:
                tokenizer = json.load(source)
            if post == "files":
                with open(f"{folder}/vocab.json", "w") as out:
                    json.dump(tokenizer["model"]["vocab"], out)
                with open(f"{folder}/merges.txt", "w") as out:
                    out.write("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in tokenizer["model"]["merges"]))
            else:
                tokenizer["post_processor"] = post
                with open(f"{folder}/tokenizer.json", "w") as out:
                    json.dump(tokenizer, out)
        with open(f"{folder}/tokenizer_config.json", "w") as out:
            json.dump(config, out)
        with open(f"{folder}/config.json", "w") as out:
            json.dump({"model_type": "gpt2" if post == "files" else "llama"}, out)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        golden["cases"][name] = {"file": file, "post_processor": post, "config": config,
                                 "ids": [tokenizer(prompt).input_ids for prompt in PROMPTS]}
with open(f"{FOLDER}/prompts.json", "w") as file:
    json.dump(golden, file, separators=(",", ":"))

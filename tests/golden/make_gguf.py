"""Files of llama.cpp, made of the tiny model folders of pretrained/ by the package gguf: see gguf/README.

    python make_gguf.py         needs gguf, torch, transformers, safetensors and numpy

gguf/<name>.gguf          a folder of pretrained/ as llama.cpp's converter writes it; its values are those of the folder
gguf/blocks.gguf          a Llama whose tensors have every type that Linnet reads
gguf/blocks.safetensors   tensor.<name>: what gguf makes of each, as fp32; tokens, and logits that transformers
                          computes in float64 with these
gguf/bpe, gguf/spm.gguf   tokenizers alone
"""

import json
import os

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
PRETRAINED, OUT = os.path.join(HERE, "pretrained"), os.path.join(HERE, "gguf")

# Folder: architecture. Llama's rows are permuted, of Gemma's norms 1 is added, of GPT-2's matrices all are transposed.
FOLDERS = {"llama": "llama", "llama_scaled": "llama", "llama_biases": "llama", "mixtral": "llama", "qwen2": "qwen2",
           "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3",
           "phi3": "phi3", "olmo2": "olmo2", "olmoe": "olmoe", "granite": "granite", "gpt_neox": "gptneox",
           "starcoder2": "starcoder2", "gpt2": "gpt2"}
PAIRS = {"llama", "granite"}


def permuted(rows, heads):
    """llama.cpp turns neighbors, transformers rows that are half a head apart."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def add_keys(writer, arch, config):
    def add(method, *keys):
        for key in keys:
            if config.get(key) is not None:
                return getattr(writer, method)(config[key])

    add("add_context_length", "n_positions", "max_position_embeddings")
    add("add_embedding_length", "n_embd", "hidden_size")
    writer.add_feed_forward_length(config.get("intermediate_size") or config.get("n_inner") or 4 * config["n_embd"])
    add("add_block_count", "n_layer", "num_hidden_layers")
    add("add_head_count", "n_head", "num_attention_heads")
    if arch not in ("gpt2", "gptneox"):
        add("add_head_count_kv", "num_key_value_heads", "num_attention_heads")
    add("add_layer_norm_rms_eps", "rms_norm_eps")
    add("add_layer_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
    add("add_key_length", "head_dim")
    add("add_value_length", "head_dim")
    if arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(config["sliding_window"])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    add("add_expert_count", "num_local_experts", "num_experts")
    add("add_expert_used_count", "num_experts_per_tok")
    add("add_expert_feed_forward_length", "moe_intermediate_size")
    if arch == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if arch == "gptneox":
        writer.add_parallel_residual(config["use_parallel_residual"])
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if arch != "gpt2":
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(int(size * rope.get("partial_rotary_factor", 1)))
    if rope.get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** -(np.arange(0, size, 2, dtype=np.float64) / size)
        turns = rope["original_max_position_embeddings"] * plain / (2 * np.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        share = np.clip((turns - low) / (high - low), 0, 1)
        scaled = (1 - share) * plain / rope["factor"] + share * plain
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))


def tensors_of(arch, config, weights):
    """As llama.cpp's converter has them: names and values."""
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    layers = config.get("num_hidden_layers") or config["n_layer"]
    names = gguf.get_tensor_name_map(kind, layers)
    experts = {}
    for name, value in weights.items():
        if ".experts." in name:
            before, after = name.split(".experts.")
            number, part = after.split(".", 1)
            experts.setdefault(f"{before}.experts.{part}", {})[int(number)] = value
            continue
        if arch in PAIRS and ".q_proj." in name:
            value = permuted(value, config["num_attention_heads"])
        if arch in PAIRS and ".k_proj." in name:
            value = permuted(value, config["num_key_value_heads"])
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            value = value + 1
        if arch == "gpt2" and value.ndim == 2 and ".h." in name:
            value = value.T
        if arch == "gptneox" and ".query_key_value." in name:
            heads = config["num_attention_heads"]
            value = value.reshape(heads, 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
        yield names.get_name(name, try_suffixes=(".weight", ".bias")), value
    for name, values in experts.items():
        yield (names.get_name(name, try_suffixes=(".weight",)), np.stack([values[i] for i in range(len(values))]))


def add_no_tokenizer(writer):
    writer.add_tokenizer_model("none")


def convert(name, arch):
    folder = os.path.join(PRETRAINED, name)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    writer = gguf.GGUFWriter(os.path.join(OUT, name + ".gguf"), arch)
    add_keys(writer, arch, config)
    add_no_tokenizer(writer)
    for tensor, value in tensors_of(arch, config, load_file(os.path.join(folder, "model.safetensors"))):
        writer.add_tensor(tensor, np.ascontiguousarray(value, np.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    for folder, architecture in FOLDERS.items():
        convert(folder, architecture)

"""Files of llama.cpp, made of the tiny model folders of pretrained/ by the package gguf.

    python make_gguf.py         needs gguf, torch, transformers, safetensors and numpy

gguf/<name>.gguf          a folder of pretrained/ as llama.cpp's converter writes it; its values are those of the folder
gguf/blocks.gguf          a Llama whose tensors have every type that Linnet reads
gguf/blocks.safetensors   tensor.<name>: what gguf makes of each, as fp32; tokens, and logits that transformers
                          computes in float64 with these

The other families are written by Linnet and read again, by its tests.
"""

import json
import os

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from exact_float64 import exact
from make_decoders import make_exact
from pretrained_common import disturb, prepare

HERE = os.path.dirname(os.path.abspath(__file__))
PRETRAINED, OUT = os.path.join(HERE, "pretrained"), os.path.join(HERE, "gguf")

# Folder: architecture. Llama's rows are permuted, of Gemma's norms 1 is added, of GPT-2's matrices all are transposed.
FOLDERS = {"llama": "llama", "llama_scaled": "llama", "qwen2": "qwen2", "qwen3_moe": "qwen3moe", "gemma2": "gemma2",
           "phi3": "phi3", "gpt_neox": "gptneox", "starcoder2": "starcoder2", "gpt2": "gpt2"}
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
    if arch in ("gemma2", "gemma3", "phi3"):
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


# The types of blocks.gguf: one that the package writes, or random blocks of one that it only reads.
BLOCKS = {"token_embd.weight": "Q8_0", "output.weight": "Q4_0", "blk.0.attn_q.weight": "Q8_0",
          "blk.0.attn_k.weight": "Q4_0", "blk.0.attn_v.weight": "Q4_1", "blk.0.attn_output.weight": "Q5_0",
          "blk.0.ffn_gate.weight": "Q5_1", "blk.0.ffn_up.weight": "F16", "blk.0.ffn_down.weight": "Q4_K",
          "blk.1.attn_q.weight": "Q5_1", "blk.1.attn_k.weight": "BF16", "blk.1.ffn_down.weight": "Q5_K",
          "blk.2.attn_v.weight": "F16", "blk.2.ffn_gate.weight": "Q4_1", "blk.2.ffn_down.weight": "Q6_K"}
SCALES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}  # where the halves of a block lie


def random_blocks(kind, count, random):
    data = random.integers(0, 256, (count, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    for at in SCALES[kind.name]:
        scales = random.uniform(1e-4, 4e-4, count).astype(np.float16)
        data[:, at:at + 2] = scales.view(np.uint8).reshape(count, 2)
    return data


def make_blocks():
    config = transformers.LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=256, num_hidden_layers=3,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                      rms_norm_eps=1e-5, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config)
    disturb(model, 31)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    writer = gguf.GGUFWriter(os.path.join(OUT, "blocks.gguf"), "llama")
    plain = config.to_dict()
    add_keys(writer, "llama", plain)
    add_no_tokenizer(writer)
    random = np.random.default_rng(32)
    reference, read = {}, {}
    for (theirs, value), ours in zip(tensors_of("llama", plain, weights), weights):
        kind = gguf.GGMLQuantizationType[BLOCKS.get(theirs, "F16" if value.ndim > 1 else "F32")]
        if kind.name in SCALES:
            rows = value.shape[0]
            data = random_blocks(kind, value.size // 256, random).reshape(rows, -1)
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(value, np.float32), kind)
        writer.add_tensor(theirs, data, raw_dtype=kind)
        value = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(value.shape)
        reference["tensor." + theirs] = value
        if ".q_proj." in ours or ".k_proj." in ours:
            heads = config.num_attention_heads if ".q_proj." in ours else config.num_key_value_heads
            value = value.reshape(heads, -1, 2, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        read[ours] = torch.from_numpy(value.copy())
    finish(writer)
    model.load_state_dict(read)
    model = model.double().eval()
    make_exact(model, config)
    tokens = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(33))
    with exact(), torch.no_grad():
        reference["logits"] = model(input_ids=tokens).logits.numpy()
    reference["tokens"] = tokens.numpy().astype(np.int32)
    path = os.path.join(OUT, "blocks.safetensors")
    save_file({name: np.ascontiguousarray(value) for name, value in reference.items()
               if not name.startswith("tensor.") or name.endswith("down.weight") or "blk.0.attn" in name},
              path)
    os.chmod(path, 0o644)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    prepare()
    os.makedirs(OUT, exist_ok=True)
    for folder, architecture in FOLDERS.items():
        convert(folder, architecture)
    make_blocks()

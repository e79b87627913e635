"""First inputs of gguf_fuzz: whole files of a few hundred bytes, one of each architecture, with a tokenizer.

    python small_gguf.py FOLDER
"""

import os
import struct
import sys

ARCHITECTURES = "llama qwen2 qwen3moe gemma2 gemma3 phi3 olmo2 granite starcoder2 gptneox gpt2".split()
U32, F32, STRING, ARRAY = 4, 6, 8, 9


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def texts(*values):
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


def numbers(kind, form, *values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(struct.pack(form, value) for value in values)


def file_of(arch, model):
    keys = {"general.architecture": (STRING, text(arch)), f"{arch}.attention.head_count": (U32, struct.pack("<I", 2)),
            f"{arch}.embedding_length": (U32, struct.pack("<I", 4)),
            f"{arch}.rope.freq_base": (F32, struct.pack("<f", 1e4)), "tokenizer.ggml.model": (STRING, text(model)),
            "tokenizer.ggml.tokens": (ARRAY, texts("<unk>", "a", "<0x0A>")),
            "tokenizer.ggml.scores": (ARRAY, numbers(F32, "<f", 0, -1, 0)),
            "tokenizer.ggml.token_type": (ARRAY, numbers(5, "<i", 2, 1, 6)),
            "tokenizer.ggml.merges": (ARRAY, texts("a a")), "tokenizer.ggml.eos_token_id": (U32, struct.pack("<I", 1))}
    if arch == "qwen3moe":
        keys[f"{arch}.expert_count"] = (U32, struct.pack("<I", 2))
    tensors = [("token_embd.weight", (4, 3), 0, 48), ("blk.0.attn_q.weight", (4, 4), 1, 32),
               ("blk.0.attn_qkv.weight", (4, 12), 0, 192), ("blk.0.attn_norm.weight", (4,), 1, 8),
               ("blk.0.ffn_gate_exps.weight", (32, 1, 2), 8, 68), ("rope_freqs.weight", (1,), 0, 4),
               ("blk.0.ffn_down.weight", (256, 1), 12, 144)]
    data, offset = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), 0
    for name, (kind, value) in keys.items():
        data += text(name) + struct.pack("<I", kind) + value
    for name, sizes, kind, size in tensors:
        data += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
        offset += -(-size // 32) * 32
    return data + bytes(-len(data) % 32) + bytes(range(1, 120)) * (offset // 119 + 1)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for arch in ARCHITECTURES:
        for model in ("gpt2", "llama"):
            with open(os.path.join(sys.argv[1], f"{arch}_{model}"), "wb") as file:
                file.write(file_of(arch, model))

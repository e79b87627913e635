"""Tiny random checkpoints of Llama and its like with float64 references: see pretrained_common.py.

    python make_llama.py        needs torch, transformers, safetensors and numpy
"""

import math
import os
import shutil

import torch
import transformers

from exact_float64 import exact
from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=97, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5)
SCALING = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=16)
CASES = {
    "llama": dict(seed=1, config={}),  # grouped queries, a head of its own
    "llama_tied": dict(seed=2, config=dict(tie_word_embeddings=True, num_key_value_heads=4, head_dim=6)),
    "llama_scaled": dict(seed=3, config=dict(num_key_value_heads=1, num_hidden_layers=1, rope_parameters=SCALING)),
    "llama_biases": dict(seed=4, config=dict(attention_bias=True, mlp_bias=True)),
    "mistral": dict(seed=5, kind="Mistral", config=dict(sliding_window=5, head_dim=4)),
    "qwen2": dict(seed=6, kind="Qwen2", config=dict(tie_word_embeddings=True)),
    "qwen3": dict(seed=7, kind="Qwen3", config=dict(head_dim=6, tie_word_embeddings=True)),
}


def frequencies(config):
    """In float64, by the formulas; transformers has them in float32."""
    rope = config.rope_parameters
    size = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    plain = rope["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    if rope["rope_type"] == "default":
        return plain
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * plain / rope["factor"] + share * plain


def make(name, case):
    kind = case.get("kind", "Llama")
    config = getattr(transformers, kind + "Config")(**{**SMALL, **case["config"]}, attn_implementation="eager")
    architecture = getattr(transformers, kind + "ForCausalLM")
    model = architecture(config)
    disturb(model, case["seed"])
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)

    model = architecture.from_pretrained(folder, attn_implementation="eager").double().eval()
    rotary = model.model.rotary_emb
    torch.testing.assert_close(rotary.inv_freq.double(), frequencies(config), rtol=1e-6, atol=0)
    rotary.inv_freq = frequencies(config)
    generator = torch.Generator().manual_seed(100 + case["seed"])
    lengths, columns = [11, 4, 7], 11
    real = ragged(lengths, columns)
    tokens = torch.randint(0, config.vocab_size, (len(lengths), columns), generator=generator)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED)
    with exact():
        logits = model(input_ids=tokens, attention_mask=real.long()).logits
        theirs = model(input_ids=tokens, attention_mask=real.long(), labels=tokens.masked_fill(~real, IGNORED)).loss
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    assert abs(theirs - loss) < 1e-5
    loss.backward()
    write_reference(name, {"tokens": tokens, "targets": targets, "logits": masked(logits, real), "loss": loss,
                           **gradients(model)})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        make(name, case)

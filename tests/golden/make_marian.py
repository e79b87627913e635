"""Tiny random checkpoints of Marian, BART, mBART, Pegasus and M2M100 with float64 references: see pretrained_common.py.

    python make_marian.py [NAME...]        needs torch, transformers, safetensors and numpy
"""

import math
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

VOCAB, PAD, END = 61, 60, 0
SMALL = dict(vocab_size=VOCAB, decoder_vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=2,
             encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
             max_position_embeddings=20, dropout=0.0, pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=END,
             forced_eos_token_id=END, bos_token_id=None)
# Two layers, and all that published checkpoints have: BART's begin with </s>, those of many languages with a language.
NEWER = {**{key: value for key, value in SMALL.items() if key != "decoder_vocab_size"}, "encoder_layers": 2,
         "activation_function": "gelu", "pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": 2,
         "bos_token_id": 0, "decoder_start_token_id": 2}
CASES = {
    "marian": dict(seed=41, config=dict(activation_function="swish", scale_embedding=True)),
    "marian_two_vocabularies": dict(seed=42, config=dict(activation_function="gelu", scale_embedding=False,
                                                         share_encoder_decoder_embeddings=False,
                                                         decoder_vocab_size=VOCAB)),
    "bart": dict(seed=43, kind="Bart", small=NEWER, config=dict(forced_bos_token_id=0)),
    "mbart": dict(seed=44, kind="MBart", small=NEWER, config=dict(activation_function="relu", scale_embedding=True,
                                                                 decoder_start_token_id=59)),
    "pegasus": dict(seed=45, kind="Pegasus", small=NEWER, config=dict(
        activation_function="relu", scale_embedding=True, pad_token_id=0, decoder_start_token_id=0, eos_token_id=1,
        forced_eos_token_id=1, bos_token_id=None)),
    "m2m_100": dict(seed=46, kind="M2M100", small=NEWER, config=dict(
        activation_function="relu", scale_embedding=True, attention_dropout=0.0, forced_bos_token_id=59)),
}


def make_exact(model):
    """M2M100's table of positions, which transformers computes in float32: here rounded to it once, as Linnet's is."""
    for module in model.modules():
        if hasattr(module, "create_weight"):  # of a file without it transformers makes a trained one
            module.weight.requires_grad_(False)
        if type(module).__name__ != "M2M100SinusoidalPositionalEmbedding":
            continue
        rows, width = module.weights.shape
        steps = torch.arange(width // 2).double() / (width // 2 - 1)
        angles = torch.arange(rows).double()[:, None] * torch.exp(-math.log(10000) * steps)[None]
        table = torch.cat([angles.sin(), angles.cos()], dim=1).float().double()
        table[module.padding_idx] = 0
        torch.testing.assert_close(module.weights.double(), table, rtol=1e-4, atol=1e-5)
        module.weights = table


def make(name, case):
    kind = case.get("kind", "Marian")
    architecture = getattr(transformers, kind + ("MTModel" if kind == "Marian" else "ForConditionalGeneration"))
    config = {**case.get("small", SMALL), **case["config"]}
    model = architecture(getattr(transformers, kind + "Config")(**config))
    disturb(model, case["seed"])
    generator = torch.Generator().manual_seed(100 + case["seed"])
    has_bias = hasattr(model, "final_logits_bias")
    if has_bias:
        model.final_logits_bias.copy_(0.3 * torch.randn(model.final_logits_bias.shape, generator=generator))
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.generation_config.forced_bos_token_id = config.get("forced_bos_token_id")
    model.save_pretrained(folder)

    if case.get("kind") == "Pegasus":  # computed positions, which are not read and not written
        path = os.path.join(folder, "model.safetensors")
        save_file({key: value for key, value in load_file(path).items() if "embed_positions" not in key}, path,
                  metadata={"format": "pt"})
    model = architecture.from_pretrained(folder, attn_implementation="eager").double().eval()
    make_exact(model)
    if has_bias:
        model.final_logits_bias.requires_grad_(True)  # a buffer there, a parameter here
    pad, start = config["pad_token_id"], config["decoder_start_token_id"]
    source_lengths, target_lengths = [9, 3, 6], [7, 8, 2]
    real, real_target = ragged(source_lengths, 9), ragged(target_lengths, 8)
    source = torch.randint(3 if "kind" in case else 1, VOCAB - 1, real.shape, generator=generator).masked_fill(~real, pad)
    target = torch.randint(1, VOCAB - 1, real_target.shape, generator=generator)
    target_out = target.masked_fill(~real_target, IGNORED)
    target_in = torch.cat([torch.full((3, 1), start), target[:, :-1]], dim=1)
    logits = model(input_ids=source, attention_mask=real.long(), decoder_input_ids=target_in).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=IGNORED)
    loss.backward()
    write_reference(name, {
        "source": source, "source_lengths": torch.tensor(source_lengths), "target_in": target_in,
        "target_out": target_out, "target_lengths": torch.tensor(target_lengths),
        "logits": masked(logits, real_target), "loss": loss,
        **({"grad.final_logits_bias": model.final_logits_bias.grad} if has_bias else {}), **gradients(model)})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            make(name, case)

"""Tiny random Marian checkpoints with float64 references: see pretrained_common.py.

    python make_marian.py        needs torch, transformers, safetensors and numpy
"""

import os
import shutil

import torch
from transformers import MarianConfig, MarianMTModel

from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

VOCAB, PAD, END = 61, 60, 0
SMALL = dict(vocab_size=VOCAB, decoder_vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=2,
             encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
             max_position_embeddings=20, dropout=0.0, pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=END,
             forced_eos_token_id=END, bos_token_id=None)
CASES = {
    "marian": dict(seed=41, config=dict(activation_function="swish", scale_embedding=True)),
    "marian_two_vocabularies": dict(seed=42, config=dict(activation_function="gelu", scale_embedding=False,
                                                         share_encoder_decoder_embeddings=False,
                                                         decoder_vocab_size=VOCAB)),
}


def make(name, case):
    model = MarianMTModel(MarianConfig(**{**SMALL, **case["config"]}))
    disturb(model, case["seed"])
    generator = torch.Generator().manual_seed(100 + case["seed"])
    model.final_logits_bias.copy_(0.3 * torch.randn(model.final_logits_bias.shape, generator=generator))
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)

    model = MarianMTModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    model.final_logits_bias.requires_grad_(True)  # a buffer there, a parameter here
    source_lengths, target_lengths = [9, 3, 6], [7, 8, 2]
    real, real_target = ragged(source_lengths, 9), ragged(target_lengths, 8)
    source = torch.randint(1, VOCAB - 1, real.shape, generator=generator).masked_fill(~real, PAD)
    target = torch.randint(1, VOCAB - 1, real_target.shape, generator=generator)
    target_out = target.masked_fill(~real_target, IGNORED)
    target_in = torch.cat([torch.full((3, 1), PAD), target[:, :-1]], dim=1)
    logits = model(input_ids=source, attention_mask=real.long(), decoder_input_ids=target_in).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=IGNORED)
    loss.backward()
    write_reference(name, {
        "source": source, "source_lengths": torch.tensor(source_lengths), "target_in": target_in,
        "target_out": target_out, "target_lengths": torch.tensor(target_lengths),
        "logits": masked(logits, real_target), "loss": loss, "grad.final_logits_bias": model.final_logits_bias.grad,
        **gradients(model)})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        make(name, case)

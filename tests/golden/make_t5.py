"""Tiny random T5 checkpoints with float64 references: see pretrained_common.py.

    python make_t5.py [NAME...]        needs torch, transformers, safetensors and numpy
"""

import os
import shutil

import sys

import torch
import transformers

from exact_float64 import exact
from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=61, d_model=16, d_kv=6, d_ff=40, num_layers=2, num_heads=2, dropout_rate=0.0,
             relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=0)
CASES = {
    "t5": dict(seed=1, config={}),
    # Version 1.1: a gated feed-forward and a head of its own.
    "t5_gated": dict(seed=2, own_head=True, config=dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                                                        num_decoder_layers=1, num_heads=4)),
    # Tied, but not scaled: what transformers makes of tie_word_embeddings=False without weights for a head.
    "t5_unscaled": dict(seed=3, config=dict(tie_word_embeddings=False, num_layers=1, feed_forward_proj="gated-silu")),
    # Never scaled, whatever tie_word_embeddings says.
    "mt5": dict(seed=4, kind="MT5", config={}),
}


def make(name, case):
    kind = case.get("kind", "T5")
    architecture = getattr(transformers, kind + "ForConditionalGeneration")
    config = getattr(transformers, kind + "Config")(**{**SMALL, **case["config"]}, attn_implementation="eager")
    model = architecture(config)
    if case.get("own_head"):
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    disturb(model, case["seed"])
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)

    model = architecture.from_pretrained(folder, attn_implementation="eager").double().eval()
    assert (model.lm_head.weight is model.shared.weight) == (not case.get("own_head"))
    generator = torch.Generator().manual_seed(100 + case["seed"])
    source_lengths, target_lengths = [15, 4, 9], [6, 11, 3]
    real_source, real_target = ragged(source_lengths, 15), ragged(target_lengths, 11)
    source = torch.randint(2, config.vocab_size, (3, 15), generator=generator).masked_fill(~real_source, 0)
    targets = torch.randint(2, config.vocab_size, (3, 11), generator=generator).masked_fill(~real_target, IGNORED)
    target_in = model._shift_right(targets)
    with exact():
        out = model(input_ids=source, attention_mask=real_source.long(), labels=targets)
    out.loss.backward()
    write_reference(name, {"source": source, "source_lengths": torch.tensor(source_lengths), "target_in": target_in,
                           "targets": targets, "logits": masked(out.logits, real_target), "loss": out.loss,
                           **gradients(model)})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            make(name, case)

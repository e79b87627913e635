"""Tiny random GPT-2 checkpoints with float64 references: see pretrained_common.py.

    python make_gpt2.py        needs torch, transformers, safetensors and numpy
"""

import os
import shutil

import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=97, n_positions=24, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
             attn_pdrop=0.0, bos_token_id=96, eos_token_id=96)
CASES = {
    "gpt2": dict(seed=1, config={}),
    # Every option that changes the numbers, in two shards with an index.
    "gpt2_options": dict(seed=2, config=dict(n_inner=40, activation_function="gelu", layer_norm_epsilon=1e-3,
                                             tie_word_embeddings=False, n_head=4), shard="20KB"),
    # A folder of the model without its head: names without "transformer.".
    "gpt2_bare": dict(seed=3, config=dict(activation_function="relu", n_layer=1), bare=True),
}


def make(name, case):
    config = GPT2Config(**{**SMALL, **case["config"]}, attn_implementation="eager")
    model = GPT2LMHeadModel(config)
    disturb(model, case["seed"])
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    saved = model
    if case.get("bare"):
        saved = GPT2Model(config)
        saved.load_state_dict(model.transformer.state_dict())
    saved.save_pretrained(folder, max_shard_size=case.get("shard", "5GB"))

    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    generator = torch.Generator().manual_seed(100 + case["seed"])
    lengths, columns = [11, 4, 7], 11
    real = ragged(lengths, columns)
    tokens = torch.randint(0, config.vocab_size, (len(lengths), columns), generator=generator)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED)
    logits = model(input_ids=tokens, attention_mask=real.long()).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    theirs = model(input_ids=tokens, attention_mask=real.long(), labels=tokens.masked_fill(~real, IGNORED)).loss
    assert abs(theirs - loss) < 1e-5, "transformers computes its own in float32"
    loss.backward()
    grads = gradients(model)
    if case.get("bare"):
        grads = {key.replace("grad.transformer.", "grad."): value for key, value in grads.items()}
    write_reference(name, {"tokens": tokens, "targets": targets, "logits": masked(logits, real), "loss": loss, **grads})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        make(name, case)

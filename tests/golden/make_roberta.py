"""Tiny random RoBERTa checkpoints with float64 references: see pretrained_common.py.

    python make_roberta.py        needs torch, transformers, safetensors and numpy
"""

import os
import shutil

import torch
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification, RobertaModel

from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=97, max_position_embeddings=26, type_vocab_size=1, hidden_size=16, num_hidden_layers=2,
             num_attention_heads=2, intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
             layer_norm_eps=1e-5)
LENGTHS, COLUMNS = [11, 4, 7], 11
PAD = 1  # transformers counts the positions of tokens that are not padding


def checkpoint(name, kind, seed, **options):
    model = kind(RobertaConfig(**{**SMALL, **options}))
    disturb(model, seed)
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    return kind.from_pretrained(folder, attn_implementation="eager").double().eval()


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, SMALL["vocab_size"], (len(LENGTHS), COLUMNS), generator=generator)
    real = ragged(LENGTHS, COLUMNS)
    tokens = tokens.masked_fill(~real, PAD)
    inputs = dict(input_ids=tokens, attention_mask=real.long())
    arrays = {"tokens": tokens, "types": torch.zeros_like(tokens), "lengths": torch.tensor(LENGTHS)}
    return inputs, real, arrays, generator


def masked_model():
    # The head's activation is gelu, whatever that of the layers.
    model = checkpoint("roberta_masked", RobertaForMaskedLM, 11, hidden_act="gelu_new")
    inputs, real, arrays, generator = batch(12)
    places = [(0, 1), (0, 8), (1, 3), (2, 0), (2, 6)]
    labels = torch.full_like(inputs["input_ids"], IGNORED)
    for row, column in places:
        labels[row, column] = torch.randint(2, SMALL["vocab_size"], (), generator=generator)
    logits = model(**inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    assert abs(model(**inputs, labels=labels).loss - loss) < 1e-5
    loss.backward()
    # One place more than there are targets: it counts for nothing.
    positions = torch.tensor([row * COLUMNS + column for row, column in places] + [5])
    targets = torch.tensor([int(labels[place]) for place in places] + [-1])
    write_reference("roberta_masked", {**arrays, "positions": positions, "targets": targets,
                                       "logits": masked(logits, real), "loss": loss, **gradients(model)})


def classifier():
    model = checkpoint("roberta_classifier", RobertaForSequenceClassification, 21, num_labels=3, type_vocab_size=2)
    inputs, _, arrays, _ = batch(22)
    labels = torch.tensor([2, 0, 1])
    logits = model(**inputs).logits
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    write_reference("roberta_classifier", {**arrays, "labels": labels, "logits": logits, "loss": loss,
                                           **gradients(model)})


def embeddings():
    model = checkpoint("roberta_model", RobertaModel, 31)
    inputs, real, arrays, _ = batch(32)
    del arrays["types"]
    states = model(**inputs).last_hidden_state
    mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    write_reference("roberta_model", {**arrays, "embeddings": torch.nn.functional.normalize(mean, dim=1),
                                      "loss": torch.zeros(1)})


if __name__ == "__main__":
    prepare()
    masked_model()
    classifier()
    embeddings()

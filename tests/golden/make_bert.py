"""Tiny random BERT checkpoints with float64 references: see pretrained_common.py.

    python make_bert.py        needs torch, transformers, safetensors and numpy
"""

import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (BertConfig, BertForMaskedLM, BertForQuestionAnswering, BertForSequenceClassification,
                          BertForTokenClassification, BertModel)

from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=97, max_position_embeddings=24, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LENGTHS, COLUMNS = [11, 4, 7], 11


def checkpoint(name, kind, seed, **options):
    model = kind(BertConfig(**{**SMALL, **options}))
    disturb(model, seed)
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    return kind.from_pretrained(folder, attn_implementation="eager").double().eval()


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, SMALL["vocab_size"], (len(LENGTHS), COLUMNS), generator=generator)
    tokens[0, 3] = 0  # the padding token among the others: PyTorch leaves its row out of the gradient
    types = torch.randint(0, 2, tokens.shape, generator=generator)
    real = ragged(LENGTHS, COLUMNS)
    inputs = dict(input_ids=tokens, token_type_ids=types, attention_mask=real.long())
    return inputs, real, {"tokens": tokens, "types": types, "lengths": torch.tensor(LENGTHS)}, generator


def masked_model():
    model = checkpoint("bert_masked", BertForMaskedLM, 11, hidden_act="gelu_new")
    inputs, real, arrays, generator = batch(12)
    places = [(0, 1), (0, 8), (1, 3), (2, 0), (2, 6)]
    labels = torch.full_like(inputs["input_ids"], IGNORED)
    for row, column in places:
        labels[row, column] = torch.randint(0, SMALL["vocab_size"], (), generator=generator)
    logits = model(**inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    assert abs(model(**inputs, labels=labels).loss - loss) < 1e-5
    loss.backward()
    # One place more than there are targets: it counts for nothing.
    positions = torch.tensor([row * COLUMNS + column for row, column in places] + [5])
    targets = torch.tensor([int(labels[place]) for place in places] + [-1])
    write_reference("bert_masked", {**arrays, "positions": positions, "targets": targets,
                                    "logits": masked(logits, real), "loss": loss, **gradients(model)})


def old_names():
    """The same model as bert_masked, as bert-base-uncased was published."""
    source, folder = os.path.join(FOLDER, "bert_masked"), os.path.join(FOLDER, "bert_old")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    tensors = load_file(os.path.join(source, "model.safetensors"))
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
           for name, value in tensors.items()}
    width = SMALL["hidden_size"]
    old["bert.embeddings.position_ids"] = torch.arange(SMALL["max_position_embeddings"])[None]
    old["bert.pooler.dense.weight"], old["bert.pooler.dense.bias"] = torch.ones(width, width), torch.ones(width)
    old["cls.seq_relationship.weight"], old["cls.seq_relationship.bias"] = torch.ones(2, width), torch.ones(2)
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    save_file(old, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    write_reference("bert_old", {"loss": torch.zeros(1)})


def with_head(name, kind, seed, labels, ours=None, **options):
    """A model with a head, and its loss of `labels` as transformers computes it; `ours`: arrays of Linnet's graph."""
    model = checkpoint(name, kind, seed, **options)
    inputs, real, arrays, _ = batch(seed + 1)
    output = model(**inputs, labels=labels)
    output.loss.backward()
    logits = masked(output.logits, real) if output.logits.dim() == 3 else output.logits
    write_reference(name, {**arrays, **(ours or {"labels": labels}), "logits": logits, "loss": output.loss,
                           **gradients(model)})


def heads():
    with_head("bert_classifier", BertForSequenceClassification, 21, torch.tensor([2, 0, 1]), num_labels=3,
              layer_norm_eps=1e-6)
    tags = torch.full((len(LENGTHS), COLUMNS), IGNORED)
    for (row, column), tag in {(0, 1): 3, (0, 2): 0, (0, 10): 1, (1, 1): 0, (2, 3): 2, (2, 5): 4}.items():
        tags[row, column] = tag
    with_head("bert_tagger", BertForTokenClassification, 41, tags, num_labels=5)
    numbers = torch.tensor([[0.5, -2.0], [3.25, 0.0], [-1.0, 1.5]], dtype=torch.float64)
    with_head("bert_numbers", BertForSequenceClassification, 51, numbers, num_labels=2, problem_type="regression",
              ours={"labels": numbers, "weights": torch.ones(3, dtype=torch.float64)})
    several = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1]], dtype=torch.float64)
    with_head("bert_several", BertForSequenceClassification, 61, several, num_labels=3,
              problem_type="multi_label_classification",
              ours={"labels": several, "weights": torch.ones(3, dtype=torch.float64)})


def answers():
    """Transformers counts padding among the tokens that may be an answer; Linnet does not."""
    model = checkpoint("bert_answers", BertForQuestionAnswering, 71)
    inputs, real, arrays, _ = batch(72)
    labels = torch.tensor([[2, 5], [0, 0], [3, 3]])
    output = model(**inputs)
    logits = torch.stack([output.start_logits, output.end_logits], dim=-1)
    hidden = logits.masked_fill(~real[..., None], -torch.inf).transpose(1, 2)
    losses = torch.nn.functional.cross_entropy(hidden.flatten(0, 1), labels.flatten(), reduction="none").view(3, 2).mean(1)
    for row, length in enumerate(LENGTHS):
        alone = {name: value[row:row + 1, :length] for name, value in inputs.items()}
        assert abs(model(**alone, start_positions=labels[row:row + 1, 0], end_positions=labels[row:row + 1, 1]).loss -
                   losses[row]) < 1e-9
    loss = losses.mean()
    loss.backward()
    write_reference("bert_answers", {**arrays, "labels": labels, "logits": masked(logits, real), "loss": loss,
                                     **gradients(model)})


def write_vocabulary(name):
    """A WordPiece vocabulary of SMALL's size: special tokens, letters, their continuations, digits, a few words."""
    letters = [chr(ord("a") + i) for i in range(26)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), *"0123456789",
              "the", "dog", "cat", "runs", "sleeps", "tax", "law"]
    pieces += [f"[unused{i}]" for i in range(SMALL["vocab_size"] - len(pieces))]
    with open(os.path.join(FOLDER, name, "vocab.txt"), "w") as file:
        file.write("\n".join(pieces) + "\n")


def embeddings():
    model = checkpoint("bert_model", BertModel, 31, hidden_act="relu")
    write_vocabulary("bert_model")
    inputs, real, arrays, _ = batch(32)
    del inputs["token_type_ids"], arrays["types"]
    states = model(**inputs).last_hidden_state
    mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    write_reference("bert_model", {**arrays, "embeddings": torch.nn.functional.normalize(mean, dim=1),
                                   "loss": torch.zeros(1)})


if __name__ == "__main__":
    prepare()
    masked_model()
    old_names()
    heads()
    answers()
    embeddings()

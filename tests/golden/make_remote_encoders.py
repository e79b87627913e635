"""Tiny random checkpoints of encoders whose folders are not in the form of transformers: see pretrained_common.py.

Their authors' programs come with the folders (nomic-ai/nomic-bert-2048, Alibaba-NLP/new-impl,
jinaai/jina-bert-implementation). The formulas below follow those programs and the papers, in the order of their tensors.

    python make_remote_encoders.py        needs torch, safetensors and numpy
"""

import json
import math
import os
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from pretrained_common import FOLDER, IGNORED, masked, prepare, ragged, write_reference

VOCAB, WIDTH, HEADS, HIDDEN, LAYERS = 97, 16, 2, 40, 2
SIZE = WIDTH // HEADS
LENGTHS, COLUMNS, EPSILON = [11, 4, 7], 11, 1e-12
BERT = dict(vocab_size=VOCAB, hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
            intermediate_size=HIDDEN, max_position_embeddings=26, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, hidden_act="gelu", layer_norm_eps=EPSILON, pad_token_id=0)


def norm(w, name, x):
    return F.layer_norm(x, (x.shape[-1],), w[name + ".weight"], w[name + ".bias"], EPSILON)


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def turned(x, theta, divisor=1.0):
    """Rotary positions of x [B, T, heads, size]: halves of a head are the two coordinates."""
    frequencies = theta ** -(torch.arange(0, SIZE, 2).double() / SIZE) / divisor
    angles = torch.arange(x.shape[1]).double()[:, None] * frequencies[None]
    angles = torch.cat([angles, angles], dim=1)[:, None, :]
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


def attend(q, k, v, real, bias=0.0):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(SIZE) + bias
    scores = scores.masked_fill(~real[:, None, None, :], -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def apart(x):
    return x.unflatten(-1, (-1, SIZE))


class Nomic:
    name, kind = "nomic", "NomicBert"
    prefix, words, types, first_norm = "bert.", "embeddings.word_embeddings", "embeddings.token_type_embeddings", "emb_ln"
    config = dict(model_type="nomic_bert", vocab_size=VOCAB, n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS, n_inner=HIDDEN,
                  n_positions=26, type_vocab_size=2, activation_function="swiglu", layer_norm_epsilon=EPSILON,
                  resid_pdrop=0.0, attn_pdrop=0.0, rotary_emb_base=1000, rotary_emb_fraction=1.0,
                  rotary_emb_interleaved=False, rotary_scaling_factor=None, prenorm=False, use_rms_norm=False,
                  causal=False, parallel_block=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False,
                  pad_token_id=0)

    def shapes(self, layer):
        at = f"encoder.layers.{layer}."
        return {at + "attn.Wqkv.weight": (3 * WIDTH, WIDTH), at + "attn.out_proj.weight": (WIDTH, WIDTH),
                at + "mlp.fc11.weight": (HIDDEN, WIDTH), at + "mlp.fc12.weight": (HIDDEN, WIDTH),
                at + "mlp.fc2.weight": (WIDTH, HIDDEN),
                **{at + f"norm{i}.{part}": (WIDTH,) for i in (1, 2) for part in ("weight", "bias")}}

    def layer(self, w, i, x, real):
        at = f"encoder.layers.{i}."
        q, k, v = (apart(part) for part in linear(w, at + "attn.Wqkv", x).chunk(3, dim=-1))
        attended = linear(w, at + "attn.out_proj", attend(turned(q, 1000.0), turned(k, 1000.0), v, real))
        x = norm(w, at + "norm1", x + attended)
        gated = linear(w, at + "mlp.fc11", x) * F.silu(linear(w, at + "mlp.fc12", x))
        return norm(w, at + "norm2", x + linear(w, at + "mlp.fc2", gated))


class Gte:
    name, kind = "gte", "New"
    prefix, words, types = "new.", "embeddings.word_embeddings", "embeddings.token_type_embeddings"
    first_norm = "embeddings.LayerNorm"
    config = dict(BERT, model_type="new", position_embedding_type="rope", rope_theta=500.0, type_vocab_size=0,
                  rope_scaling=dict(type="ntk", factor=2.0), pack_qkv=True, layer_norm_type="layer_norm",
                  logn_attention_scale=False)

    def shapes(self, layer):
        at = f"encoder.layer.{layer}."
        return {at + "attention.qkv_proj.weight": (3 * WIDTH, WIDTH), at + "attention.qkv_proj.bias": (3 * WIDTH,),
                at + "attention.o_proj.weight": (WIDTH, WIDTH), at + "attention.o_proj.bias": (WIDTH,),
                at + "mlp.up_gate_proj.weight": (2 * HIDDEN, WIDTH), at + "mlp.down_proj.weight": (WIDTH, HIDDEN),
                at + "mlp.down_proj.bias": (WIDTH,),
                **{at + f"{of}.{part}": (WIDTH,) for of in ("attn_ln", "mlp_ln") for part in ("weight", "bias")}}

    def layer(self, w, i, x, real):
        at = f"encoder.layer.{i}."
        turn = lambda part: turned(part, 500.0 * 2.0, 2.0 ** (2 / SIZE))
        q, k, v = (apart(part) for part in linear(w, at + "attention.qkv_proj", x).chunk(3, dim=-1))
        x = norm(w, at + "attn_ln", x + linear(w, at + "attention.o_proj", attend(turn(q), turn(k), v, real)))
        up, gate = linear(w, at + "mlp.up_gate_proj", x).chunk(2, dim=-1)
        return norm(w, at + "mlp_ln", x + linear(w, at + "mlp.down_proj", F.gelu(gate) * up))


class Jina:
    name, kind = "jina", "JinaBert"
    prefix, words, types = "bert.", "embeddings.word_embeddings", "embeddings.token_type_embeddings"
    first_norm = "embeddings.LayerNorm"
    config = dict(BERT, model_type="bert", position_embedding_type="alibi", feed_forward_type="geglu", type_vocab_size=2,
                  num_attention_heads=3, hidden_size=24)

    def shapes(self, layer):
        at, width = f"encoder.layer.{layer}.", 24
        dense = [f"attention.self.{part}" for part in ("query", "key", "value")] + ["attention.output.dense"]
        return {**{at + name + ".weight": (width, width) for name in dense},
                **{at + name + ".bias": (width,) for name in dense},
                at + "mlp.gated_layers.weight": (2 * HIDDEN, width), at + "mlp.wo.weight": (width, HIDDEN),
                at + "mlp.wo.bias": (width,),
                **{at + f"{of}.{part}": (width,) for of in ("attention.output.LayerNorm", "mlp.layernorm")
                   for part in ("weight", "bias")}}

    def layer(self, w, i, x, real):
        at = f"encoder.layer.{i}."
        distance = (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])[None]).abs().double()
        slopes = torch.tensor([2.0 ** -4, 2.0 ** -8, 2.0 ** -2]).double()  # of 3 heads: those of 2, and one of 4's
        q, k, v = (apart(linear(w, at + f"attention.self.{part}", x)) for part in ("query", "key", "value"))
        attended = attend(q, k, v, real, -slopes[:, None, None] * distance)
        x = norm(w, at + "attention.output.LayerNorm", x + linear(w, at + "attention.output.dense", attended))
        gate, up = linear(w, at + "mlp.gated_layers", x).chunk(2, dim=-1)
        return norm(w, at + "mlp.layernorm", x + linear(w, at + "mlp.wo", F.gelu(gate) * up))


class Case:
    def __init__(self, family, head, seed):
        self.family, self.part = family, {"Model": "model", "ForSequenceClassification": "classifier",
                                          "ForMaskedLM": "masked"}[head]
        self.width = family.config.get("hidden_size", WIDTH)
        self.typed = family.config["type_vocab_size"] > 0
        width, shapes = self.width, {family.words + ".weight": (VOCAB, self.width)}
        if self.typed:
            shapes[family.types + ".weight"] = (family.config["type_vocab_size"], width)
        shapes.update({family.first_norm + part: (width,) for part in (".weight", ".bias")})
        for layer in range(LAYERS):
            shapes.update(family.shapes(layer))
        self.prefix = "" if head == "Model" else family.prefix
        shapes = {self.prefix + name: shape for name, shape in shapes.items()}
        config = dict(family.config, architectures=[family.kind + head])
        if head == "ForSequenceClassification":
            shapes.update({self.prefix + "pooler.dense.weight": (width, width), self.prefix + "pooler.dense.bias": (width,),
                           "classifier.weight": (3, width), "classifier.bias": (3,)})
            config["id2label"] = {str(i): f"LABEL_{i}" for i in range(3)}
            config["label2id"] = {f"LABEL_{i}": i for i in range(3)}
        if head == "ForMaskedLM":
            at = "cls.predictions."
            shapes.update({at + "transform.dense.weight": (width, width), at + "transform.dense.bias": (width,),
                           at + "transform.LayerNorm.weight": (width,), at + "transform.LayerNorm.bias": (width,),
                           at + "bias": (VOCAB,)})
        generator = torch.Generator().manual_seed(seed)
        values = {}
        for name, shape in sorted(shapes.items()):
            noise = torch.randn(shape, generator=generator)
            is_norm = len(shape) == 1 and name.endswith("weight")
            values[name] = 1 + 0.1 * noise if is_norm else 0.2 * noise
        folder = os.path.join(FOLDER, f"{family.name}_{self.part}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        save_file(values, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file, indent=2)
        self.weights = {name: value.double().requires_grad_() for name, value in values.items()}
        self.generator = torch.Generator().manual_seed(seed + 1)
        self.real = ragged(LENGTHS, COLUMNS)
        self.tokens = torch.randint(2, VOCAB, self.real.shape, generator=self.generator).masked_fill(~self.real, 0)
        self.arrays = {"tokens": self.tokens, "lengths": torch.tensor(LENGTHS)}

    def draw_types(self):
        types = torch.zeros_like(self.tokens)
        if self.typed:
            types = torch.randint(0, 2, self.tokens.shape, generator=self.generator)
        self.arrays["types"] = types
        return types

    def states(self, types):
        w = {name.removeprefix(self.prefix): value for name, value in self.weights.items()}
        x = F.embedding(self.tokens, w[self.family.words + ".weight"], padding_idx=0)
        if self.typed:
            x = x + w[self.family.types + ".weight"][types]
        x = norm(w, self.family.first_norm, x)
        for layer in range(LAYERS):
            x = self.family.layer(w, layer, x, self.real)
        return w, x

    def write(self, **arrays):
        found = {"grad." + name: value.grad for name, value in self.weights.items() if value.grad is not None}
        write_reference(f"{self.family.name}_{self.part}", {**self.arrays, **arrays, **found})


def make(family):
    case = Case(family, "Model", 31)
    with torch.no_grad():
        states = case.states(torch.zeros_like(case.tokens))[1]
        mean = (states * case.real[..., None]).sum(1) / case.real.sum(1, keepdim=True)
        case.write(embeddings=F.normalize(mean, dim=1), loss=torch.zeros(1))

    case = Case(family, "ForSequenceClassification", 21)
    w, states = case.states(case.draw_types())
    logits = linear(w, "classifier", torch.tanh(linear(w, "pooler.dense", states[:, 0])))
    labels = torch.tensor([2, 0, 1])
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    case.write(labels=labels, logits=logits, loss=loss)
    if family.name != "jina":
        return

    case = Case(family, "ForMaskedLM", 11)
    w, states = case.states(case.draw_types())
    hidden = norm(w, "cls.predictions.transform.LayerNorm", F.gelu(linear(w, "cls.predictions.transform.dense", states)))
    logits = F.linear(hidden, w[family.words + ".weight"], w["cls.predictions.bias"])
    places = [(0, 1), (0, 8), (1, 3), (2, 0), (2, 6)]
    labels = torch.full_like(case.tokens, IGNORED)
    for place in places:
        labels[place] = torch.randint(2, VOCAB, (), generator=case.generator)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    loss.backward()
    case.write(positions=torch.tensor([row * COLUMNS + column for row, column in places] + [5]),
               targets=torch.tensor([int(labels[place]) for place in places] + [-1]),
               logits=masked(logits, case.real), loss=loss)


if __name__ == "__main__":
    prepare()
    for family in Nomic(), Gte(), Jina():
        make(family)

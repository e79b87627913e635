"""What transformers says of attention and of single tokens: references of `linnet inspect`, in
pretrained/inspections.safetensors. Of each case, a folder of pretrained/:

    <case>.tokens (or .source, .target_in)  int32 [length]: one row without padding
    <case>.answer                           int32 [position, id]: the result that is attributed
    <case>.attention.<i>                    float64 [heads, queries, keys], in the order in which Linnet computes them
    <case>.shares.<input>                   float64 [length]: integrated gradients of the answer's log probability
    <case>.log_probabilities                float64 [2]: of the answer, and where every embedding is the table's mean

    python make_inspections.py        needs torch, transformers, safetensors and numpy
"""

import os

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import (AutoModelForCausalLM, BertForMaskedLM, BertForSequenceClassification, MarianMTModel,
                          T5ForConditionalGeneration)

from pretrained_common import FOLDER, prepare

STEPS = 32
CASES = {"gpt2": AutoModelForCausalLM, "llama": AutoModelForCausalLM, "mistral": AutoModelForCausalLM,
         "bert_classifier": BertForSequenceClassification, "bert_masked": BertForMaskedLM, "marian": MarianMTModel,
         "t5": T5ForConditionalGeneration}


def attentions_of(result, is_pair):
    if not is_pair:
        return list(result.attentions)
    decoder = [map for pair in zip(result.decoder_attentions, result.cross_attentions) for map in pair]
    return list(result.encoder_attentions) + decoder


def make(name, kind, seed):
    model = kind.from_pretrained(os.path.join(FOLDER, name), attn_implementation="eager").double().eval()
    config = model.config
    is_pair = config.is_encoder_decoder
    generator = torch.Generator().manual_seed(seed)
    draw = lambda length: torch.randint(0, config.vocab_size - 2, (1, length), generator=generator)
    ids = {"source": draw(7), "target_in": draw(5)} if is_pair else {"tokens": draw(9)}
    modules = [model.get_encoder(), model.get_decoder()] if is_pair else [model]
    tables = [module.get_input_embeddings() for module in modules]
    weights = dict(zip(ids, (table.weight.detach() for table in tables)))
    alpha, moved, calls = [1.0], {}, [0]

    # In place of a lookup: the point of the path. Encoder and decoder may share a table; the encoder comes first.
    def move(table, inputs, output):
        key = list(ids)[calls[0] % len(ids)]
        calls[0] += 1
        row, mean = torch.nn.functional.embedding(ids[key], weights[key]), weights[key].mean(0)
        moved[key] = (mean + alpha[0] * (row - mean)).detach().requires_grad_()
        return moved[key] * getattr(table, "embed_scale", 1.0)

    for table in dict.fromkeys(tables):
        table.register_forward_hook(move)

    def run(point):
        alpha[0] = point
        if is_pair:
            return model(input_ids=ids["source"], decoder_input_ids=ids["target_in"], output_attentions=True, use_cache=False)
        return model(input_ids=ids["tokens"], output_attentions=True)

    result = run(1.0)
    classes = name == "bert_classifier"
    position = 0 if classes else (2 if name == "bert_masked" else result.logits.shape[1] - 1)
    row = lambda out: torch.log_softmax(out.logits[0] if classes else out.logits[0, position], -1)
    answer = int(row(result).argmax())
    arrays = {f"{key}": value[0] for key, value in ids.items()}
    arrays["answer"] = torch.tensor([position, answer])
    for i, map in enumerate(attentions_of(result, is_pair)):
        arrays[f"attention.{i}"] = map[0].detach()
    shares = {key: torch.zeros(value.shape[1], dtype=torch.float64) for key, value in ids.items()}
    for step in range(STEPS):
        row(run((step + 0.5) / STEPS))[answer].backward()
        for key in ids:
            difference = torch.nn.functional.embedding(ids[key], weights[key]) - weights[key].mean(0)
            shares[key] += (moved[key].grad * difference).sum(-1)[0] / STEPS
    for key, value in shares.items():
        arrays[f"shares.{key}"] = value
    arrays["log_probabilities"] = torch.stack([row(result)[answer], row(run(0.0))[answer]]).detach()
    gain, total = (arrays["log_probabilities"][0] - arrays["log_probabilities"][1]).item(), sum(v.sum().item() for v in shares.values())
    print(f"{name}: {len(attentions_of(result, is_pair))} attentions, gain {gain:.6f}, shares add up to {total:.6f}")
    return {f"{name}.{key}": np.ascontiguousarray(
        value.numpy().astype(np.float64 if value.is_floating_point() else np.int32)) for key, value in arrays.items()}


if __name__ == "__main__":
    prepare()
    arrays = {}
    for seed, (name, kind) in enumerate(CASES.items()):
        arrays.update(make(name, kind, seed))
    path = os.path.join(FOLDER, "inspections.safetensors")
    save_file(arrays, path)
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")

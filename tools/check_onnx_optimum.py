#!/usr/bin/env python3
"""Whether optimum's classes load what `linnet export --onnx` writes, as it is, and compute what transformers does.

    tools/check_onnx_optimum.py build/release/bin/linnet     needs optimum[onnxruntime], torch and transformers
"""

import os
import subprocess
import sys
import tempfile

import torch
import transformers
from optimum.onnxruntime import (ORTModelForCausalLM, ORTModelForFeatureExtraction, ORTModelForMaskedLM,
                                 ORTModelForSeq2SeqLM, ORTModelForSequenceClassification)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests/golden/pretrained")
TOLERANCE = 1e-4
PROMPTS, TOKENS = 20, 12


def batch_of(model):
    length = int(torch.randint(2, 7, ()))
    ids = torch.randint(3, model.config.vocab_size, (2, length))
    mask = torch.ones_like(ids)
    return dict(input_ids=ids, attention_mask=mask)


def check_texts(model, loaded, **more):
    for _ in range(PROMPTS):
        batch = batch_of(model)
        options = dict(max_new_tokens=TOKENS, do_sample=False, num_beams=1, **more)
        want, got = model.generate(**batch, **options), loaded.generate(**batch, **options)
        assert torch.equal(want, got), (want, got)


def check_decoder(folder, model, **options):
    loaded = ORTModelForCausalLM.from_pretrained(folder, **options)
    batch = batch_of(model)
    worst = float((model(**batch).logits - loaded(**batch).logits).abs().max())
    assert worst < TOLERANCE, worst
    check_texts(model, loaded, pad_token_id=0)
    return f"ORTModelForCausalLM {options or ''}: logits within {worst:.1e}, {PROMPTS} batches of greedy texts alike"


def check_pair(folder, model, **options):
    check_texts(model, ORTModelForSeq2SeqLM.from_pretrained(folder, **options))
    return f"ORTModelForSeq2SeqLM {options}: {PROMPTS} batches of greedy texts alike"


def check_encoder(folder, model, kind):
    loaded = kind.from_pretrained(folder)
    batch = batch_of(model)
    types = torch.randint(0, 2, batch["input_ids"].shape)
    worst = float((model(**batch, token_type_ids=types)[0] - loaded(**batch, token_type_ids=types)[0]).abs().max())
    assert worst < TOLERANCE, worst
    return f"{kind.__name__}: within {worst:.1e}"


ENCODERS = {"bert_classifier": (ORTModelForSequenceClassification, transformers.AutoModelForSequenceClassification),
            "bert_masked": (ORTModelForMaskedLM, transformers.AutoModelForMaskedLM),
            "bert_model": (ORTModelForFeatureExtraction, transformers.AutoModel)}
CACHES = (dict(use_merged=True), dict(use_merged=False), dict(use_cache=False, use_merged=False))


@torch.no_grad()
def main(linnet):
    def export(name, out, *more):
        folder = os.path.join(out, name + "".join(more))
        subprocess.run([linnet, "export", os.path.join(GOLDEN, name), "--onnx", folder, *more], check=True)
        return folder

    def model_of(kind, name):
        return kind.from_pretrained(os.path.join(GOLDEN, name)).eval()

    with tempfile.TemporaryDirectory() as out:
        for name in ("gpt2", "llama", "mistral", "qwen2"):
            model = model_of(transformers.AutoModelForCausalLM, name)
            print(name, check_decoder(export(name, out), model), flush=True)
            print(name, check_decoder(export(name, out, "--no-cache"), model, use_cache=False), flush=True)
        # Not t5_gated: its config.json says that a head is tied, which its weights are not; releases of transformers
        # before 5 follow the one, later ones and Linnet the other.
        for name in ("t5", "t5_unscaled", "marian"):
            model, folder = model_of(transformers.AutoModelForSeq2SeqLM, name), export(name, out)
            for options in CACHES:
                print(name, check_pair(folder, model, **options), flush=True)
        for name, (kind, reference) in ENCODERS.items():
            print(name, check_encoder(export(name, out), model_of(reference, name), kind), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(os.path.abspath(sys.argv[1]))

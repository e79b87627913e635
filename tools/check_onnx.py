#!/usr/bin/env python3
"""What `linnet export --onnx` writes, in ONNX Runtime: the logits of transformers for the same folder, with and without
past, padded on either side; greedy texts; ONNX's own checks of the files.

    tools/check_onnx.py build/release/src/cli/linnet [MODEL...]     needs onnx, onnxruntime, torch and transformers

Without MODEL (folders of decoders, BERT, T5 or Marian): the tiny ones of tests/golden/pretrained.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests/golden/pretrained")
NAMES = ["bert_classifier", "bert_masked", "bert_model", "gpt2", "gpt2_options", "llama", "llama_biases", "llama_scaled",
         "llama_tied", "mistral", "qwen2", "t5", "t5_gated", "t5_unscaled", "marian", "marian_two_vocabularies"]
TOLERANCE = 1e-4


class Session:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options)
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        self.outputs = [o.name for o in self.session.get_outputs()]

    def __call__(self, **feed):
        feed = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in feed.items() if k in self.inputs}
        return dict(zip(self.outputs, self.session.run(None, feed)))

    def past(self, batch, present=None, length=0):
        """Keys and values of earlier positions, from the last results; empty where there are none."""
        return {name: (present or {}).get(name.replace("past_key_values", "present"),
                                          np.zeros((batch, i.shape[1], length, i.shape[3]), np.float32))
                for name, i in self.inputs.items() if name.startswith("past_key_values")}


def export(linnet, model, out, opset, *more):
    subprocess.run([linnet, "export", model, "--onnx", out, "--opset", str(opset), *more], check=True)
    for name in sorted(os.listdir(out)):
        if name.endswith(".onnx"):
            path = os.path.join(out, name)
            onnx.checker.check_model(path, full_check=True)
            onnx.shape_inference.infer_shapes(onnx.load(path), check_type=True, strict_mode=True, data_prop=True)
    return out


def random_ids(vocabulary, batch, length):
    return torch.randint(0, vocabulary, (batch, length))


def worst_of(got, want, mask=None):
    difference = np.abs(got - want.numpy())
    return float((difference * mask.numpy()[..., None] if mask is not None else difference).max())


def check_encoder(model, folder):
    session, worst = Session(os.path.join(folder, "model.onnx")), 0
    for batch, length in ((1, 1), (1, 5), (3, 9), (4, 2)):
        ids, types = random_ids(model.config.vocab_size, batch, length), torch.randint(0, 2, (batch, length))
        mask = torch.ones(batch, length, dtype=torch.int64)
        for row in range(batch):
            mask[row, max(1, length - row):] = 0
        want = model(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]
        got = list(session(input_ids=ids, attention_mask=mask, token_type_ids=types).values())[0]
        worst = max(worst, worst_of(got, want, mask if want.dim() == 3 else None))
    return worst


def check_decoder(model, folder):
    session, worst = Session(os.path.join(folder, "model.onnx")), 0
    for batch, length in ((1, 1), (2, 5), (3, 8)):
        ids, mask = random_ids(model.config.vocab_size, batch, length), torch.ones(batch, length, dtype=torch.int64)
        for row in range(batch):
            mask[row, :min(row, length - 1)] = 0
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        want = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        cuts, present, parts = [0, length // 2, length - 1, length], None, []
        if not session.past(batch):
            cuts = [0, length]
        for begin, end in zip(cuts, cuts[1:]):
            if begin < end:
                present = session(input_ids=ids[:, begin:end], attention_mask=mask[:, :end],
                                  position_ids=positions[:, begin:end], **session.past(batch, present))
                parts.append(present["logits"])
        worst = max(worst, worst_of(np.concatenate(parts, 1), want, mask))
    return worst


def check_greedy(model, folder, prompts=100, tokens=12):
    """Token for token what transformers generates."""
    session = Session(os.path.join(folder, "model.onnx"))
    for _ in range(prompts):
        ids = random_ids(model.config.vocab_size, 1, int(torch.randint(2, 8, ())))
        want = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                              pad_token_id=0, eos_token_id=-1)
        text, present = ids, None
        while text.shape[1] < want.shape[1]:
            begin = 0 if present is None or not session.past(1) else text.shape[1] - 1
            present = session(input_ids=text[:, begin:], attention_mask=torch.ones_like(text),
                              position_ids=torch.arange(begin, text.shape[1])[None], **session.past(1, present))
            text = torch.cat([text, torch.tensor(present["logits"][:, -1].argmax(-1))[:, None]], 1)
        assert torch.equal(text, want), (text, want)


def check_pair(model, folder):
    encoder, first, later, merged = (Session(os.path.join(folder, name + ".onnx")) for name in (
        "encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged"))
    worst, targets = 0, getattr(model.config, "decoder_vocab_size", None) or model.config.vocab_size
    for batch, sources, length in ((1, 3, 1), (2, 5, 4), (3, 6, 6)):
        ids, mask = random_ids(model.config.vocab_size, batch, sources), torch.ones(batch, sources, dtype=torch.int64)
        for row in range(batch):
            mask[row, max(1, sources - row):] = 0
        target = random_ids(targets, batch, length)
        want = model(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
        states = encoder(input_ids=ids, attention_mask=mask)["last_hidden_state"]
        feed = dict(encoder_attention_mask=mask, encoder_hidden_states=states)
        worst = max(worst, worst_of(first(input_ids=target, **feed)["logits"], want))
        for pair in ((first, later), (merged, merged)):
            present, parts = {}, []
            for i in range(length):
                session = pair[i > 0]
                result = session(input_ids=target[:, i:i + 1], use_cache_branch=np.array([i > 0]), **feed,
                                 **session.past(batch, present, 1))
                present.update(result)
                parts.append(result["logits"])
            worst = max(worst, worst_of(np.concatenate(parts, 1), want))
    return worst


@torch.no_grad()
def check(linnet, path):
    name = os.path.basename(os.path.normpath(path))
    with open(os.path.join(path, "config.json")) as file:
        architecture = json.load(file)["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(path).eval()
    for opset in (14, 17):
        for more in ((), ("--no-cache",)):
            decoder = hasattr(model, "lm_head") and not model.config.is_encoder_decoder
            if more and not decoder:
                continue
            with tempfile.TemporaryDirectory() as out:
                folder = export(linnet, path, os.path.join(out, "onnx"), opset, *more)
                again = export(linnet, path, os.path.join(out, "again"), opset, *more)
                for file in os.listdir(folder):
                    with open(os.path.join(folder, file), "rb") as a, open(os.path.join(again, file), "rb") as b:
                        assert a.read() == b.read(), file
                kind = check_pair if model.config.is_encoder_decoder else check_decoder if decoder else check_encoder
                worst = kind(model, folder)
                assert worst < TOLERANCE, (name, opset, worst)
                if decoder and opset == 17:
                    check_greedy(model, folder)
                print(f"{name} opset {opset} {' '.join(more)}: logits within {worst:.1e}"
                      f"{', 100 greedy texts alike' if decoder and opset == 17 else ''}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for each in sys.argv[2:] or [os.path.join(GOLDEN, name) for name in NAMES]:
        check(os.path.abspath(sys.argv[1]), each)

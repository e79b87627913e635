#!/usr/bin/env python3
"""What `linnet export --onnx` writes, in ONNX Runtime: the logits of transformers for the same folder, with and without
past, padded on either side; greedy texts; ONNX's own checks of the files; how many layers of attention ONNX Runtime's
transformer optimizer fuses. Runs of the plain Transformer and of image models are trained for a few steps and compared
with what the program itself says of them.

    tools/check_onnx.py build/release/bin/linnet [MODEL...]     needs onnx, onnxruntime, torch and transformers

Without MODEL (folders of decoders, BERT, T5 or Marian): the tiny ones of tests/golden/pretrained, and the runs.
"""

import json
import logging
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnxruntime.transformers import optimizer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests/golden/pretrained")
NAMES = ["bert_classifier", "bert_masked", "bert_model", "gpt2", "gpt2_options", "llama", "llama_biases", "llama_scaled",
         "llama_tied", "mistral", "qwen2", "t5", "t5_gated", "t5_unscaled", "marian", "marian_two_vocabularies"]
TOLERANCE = 1e-4
OPSETS = (14, 17, 18)


class Session:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        self.outputs = [o.name for o in self.session.get_outputs()]

    def __call__(self, **feed):
        feed = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in feed.items() if k in self.inputs}
        return dict(zip(self.outputs, self.session.run(None, feed)))

    def past(self, batch, present=None, length=0):
        """Keys and values of earlier positions, from the last results; empty where there are none."""
        return {name: (present or {}).get(name.replace("past_key_values", "present"),
                                          np.zeros((batch, i.shape[1], length, i.shape[3] if isinstance(i.shape[3], int) else 1), np.float32))
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


def check_greedy_pair(model, folder, prompts=100, tokens=12):
    """Token for token what transformers generates: without past, with it, and by the merged decoder."""
    encoder, first, later, merged = (Session(os.path.join(folder, name + ".onnx")) for name in (
        "encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged"))
    start = model.config.decoder_start_token_id
    for _ in range(prompts):
        ids = random_ids(model.config.vocab_size, 1, int(torch.randint(2, 8, ())))
        mask = torch.ones_like(ids)
        want = model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, num_beams=1,
                              bad_words_ids=None, forced_eos_token_id=None, eos_token_id=-1)
        feed = dict(encoder_attention_mask=mask,
                    encoder_hidden_states=encoder(input_ids=ids, attention_mask=mask)["last_hidden_state"])
        for way in ("no past", "past", "merged"):
            text, present = torch.tensor([[start]]), {}
            while text.shape[1] < want.shape[1]:
                past = way != "no past" and text.shape[1] > 1
                session = merged if way == "merged" else later if past else first
                result = session(input_ids=text[:, -1:] if past else text, use_cache_branch=np.array([past]), **feed,
                                 **session.past(1, present, 1))
                present.update(result)
                text = torch.cat([text, torch.tensor(result["logits"][:, -1].argmax(-1))[:, None]], 1)
            assert torch.equal(text, want), (way, text, want)


def check_fusions(path, folder, kind):
    """ONNX Runtime's optimizer makes one Attention of each layer, and the result computes the same."""
    with open(os.path.join(path, "config.json")) as file:
        config = transformers.AutoConfig.for_model(**json.load(file))
    file = os.path.join(folder, "model.onnx")
    logging.disable(logging.WARNING)
    fused = optimizer.optimize_model(file, model_type=kind, num_heads=config.num_attention_heads,
                                     hidden_size=config.hidden_size, opt_level=0)
    counts = fused.get_fused_operator_statistics()
    assert counts["Attention"] == config.num_hidden_layers, (folder, counts)
    fused.save_model_to_file(os.path.join(folder, "fused.onnx"))
    a, b = Session(file), Session(os.path.join(folder, "fused.onnx"))
    past = 3 if kind == "gpt2" else 0
    ids = random_ids(config.vocab_size, 2, 5)
    mask = torch.ones(2, past + 5, dtype=torch.int64)
    # The optimizer's attention of BERT takes lengths instead of a mask, so that padding must be on the right.
    mask[1, -2:] = 1 if past else 0
    mask[1, :2] = 0 if past else 1
    feed = dict(input_ids=ids, attention_mask=mask, position_ids=torch.arange(5).expand(2, 5).contiguous(),
                token_type_ids=torch.zeros_like(ids))
    for name, value in a.inputs.items():
        if name.startswith("past"):
            feed[name] = torch.randn(2, 2, value.shape[2], past, value.shape[4])
    x, y = (list(session(**feed).values())[0] for session in (a, b))
    worst = np.abs((x - y) * mask[:, -5:, None].numpy() if x.ndim == 3 else x - y).max()
    assert worst < TOLERANCE, (folder, worst)
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def exported_twice(linnet, model, out, opset, *more):
    """Exports, and checks that the bytes are the same the second time."""
    folder = export(linnet, model, os.path.join(out, "onnx"), opset, *more)
    again = export(linnet, model, os.path.join(out, "again"), opset, *more)
    for file in os.listdir(folder):
        with open(os.path.join(folder, file), "rb") as a, open(os.path.join(again, file), "rb") as b:
            assert a.read() == b.read(), file
    return folder


@torch.no_grad()
def check(linnet, path):
    name = os.path.basename(os.path.normpath(path))
    with open(os.path.join(path, "config.json")) as file:
        architecture = json.load(file)["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(path).eval()
    pair = model.config.is_encoder_decoder
    decoder = hasattr(model, "lm_head") and not pair
    for opset in OPSETS:
        for more in ((), ("--no-cache",)) if decoder else ((),):
            with tempfile.TemporaryDirectory() as out:
                folder = exported_twice(linnet, path, out, opset, *more)
                kind = check_pair if pair else check_decoder if decoder else check_encoder
                worst = kind(model, folder)
                assert worst < TOLERANCE, (name, opset, worst)
                said = f"{name} opset {opset} {' '.join(more)}: logits within {worst:.1e}"
                if opset == 17 and (decoder or pair):
                    (check_greedy_pair if pair else check_greedy)(model, folder)
                    said += ", 100 greedy texts alike"
                if model.config.model_type == "bert":
                    said += ", fused: " + check_fusions(path, folder, "bert")
                print(said, flush=True)
        # The optimizer knows a layer norm of several nodes by an epsilon below 1e-4; from opset 17 on it is one node.
        if model.config.model_type == "gpt2" and (opset >= 17 or model.config.layer_norm_epsilon < 1e-4):
            with tempfile.TemporaryDirectory() as out:
                folder = exported_twice(linnet, path, out, opset, "--joined-past")
                print(f"{name} opset {opset} --joined-past: fused: {check_fusions(path, folder, 'gpt2')}", flush=True)


@torch.no_grad()
def check_precisions(linnet, name):
    """In fewer bits: near transformers' logits, by a share of the largest."""
    path = os.path.join(GOLDEN, name)
    with open(os.path.join(path, "config.json")) as file:
        architecture = json.load(file)["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(path).eval()
    kind = check_pair if model.config.is_encoder_decoder else check_decoder if hasattr(model, "lm_head") else check_encoder
    for opset in (14, 17):
        for precision, tolerance in (("fp16", 0.02), ("int8-qdq", 0.3), ("int8-dynamic", 0.5)):
            with tempfile.TemporaryDirectory() as out:
                worst = kind(model, exported_twice(linnet, path, out, opset, "--precision", precision))
            assert worst < tolerance, (name, opset, precision, worst)
            print(f"{name} opset {opset} {precision}: logits within {worst:.1e}", flush=True)


# --- Runs ---


def program(linnet, *arguments, text=None):
    done = subprocess.run([linnet, *arguments], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"linnet {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def read_characters(path):
    """The tokenizer of single characters: a line for each, after the heading; ids 0 to 3 are special."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")[1:]
    return [{"\\s": " "}.get(line, line) for line in lines if line]


def check_translation_run(linnet, out):
    run = os.path.join(out, "dates")
    program(linnet, "train", "dates", "--run", run, "--steps", "150", "--set", "d_model=32", "--set", "d_ff=64",
            "--set", "eval_every=150")
    generator = random.Random(0)
    months = "January March April May June July August October".split()
    sources = [f"{generator.choice(months)} {generator.randrange(1, 29)}, {generator.randrange(1950, 2050)}"
               for _ in range(100)]
    want = program(linnet, "translate", run, "--beam", "1", text="\n".join(sources) + "\n").splitlines()
    for opset in OPSETS:
        with tempfile.TemporaryDirectory() as again:
            folder = exported_twice(linnet, run, again, opset)
            with open(os.path.join(folder, "config.json")) as file:
                config = json.load(file)
            source, target = (read_characters(os.path.join(folder, side + ".char")) for side in ("source", "target"))
            first_id, last_id = config["vocab_size"] - len(source), config["decoder_vocab_size"] - len(target)
            encoder, first, later, merged = (Session(os.path.join(folder, name + ".onnx")) for name in (
                "encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged"))
            for way in ("no past", "past", "merged"):
                for text, expected in zip(sources, want):
                    ids = np.array([[source.index(c) + first_id for c in text] + [config["eos_token_id"]]])
                    mask = np.ones_like(ids)
                    feed = dict(encoder_attention_mask=mask,
                                encoder_hidden_states=encoder(input_ids=ids, attention_mask=mask)["last_hidden_state"])
                    written, present = [config["decoder_start_token_id"]], {}
                    while written[-1] != config["eos_token_id"] and len(written) < 48:
                        past = way != "no past" and len(written) > 1
                        session = merged if way == "merged" else later if past else first
                        result = session(input_ids=np.array([written[-1:] if past else written]),
                                         use_cache_branch=np.array([past]), **feed, **session.past(1, present, 1))
                        present.update(result)
                        written.append(int(result["logits"][0, -1].argmax()))
                    got = "".join(target[i - last_id] for i in written[1:-1])
                    assert got == expected, (way, text, got, expected)
        print(f"run of the plain Transformer, opset {opset}: 100 greedy texts are those of linnet translate", flush=True)


def write_png(path, width, height, pixels):
    rows = b"".join(b"\0" + pixels[y * width * 3:(y + 1) * width * 3] for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check_image_runs(linnet, out):
    size, classes, generator = 16, 3, np.random.default_rng(0)
    pictures = os.path.join(out, "pictures")
    images = []
    for label in range(classes):
        os.makedirs(os.path.join(pictures, f"class{label}"))
        for i in range(12):
            pixels = generator.integers(0, 100, (size, size, 3), dtype=np.uint8)
            pixels[..., label] += 100
            path = os.path.join(pictures, f"class{label}", f"{i}.png")
            write_png(path, size, size, pixels.tobytes())
            images.append((path, pixels))
    batch = np.stack([pixels for _, pixels in images])
    for preset in ("images", "resnet20"):
        run = os.path.join(out, preset)
        program(linnet, "train", preset, "--data", pictures, "--run", run, "--steps", "12", "--batch", "8",
                "--set", f"image_size={size}")
        said = [json.loads(line) for line in
                program(linnet, "predict", run, "--json", "--top", "3", *(path for path, _ in images)).splitlines()]
        want = np.array([[next(t["probability"] for t in line["top"] if t["label"] == f"class{label}")
                          for label in range(classes)] for line in said])
        for opset in OPSETS:
            with tempfile.TemporaryDirectory() as again:
                logits = Session(os.path.join(exported_twice(linnet, run, again, opset), "model.onnx"))(
                    images=batch)["logits"].astype(np.float64)
            got = np.exp(logits - logits.max(1, keepdims=True))
            got /= got.sum(1, keepdims=True)
            # Of probabilities the logarithms are logits but for a number that all of a row share.
            worst = np.abs(np.log(got) - np.log(want)).max()
            assert worst < TOLERANCE, (preset, opset, worst)
            print(f"run of the preset {preset}, opset {opset}: log probabilities within {worst:.1e}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    program_path = os.path.abspath(sys.argv[1])
    for each in sys.argv[2:] or [os.path.join(GOLDEN, name) for name in NAMES]:
        check(program_path, each)
    if not sys.argv[2:]:
        for each in ("bert_classifier", "gpt2", "t5", "marian"):
            check_precisions(program_path, each)
        with tempfile.TemporaryDirectory() as folder:
            check_translation_run(program_path, folder)
            check_image_runs(program_path, folder)

#!/usr/bin/env python3
"""Networks that PyTorch exports with random weights, read by Linnet: outputs within 1e-4 of PyTorch's, and 20 training
steps whose losses are within 1e-4 (relative) of PyTorch's with the same optimizer.

    tools/check_onnx_import.py build/release [NETWORK...]      needs onnx, onnxscript, torch and transformers

Each network is exported by both of torch.onnx.export's exporters, where the installed release has both.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from torch import nn
from torch.nn import functional as F

TOLERANCE, STEPS = 1e-4, 20


class BasicBlock(nn.Module):
    def __init__(self, n, m, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.bn2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.down = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)) if stride > 1 else None

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.down(x) if self.down else x))


class ResNet18(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        widths = [64, 64, 128, 256, 512]
        self.blocks = nn.Sequential(*(BasicBlock(n if i == 0 else m, m, 2 if i == 0 and m > 64 else 1)
                                      for n, m in zip(widths, widths[1:]) for i in range(2)))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


class InvertedResidual(nn.Module):
    def __init__(self, n, m, stride, expand=4):
        super().__init__()
        hidden = n * expand
        self.same = stride == 1 and n == m
        self.body = nn.Sequential(nn.Conv2d(n, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
                                  nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
                                  nn.BatchNorm2d(hidden), nn.ReLU6(), nn.Conv2d(hidden, m, 1, bias=False),
                                  nn.BatchNorm2d(m))

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


class MobileNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Hardswish(), InvertedResidual(8, 8, 1),
                                  InvertedResidual(8, 16, 2), InvertedResidual(16, 16, 1), nn.AdaptiveAvgPool2d(1),
                                  nn.Flatten(), nn.Linear(16, classes))

    def forward(self, x):
        return self.body(x)


class DenseNet(nn.Module):
    def __init__(self, growth=6, classes=10):
        super().__init__()
        self.stem, n = nn.Conv2d(3, 12, 3, 1, 1), 12
        self.layers = nn.ModuleList()
        for _ in range(4):
            self.layers.append(nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, growth, 3, 1, 1, bias=False)))
            n += growth
        self.last = nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
                                  nn.Linear(n * 64, classes))

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.last(x)


class UNet(nn.Module):
    """A class for each pixel."""

    def __init__(self, classes=4):
        super().__init__()

        def block(n, m):
            return nn.Sequential(nn.Conv2d(n, m, 3, padding=1), nn.GroupNorm(2, m), nn.SiLU(),
                                 nn.Conv2d(m, m, 3, padding=1), nn.LeakyReLU(0.1))

        self.down1, self.down2, self.middle = block(3, 8), block(8, 16), block(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1, self.head = block(32, 16), block(16, 8), nn.Conv2d(8, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], 1))
        a = self.join1(torch.cat([self.up1(b), a], 1))
        return self.head(a).permute(0, 2, 3, 1)


class VisionTransformer(nn.Module):
    def __init__(self, width=32, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


class Mixer(nn.Module):
    def __init__(self, width=24, patches=16, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.tokens = nn.ModuleList(nn.Sequential(nn.Linear(patches, 20), nn.GELU("tanh"), nn.Linear(20, patches))
                                    for _ in range(2))
        self.channels = nn.ModuleList(nn.Sequential(nn.Linear(width, 40), nn.GELU(), nn.Linear(40, width))
                                      for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for i in range(2):
            x = x + self.tokens[i](self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.channels[i](self.norms[2 * i + 1](x))
        return self.head(self.norms[4](x).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind, classes=5, **options):
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.layers = kind(12, 16, batch_first=True, **options)
        self.head = nn.Linear(16 * (2 if options.get("bidirectional") else 1), classes)

    def forward(self, ids):
        return self.head(self.layers(self.words(ids))[0][:, -1])


class Output(nn.Module):
    """One tensor of what a network of transformers returns."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, input_ids, attention_mask=None):
        given = {} if attention_mask is None else {"attention_mask": attention_mask}
        return getattr(self.model(input_ids=input_ids, return_dict=True, **given), self.name)


def bert():
    return Output(transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, num_labels=5, attn_implementation="eager")), "logits")


def gpt2():
    return Output(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=32, use_cache=False,
        attn_implementation="eager")), "logits")


def t5_encoder():
    return Output(transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=60, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, use_cache=False)), "last_hidden_state")


def images(size):
    return lambda: (torch.randn(4, 3, size, size),)


def tokens(vocabulary=50, mask=False):
    def make():
        ids = torch.randint(0, vocabulary, (4, 9))
        return (ids, torch.ones_like(ids)) if mask else (ids,)
    return make


# The network, its inputs, and whether training it is compared. Not where an exporter folds batch normalization into
# convolutions, which then are other parameters than PyTorch's; and not of GPT-2, which torch.export writes with sequences
# of tensors unless it optimizes, and that folds parameters.
NETWORKS = {
    "resnet18": (ResNet18, images(64), False),
    "mobilenet": (MobileNet, images(32), False),
    "densenet": (DenseNet, images(16), False),
    "unet": (UNet, images(16), True),
    "vit": (VisionTransformer, images(32), True),
    "mixer": (Mixer, images(32), True),
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2), tokens(), True),
    "gru": (lambda: Recurrent(nn.GRU, bidirectional=True), tokens(), True),
    "rnn": (lambda: Recurrent(nn.RNN), tokens(), True),
    "bert": (bert, tokens(mask=True), True),
    "gpt2": (gpt2, tokens(), False),
    "t5_encoder": (t5_encoder, tokens(), True),
}


def losses_of(model, inputs, labels, rate):
    """Twenty steps of Adam on one batch."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=rate), []
    for _ in range(STEPS):
        logits = model(*inputs)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


class CannotExport(Exception):
    pass


@contextlib.contextmanager
def quiet():
    """The exporters write pages to the standard output, some of them past Python."""
    sys.stdout.flush()
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        for file in (*kept, nowhere):
            os.close(file)


def export(model, inputs, path, dynamo, optimize=False):
    # Folding would make constants of what is computed of parameters alone, and then of what is trained.
    options = dict(verbose=False, optimize=optimize) if dynamo else dict(opset_version=17, do_constant_folding=False)
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(model, inputs, path, dynamo=dynamo, output_names=["output"],
                              input_names=[f"input{i}" for i in range(len(inputs))], **options)
        except Exception as error:
            raise CannotExport from error


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip())
    return done.stdout


def check(build, name, dynamo):
    make, make_inputs, trained = NETWORKS[name]
    torch.manual_seed(1)
    model, inputs = make().eval(), make_inputs()
    with torch.no_grad():
        # The exporters make one of equal parameters (all ones, all zeros), which then are trained together.
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        want = model(*inputs).numpy()
    with tempfile.TemporaryDirectory() as out:
        path, batch, got = (os.path.join(out, file) for file in ("model.onnx", "batch.safetensors", "got.safetensors"))
        export(model, inputs, path, dynamo, optimize=name == "gpt2")
        arrays = {f"input{i}": value.numpy().copy() for i, value in enumerate(inputs)}
        save_file(arrays, batch)
        run(os.path.join(build, "bin/linnet"), "onnx", "run", path, batch, "-o", got)
        worst = np.abs(load_file(got)["output"] - want).max()
        assert worst < TOLERANCE, worst
        said = f"{name} ({'torch.export' if dynamo else 'TorchScript'}): outputs within {worst:.1e}"
        if trained:
            labels = torch.randint(0, want.shape[-1], (int(np.prod(want.shape[:-1])),))
            save_file(arrays | {"labels": labels.numpy()}, batch)
            ours = np.array(run(os.path.join(build, "examples/example_train_onnx"), path, batch, "output", str(STEPS),
                                "0.001").split(), float)
            theirs = losses_of(model, inputs, labels, 1e-3)
            difference = np.abs(ours / theirs - 1).max()
            assert difference < TOLERANCE, (ours, theirs)
            said += f", {STEPS} losses {theirs[0]:.4f} to {theirs[-1]:.4f} within {difference:.1e}"
        print(said, flush=True)


def main(build, names):
    failed = 0
    for name in names or NETWORKS:
        for dynamo in (True, False):
            try:
                check(build, name, dynamo)
            except CannotExport:
                print(f"{name} ({'torch.export' if dynamo else 'TorchScript'}): this PyTorch cannot export it", flush=True)
            except Exception as error:  # one network's failure must not hide those of the others
                failed += 1
                print(f"{name} ({'torch.export' if dynamo else 'TorchScript'}): FAILED: {str(error)[:600]}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main(os.path.abspath(sys.argv[1]), sys.argv[2:])

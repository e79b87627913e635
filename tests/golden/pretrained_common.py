"""What the generators of pretrained/ share: tiny random checkpoints of transformers with float64 references.

A case is a folder pretrained/<name>/ as transformers' save_pretrained() writes it, and beside it
pretrained/<name>.safetensors:

    logits (or another output)  float64, NaN where it is not compared (padding)
    loss                        float64 [1], mean over the targets
    grad.<tensor>               float64, of that mean, under the names and in the layout of the checkpoint
    anything else               int32 inputs of Linnet's graph, under their names
"""

import json
import os

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pretrained")
IGNORED = -100  # transformers' target that does not count; Linnet's is any negative one


@torch.no_grad()
def disturb(model, seed, scale=0.1):
    """Random values everywhere, biases and norms included, so that nothing can be left out unseen."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.copy_(1 + scale * noise if is_norm else 2 * scale * noise)


def ragged(lengths, columns):
    """True where a row holds a token, [batch, columns]."""
    return torch.arange(columns)[None, :] < torch.tensor(lengths)[:, None]


def masked(values, real):
    """NaN where `real` [batch, time] is false."""
    return values.detach().masked_fill(~real[..., None], float("nan"))


def parts(tensor):
    """A tensor; of experts that are held in one, each by itself, and the two halves of each."""
    yield tensor
    if tensor.dim() == 3:
        for expert in tensor:
            yield expert
            yield from expert.chunk(2)


def gradients(model, folder=None):
    """By the names that the files of pretrained/<folder> have, which may call a parameter otherwise than the model."""
    saved = load_file(os.path.join(FOLDER, folder, "model.safetensors")) if folder else {}
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        if not saved or name in saved:
            found["grad." + name] = parameter.grad
            continue
        for part, gradient in zip(parts(parameter.detach().float()), parts(parameter.grad)):
            for key in [key for key, value in saved.items() if np.array_equal(value, part.numpy())]:
                found["grad." + key] = gradient
    for key, value in saved.items():  # several of the model's, from the top
        if "grad." + key not in found:
            rows, stacked = 0, []
            while rows < len(value):
                stacked += [p for p in model.parameters() if p.grad is not None and p.shape[1:] == value.shape[1:]
                            and np.array_equal(p.detach().float().numpy(), value[rows:rows + len(p)])][:1]
                if not stacked or rows == sum(map(len, stacked)):
                    break
                rows = sum(map(len, stacked))
            if rows == len(value):
                found["grad." + key] = torch.cat([p.grad for p in stacked])
    return found


def write_reference(name, arrays, metadata=None):
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, name + ".safetensors")
    out = {}
    for key, value in arrays.items():
        value = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        out[key] = np.ascontiguousarray(value.astype(np.float64 if value.dtype.kind == "f" else np.int32))
    save_file(out, path, metadata={"torch_version": torch.__version__, **(metadata or {})})
    with open(path, "r+b") as file:  # the library writes the metadata in random order
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        file.seek(8)
        file.write(json.dumps(header, separators=(",", ":")).encode().ljust(length))
    for file in os.listdir(os.path.join(FOLDER, name)):
        os.chmod(os.path.join(FOLDER, name, file), 0o644)
    os.chmod(path, 0o644)
    size = sum(os.path.getsize(os.path.join(FOLDER, name, f)) for f in os.listdir(os.path.join(FOLDER, name)))
    print(f"{name}: folder {size} bytes, reference {os.path.getsize(path)} bytes, loss {out['loss'].item():.6f}")


def prepare():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

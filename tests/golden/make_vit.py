"""A tiny random ViT checkpoint with float64 references: see pretrained_common.py. `images` are float64 [N, height, width,
channels], already normalized.

    python make_vit.py        needs torch, transformers, safetensors and numpy
"""

import os
import shutil

import torch
from safetensors.torch import load_file
from transformers import ViTConfig, ViTForImageClassification

from exact_float64 import exact
from pretrained_common import FOLDER, disturb, gradients, prepare, write_reference

SMALL = dict(image_size=12, patch_size=4, num_channels=3, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=5)


def file_names(model, folder):
    """The name in the folder's file of each parameter: transformers renames parameters when it writes them."""
    stored = load_file(os.path.join(folder, "model.safetensors"))
    own = dict(model.named_parameters())
    names = {}
    for name, parameter in own.items():
        values = parameter.detach().float()
        found = [key for key, tensor in stored.items() if tensor.shape == values.shape and torch.equal(tensor, values)]
        assert len(found) == 1, (name, found)
        names[name] = found[0]
    return names


def checkpoint(name, seed, **options):
    model = ViTForImageClassification(ViTConfig(**{**SMALL, **options}))
    disturb(model, seed)
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    return ViTForImageClassification.from_pretrained(folder, attn_implementation="eager").double().eval(), folder


def case(name, seed, **options):
    model, folder = checkpoint(name, seed, **options)
    names = file_names(model, folder)
    config = model.config
    generator = torch.Generator().manual_seed(seed + 1)
    images = torch.randn((3, config.image_size, config.image_size, config.num_channels), generator=generator,
                         dtype=torch.float64)
    labels = torch.tensor([4, 0, 2])
    with exact():
        logits = model(pixel_values=images.permute(0, 3, 1, 2)).logits
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
    renamed = {"grad." + names[key[len("grad."):]]: value for key, value in gradients(model).items()}
    write_reference(name, {"images": images, "labels": labels, "logits": logits, "loss": loss, **renamed})


if __name__ == "__main__":
    prepare()
    case("vit", 41)
    case("vit_no_bias", 51, qkv_bias=False, num_channels=1, image_size=8, patch_size=2, layer_norm_eps=1e-6,
         hidden_act="gelu_new")

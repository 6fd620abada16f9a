#!/usr/bin/env python3
"""Writes goldens/models: what the modules of torchvision and Hugging Face's transformers compute.

usage: make_model_goldens.py [MODEL …]

Needs torch, torchvision and transformers of PyPI (a venv will do). Everything is computed in double
precision on the weights and data of models.py: the outputs in evaluation, and the losses of ten
steps of SGD in training.
"""
import json
import math
import os
import sys

import torch
import torchvision
import transformers
from torch import nn
from torch.nn import functional as F

import formula
import models


def resnet(options):
    net = getattr(torchvision.models, f"resnet{options['depth']}")(
        num_classes=options["num_classes"])
    if options.get("stem") == "cifar":
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        net.maxpool = nn.Identity()
    return net


def vit(options):
    names = [name for name in options if name != "name"]
    return torchvision.models.VisionTransformer(**{name: options[name] for name in names})


class WeatherLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width),
                                   "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width),
                                  "fc2": nn.Linear(4 * width, width)})

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.attn["qkv"](self.norm1(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.attn["proj"](y)
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


class WeatherViT(nn.Module):
    """The network of NERSC's tutorial, by its description: layers of a Vision Transformer with
    norms first, and a head that makes the pixels of each patch, channels last."""

    def __init__(self, options):
        super().__init__()
        o = self.options = options
        size, patch, width = o["img_size"], o["patch_size"], o["embed_dim"]
        self.grid = size[0] // patch, size[1] // patch
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(o["n_in_channels"], width, patch,
                                                            patch)})
        self.pos_embed = nn.Parameter(torch.zeros(1, math.prod(self.grid), width))
        self.blocks = nn.ModuleList([WeatherLayer(width, o["num_heads"])
                                     for _ in range(o["depth"])])
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, o["n_out_channels"] * patch * patch, bias=False)

    def forward(self, x):
        patch = self.options["patch_size"]
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2) + self.pos_embed
        for layer in self.blocks:
            x = layer(x)
        x = self.head(self.norm(x)).unflatten(2, (patch, patch, -1)).unflatten(1, self.grid)
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


class Decoder(nn.Module):
    """A decoder of Hugging Face's, of which only the scores are asked for."""

    def __init__(self, options):
        super().__init__()
        config = dict(options["config"])
        config = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
        self.net = transformers.AutoModelForCausalLM.from_config(config,
                                                                 attn_implementation="eager")

    def forward(self, ids):
        return self.net(input_ids=ids, use_cache=False).logits

    def state_dict(self, *args, **kwargs):
        state = self.net.state_dict(*args, **kwargs)
        if self.net.config.tie_word_embeddings:  # files have the weight once
            del state["lm_head.weight"]
        return state

    def load_state_dict(self, *args, **kwargs):
        return self.net.load_state_dict(*args, strict=not self.net.config.tie_word_embeddings)


MODULES = {"resnet": resnet, "vit": vit, "weather-vit": WeatherViT, None: Decoder}


def kind_of(name, value):
    """How models.tensor draws a parameter or buffer."""
    if name.endswith("num_batches_tracked"):
        return "count"
    if name.endswith("bn3.weight"):  # else rounding grows from block to block
        return 0.2
    if name.endswith("running_var") or (value.dim() == 1 and name.endswith("weight")):
        return "one"
    if value.dim() < 2:
        return 0.1
    return 0.1 if "embed" in name or "token" in name else round(
        math.sqrt(3 / math.prod(value.shape[1:])), 6)


def loss_of(output, fields):
    if "targets" in fields:
        distance = (output - fields["targets"]).flatten(1).norm(dim=1)
        return (distance / fields["targets"].flatten(1).norm(dim=1)).mean()
    if "input_ids" in fields:  # the next token
        return F.cross_entropy(output[:, :-1].flatten(0, 1), fields["input_ids"][:, 1:].flatten())
    return F.cross_entropy(output, fields["labels"])


def to_torch(entry):
    dtype, shape, values = entry
    dtype = {"F32": torch.float32, "I64": torch.int64}[dtype]
    value = torch.tensor(values, dtype=dtype).reshape(shape)
    return value.double() if dtype == torch.float32 else value


def run(model):
    options, _, _, batch, lr = models.MODELS[model]
    net = MODULES[options.get("name")](options).double()
    golden = {"parameters": [[name, list(value.shape), kind_of(name, value)]
                             for name, value in net.state_dict().items()]}
    net.load_state_dict({name: to_torch(entry)
                         for name, entry in models.weights(golden).items()})
    fields = {name: to_torch(entry) for name, entry in models.data_set(model).items()}
    first = next(iter(fields.values()))
    net.eval()
    with torch.no_grad():
        output = net(first[:batch])
    golden["shape"] = list(output.shape)
    golden["output"] = formula.sketch(output.flatten().tolist())
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    golden["losses"] = []
    for step in range(models.STEPS):
        part = {name: value[step * batch:(step + 1) * batch] for name, value in fields.items()}
        loss = loss_of(net(next(iter(part.values()))), part)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        golden["losses"].append(loss.item())
    os.makedirs(models.GOLDENS, exist_ok=True)
    with open(os.path.join(models.GOLDENS, f"{model}.json"), "w", encoding="utf-8") as f:
        json.dump(golden, f, separators=(",", ":"))
        f.write("\n")
    print(model, golden["losses"], flush=True)


if __name__ == "__main__":
    for model_name in sys.argv[1:] or models.MODELS:
        run(model_name)

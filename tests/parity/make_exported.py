#!/usr/bin/env python3
"""Exports small networks for tests, and writes what PyTorch computes with them.

usage: make_exported.py FOLDER state|decoders|release

state: a network with tied, unread and frozen weights, buffers, batch norm, and a branch that asks
for self.training, in both modes; and one with stochastic depth. decoders: the models of
support/goldens/generate, whose folders have them as net.pt2. release: two networks named by the
release of PyTorch that runs this, from 2.9 on. Paths of this machine are left out. Weights come
from a formula, so that they do not depend on the release.
"""
import io
import json
import os
import sys
import warnings
import zipfile

import torch
from torch import nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "goldens")
TYPES = {torch.float32: "F32", torch.int64: "I64"}


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.conv = nn.Conv1d(6, 8, 3, padding=1)
        self.bn = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 6)
        self.out.bias.requires_grad_(False)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.embed.weight
        self.extra = nn.Linear(12, 12)
        self.unread = nn.Parameter(torch.zeros(3))
        self.register_buffer("scale", torch.tensor([1.5]))
        self.register_buffer("seen", torch.arange(2))
        self.register_buffer("places", torch.arange(5.0), persistent=False)

    def forward(self, input_ids):
        x = self.embed(input_ids) + self.places[:, None]
        x = self.out(F.relu(self.bn(self.conv(x.transpose(1, 2)))).transpose(1, 2)) * self.scale
        x = self.head(F.dropout(x, 0.2, self.training))
        if self.training:
            return x + 0.1 * self.extra(x)
        return x.clamp(-3, 3) * 0.5


class Depth(nn.Module):
    """Stochastic depth, as torchvision has it."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs):
        noise = torch.empty([inputs.shape[0], 1]).bernoulli_(0.5).div_(0.5)
        return self.two(inputs + self.one(inputs) * noise)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4, 5)

    def forward(self, images):
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(self.drop(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, 2, width // 2).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1, self.training)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(16, 8), nn.Embedding(6, 8)
        self.layers = nn.ModuleList(Layer(8) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, input_ids):
        x = self.embed(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Logits(nn.Module):
    """A decoder of transformers without its cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


def fill(net):
    """Sets the parameters by a formula."""
    with torch.no_grad():
        for number, (name, p) in enumerate(net.named_parameters()):
            at = torch.arange(p.numel(), dtype=torch.float64) + 37 * number
            wave = torch.sin(at * at * 0.7 + at) * (1 if p.dim() == 1 else p[0].numel()) ** -0.5
            is_scale = "norm" in name or name.startswith("bn")
            p.copy_((wave.reshape(p.shape) * 0.9 + (is_scale and "weight" in name)).float())


def neutral(data, packs):
    """A program without the paths of this machine, and without its sample inputs."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if "/sample_inputs/" in info.filename:
                continue
            if info.filename.endswith("model.json"):
                program = json.loads(content)
                for node in program["graph_module"]["graph"]["nodes"]:
                    node["metadata"].pop("stack_trace", None)
                content = json.dumps(program).encode()
            packing = zipfile.ZIP_DEFLATED if packs else zipfile.ZIP_STORED
            new.writestr(info.filename.replace("archive/", "net/", 1), content, packing)
    return out.getvalue()


def export(net, fields, path, dynamic=None, packs=False):
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch, **(dynamic or {})} for _ in fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, tuple(f[:2] for f in fields.values()),
                                      dynamic_shapes=shapes, strict=False)
        file = io.BytesIO()
        torch.export.save(program, file)
    with open(path, "wb") as out:
        out.write(neutral(file.getvalue(), packs))


def raw(tensor):
    return (TYPES[tensor.dtype], tensor.shape, tensor.detach().contiguous().numpy().tobytes())


def write_expected(net, fields, target, path):
    """Loss, gradients and statistics of a step without dropout, and then the result of eval()."""
    found = {f"field.{name}": raw(value) for name, value in fields.items()}
    found["field.target"] = raw(target)
    real = F.dropout
    F.dropout = lambda x, *_, **__: x
    out = net(*fields.values())
    F.dropout = real
    loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
    loss.backward()
    found["loss"], found["output"] = raw(loss.reshape(1)), raw(out)
    found.update({f"grad.{name}": raw(p.grad) for name, p in net.named_parameters()
                  if p.grad is not None})
    found.update({f"after.{name}": raw(value) for name, value in net.named_buffers()
                  if value.dtype == torch.float32 and "running" in name})
    fill(net)
    for name, value in net.named_buffers():
        if "running" in name:
            value.fill_(float("var" in name))
    with torch.no_grad():
        out = net.eval()(*fields.values())
    found["evaluated"] = raw(out)
    loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
    found["evaluated_loss"] = raw(loss.reshape(1))
    tensors.write(path, found)


def make_state(folder):
    net = State()
    fill(net)
    fields = {"input_ids": torch.arange(15).reshape(3, 5) * 5 % 12}
    export(Depth().train(), {"inputs": torch.zeros(2, 4)}, f"{folder}/depth.pt2")
    export(net.train(), fields, f"{folder}/state.pt2")
    export(net.eval(), fields, f"{folder}/state_eval.pt2")
    write_expected(net.train(), fields, torch.arange(15).reshape(3, 5) * 7 % 12,
                   f"{folder}/state.expected.safetensors")


def make_decoders(folder):
    import transformers
    for name in "generate", "generate-gpt2":
        model = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.join(GOLDENS, name), attn_implementation="sdpa")
        ids = torch.arange(14).reshape(2, 7)
        length = torch.export.Dim("length", max=128)
        export(Logits(model).train(), {"input_ids": ids}, f"{folder}/{name}.pt2", {1: length}, True)


def make_release(folder):
    release = ".".join(torch.__version__.split(".")[:2])
    for name, net, fields, target in [
            ("cnn", Cnn(), {"images": torch.sin(torch.arange(3 * 64.0)).reshape(3, 1, 8, 8)},
             torch.tensor([1, 4, 0])),
            ("transformer", Transformer(), {"input_ids": torch.arange(18).reshape(3, 6) * 5 % 16},
             torch.arange(18).reshape(3, 6) * 3 % 16)]:
        fill(net)
        export(net.train(), fields, f"{folder}/{name}-{release}.pt2")
        write_expected(net, fields, target, f"{folder}/{name}.expected.safetensors")


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    {"state": make_state, "decoders": make_decoders,
     "release": make_release}[sys.argv[2]](sys.argv[1])

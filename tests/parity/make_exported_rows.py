#!/usr/bin/env python3
"""Writes exported/rows.pt2, shared.pt2 and fixed.pt2, the programs of a network with a branch for
each of many operations, of one whose layers are called several times, and of one that is exported
with a fixed batch, and what PyTorch computes of them: loss, gradients, statistics.

usage: make_exported_rows.py
Needs PyTorch 2.9 or later. test_exported.py reads the files.
"""
import copy
import os
import sys
import warnings

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
import tensors  # noqa: E402

BATCH, STEPS, WIDTH = 3, 6, 8


class Branch(nn.Module):
    """What `function` makes of a linear layer's output y [N, 6, size] and of x [N, 6, 8]."""

    def __init__(self, function, size):
        super().__init__()
        self.layer, self.function = nn.Linear(WIDTH, size, bias=False), function

    def forward(self, x):
        return self.function(self.layer(x), x)


def places(x, size):
    return (torch.arange(STEPS) % 3).view(1, STEPS, 1).expand(x.shape[0], STEPS, size)


def write_parts(y, _):
    y = y.clone()
    y[:, torch.tensor([1, 3])] = y[:, :2] * 2
    y[..., 0] = 0.5
    y[:, -1:, 1:3] += 1
    return y


def write_rows(y, x):
    y, rows = y.clone(), torch.arange(x.shape[0])
    y[rows, (x[:, 0, 0] > 0).long()] = 0.25
    y[rows, (x[:, 1, 0] > 0).long() + 2, 1] = x[:, 0, 1]
    return y


def write_masked(y, x):
    y = y.clone()
    y[x[..., 0] > 0.3] = torch.tensor([2.5, 1.5, 0.5, -0.5]).to(y)
    return y


def without_gradient(y, x):
    with torch.no_grad():
        target = torch.tanh(y) + x[..., :4]
    return (y - target) * y


def heads(z):
    return z.view(-1, 2, 3, 2, 4).transpose(2, 3)


TREE = torch.ones(STEPS, STEPS).tril().bool()
EDGES = torch.tensor([[1, 2, 3, 4, 5, 0, 3, 4], [0, 1, 2, 3, 4, 5, 0, 2]])
ROWS = {
    "glu": (lambda y, x: F.glu(y), 6), "glu_steps": (lambda y, x: F.glu(y, 1), 2),
    "one_hot": (lambda y, x: F.one_hot((x[..., 0] > 0).long(), 4) * y, 4),
    "median": (lambda y, x: y.median(-1).values, 5),
    "median_steps": (lambda y, x: y.median(1, keepdim=True)[0], 4),
    "argsort": (lambda y, x: torch.gather(y, 1, x.argsort(1)[..., :4]), 4),
    "movedim": (lambda y, x: y.unsqueeze(2).movedim((1, 3), (3, 1)), 3),
    "transposed": (lambda y, x: y.mT @ x[..., :4], 3),
    "cosine": (lambda y, x: F.cosine_similarity(y.unsqueeze(2), x.unsqueeze(1), dim=-1), 8),
    "distances": (lambda y, x: torch.cdist(y, x), 8),
    "distances_1": (lambda y, x: torch.cdist(y, x, p=1.0), 8),
    "pairwise": (lambda y, x: F.pairwise_distance(y, x, p=3, keepdim=True), 8),
    "bucketize": (lambda y, x: torch.bucketize(x[..., :4], torch.tensor([-1.0, 0.0, 1.0])) * y, 4),
    "search": (lambda y, x: torch.searchsorted(torch.tensor([-1.0, 0.0]), x[..., :4],
                                               right=True) * y, 4),
    "shifts": (lambda y, x: (((x[..., :4] * 9).long() & 15) >> 2 << 1) * y, 4),
    "var_mean": (lambda y, x: torch.cat(torch.var_mean(y, 1), -1), 4),
    "std_mean": (lambda y, x: sum(torch.std_mean(y, -1, unbiased=False, keepdim=True)), 4),
    "mean_there": (lambda y, x: y.new_zeros(x.shape[0], 3, 4).scatter_reduce(
        1, places(x, 4), y, "mean", include_self=False), 4),
    "largest_there": (lambda y, x: y.new_zeros(x.shape[0], 3, 4).scatter_reduce(
        1, places(x, 4), y, "amax", include_self=False), 4),
    "smallest_there": (lambda y, x: y.scatter_reduce(1, places(x, 4), y * 2, "amin"), 4),
    "sum_there": (lambda y, x: y.scatter_reduce(1, places(x, 4), y * 2, "sum"), 4),
    "value_there": (lambda y, x: y.scatter(1, places(x, 4)[:, :3], 2.0), 4),
    "edges": (lambda y, x: torch.zeros_like(y).index_add(1, EDGES[1], y[:, EDGES[0]], alpha=2), 4),
    "mask": (lambda y, x: (y @ y.mT)[:, TREE], 4),
    "apart": (lambda y, x: y.view(-1, 2, 3, 4)[
        :, torch.tensor([0, 1]), :, torch.tensor([1, 3])].transpose(0, 1), 4),
    "write_parts": (write_parts, 4), "write_rows": (write_rows, 4),
    "write_masked": (write_masked, 4), "without_gradient": (without_gradient, 4),
    "tensordot": (lambda y, x: torch.tensordot(y, torch.linspace(0, 1, 96).view(6, 8, 2).to(y),
                                               dims=([1, 2], [0, 1])), 8),
    "outer": (lambda y, x: y * torch.outer(torch.arange(6.0), torch.arange(4.0)), 4),
    "kthvalue": (lambda y, x: y.kthvalue(2, dim=-1).values, 5),
    "quantile": (lambda y, x: y.quantile(0.3, dim=-1), 5),
    "running": (lambda y, x: y.cummax(1).values - y.cummin(1).values, 3),
    "extremes": (lambda y, x: torch.cat(torch.aminmax(y, dim=1), -1), 4),
    "hstack": (lambda y, x: torch.hstack([y, x[..., :4]]), 4),
    "dstack": (lambda y, x: torch.dstack([y, x[..., :2]]), 2),
    "tensor_split": (lambda y, x: torch.cat(
        [part * (i + 1) for i, part in enumerate(torch.tensor_split(y, 3, dim=-1))], -1), 5),
    "meshgrid": (lambda y, x: y * sum(torch.meshgrid(torch.arange(4.0), torch.arange(6.0),
                                                     indexing="xy")), 4),
    "diagonal": (lambda y, x: torch.diagonal(y, 1, 1, 2), 6),
    "diag_embed": (lambda y, x: torch.diag_embed(y), 3),
    "rot90": (lambda y, x: torch.rot90(y, 3, (1, 2)), 4),
    "tile": (lambda y, x: y.tile(2), 3), "roll": (lambda y, x: y * torch.arange(24.0).view(
        6, 4).roll(5), 4),
    "repeats": (lambda y, x: y.repeat_interleave(torch.tensor([1, 2, 0, 3, 1, 1]), dim=1,
                                                 output_size=8), 4),
    "attention_3": (lambda y, x: F.scaled_dot_product_attention(y, x, x), 8),
    "attention_5": (lambda y, x: F.scaled_dot_product_attention(
        heads(y), heads(x), heads(x), is_causal=True), 8),
    "attention_cross": (lambda y, x: F.scaled_dot_product_attention(
        y.unsqueeze(1), x[:, :4].unsqueeze(1), x[:, :4].unsqueeze(1), is_causal=True), 8),
    "terms": (lambda y, x: F.mse_loss(y, x[..., :4], reduction="none") + F.huber_loss(
        y, x[..., :4], reduction="none", delta=0.5) + F.binary_cross_entropy_with_logits(
            y, (x[..., :4] > 0).float(), reduction="none"), 4),
    "masked_mean": (lambda y, x: (y * (x[..., :1] > 0)).sum(1) / torch.count_nonzero(
        x[..., 0] > 0, 1).clamp(min=1)[:, None], 4),
    "rare": (lambda y, x: torch.special.expit(y) + torch.multiply(y, y) + torch.clip(
        y, -0.5, 0.5) + torch.heaviside(x[..., :4], x[..., 4:]) + torch.logaddexp2(
            y, -y) + torch.where(torch.isclose(y, y), y, 0), 4),
    "cross": (lambda y, x: torch.linalg.cross(y, x[..., :3]), 3),
}


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.ModuleDict({name: Branch(*row) for name, row in ROWS.items()})
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm, self.bilinear = nn.LayerNorm(WIDTH, bias=False), nn.Bilinear(WIDTH, WIDTH, 2)
        self.steps = nn.LSTM(WIDTH, 3)

    def forward(self, x):
        z = self.norm(x)
        z = self.attention(z, z, z, key_padding_mask=x[..., 0] > 1.5)[0]
        first = self.steps(z.transpose(0, 1))[0].transpose(0, 1)
        parts = [z, first, self.bilinear(z, x), *(branch(x) for branch in self.rows.values())]
        return torch.cat([part.flatten(1) for part in parts], 1)


class Shared(nn.Module):
    """Layers that are called several times, and results that are nested."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.steps, self.head = nn.LSTM(6, 5, batch_first=True, bidirectional=True), nn.Linear(4, 3)
        self.rows = nn.BatchNorm1d(10)
        self.images = nn.InstanceNorm2d(2, affine=True, track_running_stats=True)

    def one(self, x):
        return torch.relu(self.norm(self.conv(self.images(x)))).mean((2, 3))

    def forward(self, x, y):
        a, b, c = self.one(x), self.conv(y), self.norm(self.conv(x.flip(3)))
        steps = self.steps(x[:, 0])[0] - self.steps(y[:, 1])[0]
        steps = self.rows(steps.reshape(-1, 10)).reshape(x.shape[0], -1)
        out = torch.cat([self.head(a), (torch.relu(b) * c).mean((2, 3)), steps], 1)
        return {"states": [a, b], "result": {"out": out}}


class Fixed(nn.Module):
    """Asks for the batch's size in many ways."""

    def __init__(self):
        super().__init__()
        self.first, self.embed = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Linear(WIDTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.cell, self.head = nn.LSTMCell(WIDTH, 4), nn.Linear(WIDTH, 3)

    def forward(self, x):
        samples, rows = x.shape[0], torch.arange(x.shape[0])
        z = torch.cat([self.first.expand(samples, -1, -1), self.embed(x)], 1)
        z = z + x.new_zeros(samples, STEPS + 1, 1)
        z = self.attention(z, z, z)[0] + self.first.repeat(samples, 1, 1)
        h = c = x.new_zeros(samples, 4)
        for step in range(2):
            h, c = self.cell(z[:, step], (h, c))
        chosen = z[rows, (x[:, 0, 0] > 0).long()]
        marks = x.new_zeros(samples, 2)
        marks[:, 1] = 1
        heads = z.view(samples, STEPS + 1, 4, 2).transpose(1, 2).reshape(samples * 4, -1)
        return torch.cat([self.head(z).reshape(samples, -1), h, chosen, marks,
                          heads.view(samples, 4, -1).mean(1)], 1)


def write(name, net, fields, pick, fixed=0):
    net.train()
    batch = torch.export.Dim("batch", min=1, max=1024)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            net, tuple(field[:fixed] if fixed else field for field in fields.values()),
            strict=False, dynamic_shapes=None if fixed else tuple({0: batch} for _ in fields))
    for node in program.graph.nodes:  # sources would name folders of this machine
        node.meta.pop("stack_trace", None)
    torch.export.save(program, os.path.join(HERE, "exported", f"{name}.pt2"))
    fresh = copy.deepcopy(net).double()
    result = pick(fresh(*(field.double() for field in fields.values())))
    target = torch.randn(result.shape)
    loss = F.mse_loss(result, target.double())
    loss.backward()
    values = {**{f"field.{key}": field for key, field in fields.items()}, "field.targets": target,
              "loss": loss.reshape(1), "output": result, **{
                  f"grad.{key}": p.grad for key, p in fresh.named_parameters()}, **{
                      f"after.{key}": value for key, value in fresh.named_buffers()
                      if value.is_floating_point()}}
    tensors.write(os.path.join(HERE, "exported", f"{name}.expected.safetensors"), {
        key: ("F32", list(value.shape), value.detach().float().contiguous().numpy().tobytes())
        for key, value in values.items()})


def main():
    torch.manual_seed(5)
    write("rows", Rows(), {"x": torch.randn(BATCH, STEPS, WIDTH)}, lambda out: out)
    write("shared", Shared(), {"x": torch.randn(BATCH, 2, 6, 6), "y": torch.randn(BATCH, 2, 6, 6)},
          lambda out: out["result"]["out"])
    write("fixed", Fixed(), {"x": torch.randn(BATCH, STEPS, WIDTH)}, lambda out: out, fixed=2)


main()

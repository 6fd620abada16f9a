"""PyTorch's side of bench/gpu: trains one network on one GPU and prints one line of JSON.

usage: gpu_bench.py mnist-cnn|llama-1b MODE [--seconds N] [--small]

MODE is what PyTorch is given to be fast, as words joined by "+": compile (torch.compile),
channels-last; and in what it computes: tf32 (products and convolutions of F32 round their inputs;
without it they are exact, also convolutions, which PyTorch rounds by default), autocast (to BF16),
bf16 (parameters in BF16). Optimizers are always fused, and attention is
scaled_dot_product_attention. The rate is the median over chunks of steps, timed by CUDA events; the
batches lie in the GPU's memory. --small, and a machine without a GPU, are for tests of this
program.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import models

CHUNKS = 9
# The sizes of bench/llama-1b.yaml.
LLAMA = {"vocabulary": 32000, "hidden": 2048, "inner": 5632, "layers": 22, "heads": 32,
         "kv_heads": 4, "length": 2048, "batch": 8}
SMALL_LLAMA = {"vocabulary": 100, "hidden": 32, "inner": 48, "layers": 2, "heads": 4,
               "kv_heads": 2, "length": 16, "batch": 2}


def attend(q, k, v):
    if q.shape[1] == k.shape[1]:
        return models.attn(q, k, v, True)
    try:  # PyTorch 2.5 and later
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    except (AttributeError, TypeError):
        group = q.shape[1] // k.shape[1]
        return models.attn(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), True)


class Block(nn.Module):
    """A layer of Llama whose heads share keys and values in groups."""

    def __init__(self, s):
        super().__init__()
        hidden, self.heads, self.kv_heads = s["hidden"], s["heads"], s["kv_heads"]
        self.size = hidden // self.heads
        self.norm1, self.norm2 = models.RMS(hidden), models.RMS(hidden)
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, self.kv_heads * self.size, bias=False)
        self.v = nn.Linear(hidden, self.kv_heads * self.size, bias=False)
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, s["inner"], bias=False)
        self.up = nn.Linear(hidden, s["inner"], bias=False)
        self.down = nn.Linear(s["inner"], hidden, bias=False)

    def heads_of(self, x, count):
        return x.view(x.shape[0], x.shape[1], count, self.size).transpose(1, 2)

    def forward(self, x, cos, sin):
        def turned(z):
            a, b = z.chunk(2, -1)
            return z * cos + torch.cat([-b, a], -1) * sin

        y = self.norm1(x)
        q = turned(self.heads_of(self.q(y), self.heads))
        k = turned(self.heads_of(self.k(y), self.kv_heads))
        v = self.heads_of(self.v(y), self.kv_heads)
        q, k = q.to(v.dtype), k.to(v.dtype)
        x = x + self.o(attend(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s["vocabulary"], s["hidden"])
        self.blocks = nn.ModuleList([Block(s) for _ in range(s["layers"])])
        self.norm = models.RMS(s["hidden"])
        self.head = nn.Linear(s["hidden"], s["vocabulary"], bias=False)
        half = s["hidden"] // s["heads"] // 2
        angles = torch.outer(torch.arange(s["length"]).float(),
                             10000 ** (-torch.arange(half).float() / half))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def make(name, small, device):
    """Network, optimizer of parameters, inputs, targets and loss."""
    fused = {"fused": True} if device == "cuda" else {}
    if name == "mnist-cnn":  # Adadelta has no fused form; foreach is the next best
        inputs = torch.randn(8, 64, 1, 28, 28, device=device)
        targets = torch.randint(0, 10, (8, 64), device=device)
        return (models.MnistCNN(), lambda p: torch.optim.Adadelta(p, 1.0, foreach=True), inputs,
                targets, F.cross_entropy)
    s = SMALL_LLAMA if small else LLAMA
    tokens = torch.randint(0, s["vocabulary"], (8, s["batch"], s["length"] + 1), device=device)

    def loss(output, target):
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    return (Llama(s), lambda p: torch.optim.AdamW(p, 3e-4, **fused), tokens[..., :-1],
            tokens[..., 1:], loss)


class Clock:
    """Times work on the GPU by events, and on a CPU by its clock."""

    def __init__(self, device):
        self.is_gpu = device == "cuda"

    def now(self):
        if not self.is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin, end):
        if not self.is_gpu:
            return end - begin
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3


def train(arguments):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mode = set(arguments.mode.split("+"))
    torch.backends.cuda.matmul.allow_tf32 = "tf32" in mode
    torch.backends.cudnn.allow_tf32 = "tf32" in mode
    torch.manual_seed(0)
    net, optimizer_of, inputs, targets, loss_of = make(arguments.network, arguments.small, device)
    net = net.to(device, torch.bfloat16 if "bf16" in mode else None)
    if "channels-last" in mode:
        net = net.to(memory_format=torch.channels_last)
        inputs = inputs.flatten(0, 1).contiguous(memory_format=torch.channels_last) \
            .view(inputs.shape)
    optimizer = optimizer_of(net.parameters())
    run = torch.compile(net) if "compile" in mode else net

    def step(i):
        x, y = inputs[i % len(inputs)], targets[i % len(targets)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled="autocast" in mode):
            output = run(x)
            loss = loss_of(output.float(), y)
        loss.backward()
        optimizer.step()

    clock, steps, warm = Clock(device), 0, time.monotonic()
    while steps < 3 or time.monotonic() - warm < 0.2 * arguments.seconds:
        step(steps)
        steps += 1
    begin = clock.now()
    step(steps)
    once = clock.seconds(begin, clock.now())
    each = max(1, int(arguments.seconds / CHUNKS / once))
    rates = []
    for _ in range(CHUNKS):
        begin = clock.now()
        for i in range(each):
            step(i)
        rates.append(each * inputs.shape[1] / clock.seconds(begin, clock.now()))
    memory = torch.cuda.max_memory_allocated() * 1e-6 if device == "cuda" else None
    print(json.dumps({"samples_per_s": statistics.median(rates), "memory_mb": memory,
                      "torch": torch.__version__, "device": device}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=("mnist-cnn", "llama-1b"))
    parser.add_argument("mode")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--small", action="store_true")
    train(parser.parse_args())


if __name__ == "__main__":
    main()

"""PyTorch's side of the comparisons: the networks. They run on PyTorch 1.13 and 2.x."""

import math

import torch
import torch.nn.functional as F
from torch import nn

class MnistCNN(nn.Module):  # github.com/pytorch/examples/mnist Net
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = F.relu(self.fc1(x))
        return self.fc2(self.dropout2(x))


class MnistConvnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.layer2 = nn.Sequential(
            nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.fc = nn.Linear(1568, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.layer2(self.layer1(x)), 1))


class DenoiseCNN(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [1, 64, 64, 64, 64, 1]
        layers = []
        for i, o in zip(widths, widths[1:]):
            layers += [nn.Conv2d(i, o, 3, padding=1), nn.LeakyReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def autoencoder():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 64), nn.ReLU(inplace=True), nn.Linear(64, 3),
        nn.Linear(3, 64), nn.ReLU(inplace=True), nn.Linear(64, 784),
    )


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 512), nn.ReLU(inplace=True),
        nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 10),
    )


class Basic(nn.Module):
    exp = 1

    def __init__(self, i, o, st):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, st, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.sc = (
            nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o))
            if st != 1 or i != o
            else nn.Identity()
        )

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)), inplace=True)
        y = self.b2(self.c2(y))
        y += self.sc(x)
        return F.relu(y, inplace=True)


class Bottle(nn.Module):
    exp = 4

    def __init__(self, i, o, st):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, st, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.c3 = nn.Conv2d(o, 4 * o, 1, bias=False)
        self.b3 = nn.BatchNorm2d(4 * o)
        self.sc = (
            nn.Sequential(nn.Conv2d(i, 4 * o, 1, st, bias=False), nn.BatchNorm2d(4 * o))
            if st != 1 or i != 4 * o
            else nn.Identity()
        )

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)), inplace=True)
        y = F.relu(self.b2(self.c2(y)), inplace=True)
        y = self.b3(self.c3(y))
        y += self.sc(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, block, layers, ncls, cifar):
        super().__init__()
        self.stem = (
            nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True))
            if cifar
            else nn.Sequential(
                nn.Conv2d(3, 64, 7, 2, 3, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(True),
                nn.MaxPool2d(3, 2, 1),
            )
        )
        i, L = 64, []
        for k, n in enumerate(layers):
            for j in range(n):
                L.append(block(i, 64 << k, 2 if (j == 0 and k > 0) else 1))
                i = (64 << k) * block.exp
        self.body = nn.Sequential(*L)
        self.fc = nn.Linear(i, ncls)

    def forward(self, x):
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1), 1))


def attn(q, k, v, causal):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    a = torch.matmul(q, k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
    if causal:
        T = q.shape[-2]
        m = torch.ones(T, T, dtype=torch.bool).triu(1)
        a = a.masked_fill(m, float("-inf"))
    return torch.matmul(a.softmax(-1), v)


class VBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1 = nn.LayerNorm(d, eps=1e-6)
        self.qkv = nn.Linear(d, 3 * d)
        self.pr = nn.Linear(d, d)
        self.n2 = nn.LayerNorm(d, eps=1e-6)
        self.f1 = nn.Linear(d, 4 * d)
        self.f2 = nn.Linear(4 * d, d)

    def forward(self, x):
        B, T, D = x.shape
        qkv = self.qkv(self.n1(x)).view(B, T, 3, self.h, D // self.h)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.pr(attn(q, k, v, False).transpose(1, 2).reshape(B, T, D))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class ViT(nn.Module):
    def __init__(self, d=192, L=12, h=3, p=16, r=224, ncls=1000):
        super().__init__()
        self.pe = nn.Conv2d(3, d, p, p)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, (r // p) ** 2 + 1, d) * 0.02)
        self.bl = nn.Sequential(*[VBlock(d, h) for _ in range(L)])
        self.n = nn.LayerNorm(d, eps=1e-6)
        self.hd = nn.Linear(d, ncls)

    def forward(self, x):
        x = self.pe(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.hd(self.n(self.bl(x))[:, 0])


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))

    def forward(self, x):
        dt = x.dtype
        x = x.float()
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)).to(dt) * self.w


class LBlock(nn.Module):
    def __init__(self, d, h, f):
        super().__init__()
        self.h = h
        self.n1 = RMS(d)
        self.n2 = RMS(d)
        self.q, self.k, self.v, self.o = [nn.Linear(d, d, bias=False) for _ in range(4)]
        self.g = nn.Linear(d, f, bias=False)
        self.u = nn.Linear(d, f, bias=False)
        self.d = nn.Linear(f, d, bias=False)

    def forward(self, x, cos, sin):
        B, T, D = x.shape
        hd = D // self.h
        y = self.n1(x)

        def rope(z):
            a, b = z.chunk(2, -1)
            return z * cos + torch.cat([-b, a], -1) * sin

        q = rope(self.q(y).view(B, T, self.h, hd).transpose(1, 2))
        k = rope(self.k(y).view(B, T, self.h, hd).transpose(1, 2))
        v = self.v(y).view(B, T, self.h, hd).transpose(1, 2)
        x = x + self.o(attn(q.to(v.dtype), k.to(v.dtype), v, True).transpose(1, 2).reshape(B, T, D))
        y = self.n2(x)
        return x + self.d(F.silu(self.g(y)) * self.u(y))


class Llama(nn.Module):
    def __init__(self, d=512, L=8, h=8, f=1376, V=32000, T=256):
        super().__init__()
        self.e = nn.Embedding(V, d)
        self.bl = nn.ModuleList([LBlock(d, h, f) for _ in range(L)])
        self.n = RMS(d)
        self.hd = nn.Linear(d, V, bias=False)
        t = (
            torch.arange(T).float()[:, None]
            * (10000 ** (-torch.arange(0, d // h, 2).float() / (d // h)))[None]
        )
        self.register_buffer("cos", torch.cat([t, t], -1).cos())
        self.register_buffer("sin", torch.cat([t, t], -1).sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x):
        x = self.e(x)
        for b in self.bl:
            x = b(x, self.cos, self.sin)
        return self.hd(self.n(x))


def count_flops(m, x):
    tot = [0]

    def hk(mod, i, o):
        if isinstance(mod, nn.Conv2d):
            tot[0] += 2 * o.numel() * mod.weight[0].numel()
        elif isinstance(mod, nn.Linear):
            tot[0] += 2 * o.numel() * mod.in_features

    hs = [q.register_forward_hook(hk) for q in m.modules()]
    with torch.no_grad():
        m(x)
    for h in hs:
        h.remove()
    return tot[0] / x.shape[0]

#!/usr/bin/env python3
"""Writes tests/grad/more_tables.h: what PyTorch computes, in float64, for the layers of
more_layers.h: value and gradients of x and of the parameters.

usage: make_more_tables.py > more_tables.h, then clang-format -i on it
Needs python3-torch. test_more_layers.c makes the same layers.
"""
import torch
import torch.nn.functional as F
from make_function_tables import print_cases, print_header


def below(limit, *shape):
    """The index that torch_check.h makes."""
    count = torch.Size(shape).numel()
    return torch.tensor([(i * i + i // 2 + 1) % limit for i in range(count)]).reshape(shape)


def bag(mode, padding=None):
    return lambda x, weight: x * F.embedding_bag(below(5, 3, 4), weight, mode=mode,
                                                 padding_idx=padding)


def padded_embedding(x, weight):
    return x * F.embedding(below(5, 3, 2), weight, padding_idx=2)


def pad(mode, axis, before, after, value=0):
    def function(x):
        x = x.transpose(axis, -1)
        y = F.pad(x, (before, after), mode, value) if value else F.pad(x, (before, after), mode)
        return y.transpose(axis, -1)
    return function


def channel_shuffle(x):
    """F.channel_shuffle(x, 3), which has no gradient in old versions."""
    y = x.unflatten(1, (3, 2)).transpose(1, 2).flatten(1, 2)
    assert torch.equal(y, F.channel_shuffle(x.detach(), 3))
    return y


# name: (function, shapes of x and of the parameters)
LAYERS = {
    "bilinear": (F.bilinear, (3, 4), (3, 5), (2, 4, 5), (2,)),
    "bilinear of sequences": (F.bilinear, (2, 3, 4), (2, 3, 2), (5, 4, 2), (5,)),
    "bilinear without bias": (F.bilinear, (4, 1), (4, 3), (3, 1, 3)),
    "prelu": (F.prelu, (2, 3, 4), (3,)),
    "prelu of one": (F.prelu, (5, 3), (1,)),
    "softmin": (lambda x: F.softmin(x, 1), (2, 3, 4)),
    "lp_pool1d": (lambda x: F.lp_pool1d(x * x, 3, 4, 2), (2, 3, 9)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, (3, 2), (2, 1)), (2, 2, 6, 5)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 2), (2, 5, 3)),
    "local_response_norm even": (lambda x: F.local_response_norm(x, 4), (2, 6, 2, 3)),
    "channel_shuffle": (channel_shuffle, (2, 6, 2, 2)),
    "pad constant": (pad("constant", -1, 2, 1, 1.5), (2, 3, 4)),
    "pad reflect": (pad("reflect", -1, 2, 3), (2, 3, 4)),
    "pad reflect rows": (pad("reflect", 1, 0, 2), (2, 3, 4)),
    "pad replicate": (pad("replicate", -1, 5, 2), (2, 3, 4)),
    "pad circular": (pad("circular", -1, 4, 1), (2, 3, 4)),
    "unfold images": (lambda x: F.unfold(x, (3, 2), padding=(1, 0), stride=(2, 1)), (2, 3, 5, 4)),
    "unfold images dilated": (lambda x: F.unfold(x, 2, (1, 3)), (1, 2, 4, 6)),
    "fold images": (lambda x: F.fold(x, (5, 4), (3, 2), padding=(1, 0), stride=(2, 1)),
                    (2, 18, 9)),
    "fold images dilated": (lambda x: F.fold(x, (4, 6), 2, (1, 3)), (1, 8, 9)),
    "embedding padded": (padded_embedding, (3, 2, 4), (5, 4)),
    "bag mean": (bag("mean"), (3, 4), (5, 4)),
    "bag sum": (bag("sum"), (3, 4), (5, 4)),
    "bag max": (bag("max"), (3, 4), (5, 4)),
    "bag mean padded": (bag("mean", 1), (3, 4), (5, 4)),
    "bag sum padded": (bag("sum", 1), (3, 4), (5, 4)),
    "bag max padded": (bag("max", 1), (3, 4), (5, 4)),
    "pairwise_distance": (F.pairwise_distance, (3, 4), (3, 4)),
    "pairwise_distance of three": (lambda a, b: F.pairwise_distance(a, b, 3.0, 1e-3), (2, 5),
                                   (2, 5)),
    "multi_margin": (lambda x: F.multi_margin_loss(x, below(4, 5), reduction="none"), (5, 4)),
    "multi_margin squared": (lambda x: F.multi_margin_loss(x, below(3, 6), 2, 0.5,
                                                           reduction="none"), (6, 3)),
}


def main():
    print_header("MORE_TABLES", "make_more_tables.py",
                 lambda: print_cases("torch_more", LAYERS))


if __name__ == "__main__":
    main()

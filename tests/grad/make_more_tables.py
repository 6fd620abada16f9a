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


def weighted_bag(x, weight, factors):
    return x * F.embedding_bag(below(5, 3, 4), weight, mode="sum", per_sample_weights=factors,
                               padding_idx=1)


def places(*shape):
    """Numbers between 0 and 1, none at the edge of an element."""
    return (below(97, *shape) + 0.5) / 97


def adaptive(cutoffs, div_value, classes):
    """log_prob of AdaptiveLogSoftmaxWithLoss; of a bias there is one more parameter."""
    def function(x, head, *rest):
        module = torch.nn.AdaptiveLogSoftmaxWithLoss(
            x.shape[-1], classes, cutoffs, div_value, len(rest) % 2 == 1).double()
        names = ["head.weight"] + ["head.bias"] * (len(rest) % 2)
        names += [f"tail.{i}.{k}.weight" for i in range(len(cutoffs)) for k in range(2)]
        values = dict(zip(names, (head, *rest)))
        assert {n: p.shape for n, p in module.named_parameters()} == \
            {n: v.shape for n, v in values.items()}
        # log_prob is no forward function: parameters are replaced by the values.
        for name in names:
            owner, last = module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
            delattr(owner, last)
            setattr(owner, last, values[name])
        return module.log_prob(x.flatten(0, -2)).unflatten(0, x.shape[:-1])
    return function


def weight_normed(layer, dim):
    """A layer of x, the length and the direction of its weight, and its bias."""
    return lambda x, v, g, *bias: layer(x, torch._weight_norm(v, g, dim), *bias)


def spectral_normed(layer, dim, iterations, like):
    """A layer of x, its weight, the vectors of the spectral norm, and its bias. like: a module that
    has a weight of this shape."""
    def function(x, weight, u, v, *bias):
        module = torch.nn.utils.spectral_norm(like.double(), n_power_iterations=iterations, dim=dim)
        with torch.no_grad():
            module.weight_u.copy_(u)
        hook, = module._forward_pre_hooks.values()
        module.weight_orig = torch.nn.Parameter(weight.detach())
        normed = hook.compute_weight(module, True)
        # The same function of `weight`, which is no leaf of the module.
        matrix = hook.reshape_weight_to_matrix(weight)
        sigma = torch.dot(module.weight_u, torch.mv(matrix, module.weight_v))
        assert torch.equal(normed.detach(), (weight / sigma).detach())
        return layer(x, weight / sigma, *bias) + 0 * (u.sum() + v.sum())
    return function


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
    "bag of weights": (weighted_bag, (3, 4), (5, 4), (3, 4)),
    "adaptive": (adaptive([2, 4], 2, 7), (3, 8), (4, 8), (4, 8), (2, 4), (2, 8), (3, 2)),
    "adaptive with bias": (adaptive([1], 4, 2), (1, 2, 5), (2, 5), (2,), (1, 5), (1, 1)),
    "fractional pool": (lambda x: F.fractional_max_pool2d(
        x, 2, (3, 4), _random_samples=places(2, 3, 2)), (2, 3, 7, 6)),
    "fractional pool of a ratio": (lambda x: F.fractional_max_pool2d(
        x, (3, 2), output_ratio=(0.5, 0.75), _random_samples=places(1, 2, 2)), (1, 2, 9, 8)),
    "fractional pool of volumes": (lambda x: F.fractional_max_pool3d(
        x, (2, 3, 1), (3, 2, 3), _random_samples=places(2, 2, 3)), (2, 2, 5, 6, 4)),
    "fractional pool of one": (lambda x: F.fractional_max_pool2d(
        x, 1, 1, _random_samples=places(2, 1, 2)), (2, 1, 1, 1)),
    "weight norm": (weight_normed(F.conv1d, 0), (2, 3, 6), (4, 3, 2), (4, 1, 1), (4,)),
    "weight norm of columns": (weight_normed(F.linear, 1), (3, 4), (2, 4), (1, 4)),
    "weight norm of all": (weight_normed(F.conv2d, -1), (1, 2, 3, 4), (3, 2, 2, 2), ()),
    "weight norm of one": (weight_normed(F.linear, 0), (1, 1), (1, 1), (1, 1)),
    "spectral norm": (spectral_normed(F.linear, 0, 1, torch.nn.Linear(5, 3)), (2, 5), (3, 5), (3,),
                      (5,), (3,)),
    "spectral norm of images": (spectral_normed(F.conv2d, 0, 3, torch.nn.Conv2d(2, 4, 3)),
                                (2, 2, 4, 3), (4, 2, 3, 3), (4,), (18,)),
    "spectral norm transposed": (spectral_normed(F.conv_transpose1d, 1, 2,
                                                 torch.nn.ConvTranspose1d(3, 2, 4)),
                                 (2, 3, 3), (3, 2, 4), (2,), (12,), (2,)),
    "spectral norm of one": (spectral_normed(F.linear, 0, 1, torch.nn.Linear(1, 1)), (3, 1), (1, 1),
                             (1,), (1,)),
}


def main():
    print_header("MORE_TABLES", "make_more_tables.py",
                 lambda: print_cases("torch_more", LAYERS))


if __name__ == "__main__":
    main()

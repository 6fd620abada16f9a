#!/usr/bin/env python3
"""Writes tests/grad/layer_tables.h: what PyTorch computes, in float64, for layers of images: value
and gradients of x and of the parameters.

usage: make_layer_tables.py > layer_tables.h, then clang-format -i on it
Needs python3-torch. test_layers.c makes the same layers.
"""
import torch.nn.functional as F
from make_function_tables import print_cases, print_header


def group_norm(groups, eps=1e-5):
    return lambda x, *affine: F.group_norm(x, groups, *affine, eps=eps)


def layer_norm(axes):
    return lambda x, *affine: F.layer_norm(x, x.shape[-axes:], *affine)


def instance_norm(x, *affine):
    return F.instance_norm(x, None, None, *affine)


# name: (function, shapes of x and of the parameters)
LAYERS = {
    "group_norm": (group_norm(3), (2, 6, 5, 3), (6,), (6,)),
    "group_norm plain": (group_norm(2, 1e-3), (3, 4, 7)),
    "group_norm of blocks": (group_norm(4), (2, 32, 3, 5), (32,), (32,)),
    "group_norm across blocks": (group_norm(2), (2, 48, 2, 3), (48,), (48,)),
    "group_norm of rows": (group_norm(5), (4, 20), (20,), (20,)),
    "group_norm of volumes": (group_norm(1), (1, 3, 2, 3, 4), (3,), (3,)),
    "instance_norm": (instance_norm, (2, 3, 4, 5)),
    "instance_norm affine": (instance_norm, (1, 4, 9), (4,), (4,)),
    "layer_norm of two axes": (layer_norm(2), (3, 5, 4), (5, 4), (5, 4)),
    "layer_norm of three axes": (layer_norm(3), (2, 3, 1, 7), (3, 1, 7), (3, 1, 7)),
    "layer_norm plain": (layer_norm(2), (2, 3, 3, 2)),
}


def main():
    print_header("LAYER_TABLES", "make_layer_tables.py",
                 lambda: print_cases("torch_layers", LAYERS))


if __name__ == "__main__":
    main()

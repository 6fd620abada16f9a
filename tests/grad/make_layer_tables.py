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


def layer_norm_without_bias(x, weight):
    return F.layer_norm(x, weight.shape, weight)


def rms_norm(axes, eps=2.0 ** -23):
    """RMSNorm, which python3-torch does not have yet, by the formula of its page."""
    def function(x, *weight):
        y = x * (x.square().mean(tuple(range(-axes, 0)), keepdim=True) + eps).rsqrt()
        return y * weight[0] if weight else y
    return function


def batch_norm(x, *affine):
    return F.batch_norm(x, None, None, *affine, training=True)


def instance_norm(x, *affine):
    return F.instance_norm(x, None, None, *affine)


def conv(axes, *padded, **options):
    """A convolution; `padded` pads the input first."""
    function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    return lambda x, *parameters: function(F.pad(x, padded), *parameters, **options)


def transpose(axes, **options):
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    return lambda x, *parameters: function(x, *parameters, **options)


def pool(kind, axes, *arguments, **options):
    function = getattr(F, f"{kind}_pool{axes}d")
    return lambda x: function(x, *arguments, **options)


def resize(size, mode, align=None):
    return lambda x: F.interpolate(x, size, mode=mode, align_corners=align)


def dilated_transpose(x, weight, bias):
    return F.conv_transpose2d(x, weight, bias, padding=(1, 0), output_padding=(1, 2),
                              dilation=(2, 3))


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
    "layer_norm without bias": (layer_norm_without_bias, (4, 7), (7,)),
    "layer_norm of one element": (layer_norm_without_bias, (2, 3, 1, 1), (1, 1)),
    "rms_norm": (rms_norm(1, 1e-3), (3, 2, 5), (5,)),
    "rms_norm of two axes": (rms_norm(2), (3, 5, 4), (5, 4)),
    "rms_norm plain": (rms_norm(1), (3, 7)),
    "rms_norm plain of all axes": (rms_norm(3, 0.25), (2, 1, 3)),
    "batch_norm plain": (batch_norm, (3, 2, 4, 5)),
    "batch_norm": (batch_norm, (7, 3), (3,), (3,)),
    "conv2d rectangular": (conv(2, stride=(2, 1), padding=(0, 2), dilation=(1, 2)),
                           (2, 3, 7, 9), (4, 3, 3, 2), (4,)),
    "conv2d pads": (conv(2, 1, 0, 0, 3, groups=2), (2, 4, 5, 4), (6, 2, 3, 3), (6,)),
    "conv2d same": (conv(2, padding="same", dilation=(1, 3)), (1, 2, 6, 5), (3, 2, 4, 2), (3,)),
    "conv2d depthwise": (conv(2, padding=1, stride=2, groups=5), (2, 5, 6, 7), (5, 1, 3, 3), (5,)),
    "conv2d depthwise of blocks": (conv(2, padding=1, groups=32), (2, 32, 6, 9), (32, 1, 3, 3),
                                   (32,)),
    "conv2d depthwise multiplied": (conv(2, padding=(2, 0), groups=3), (1, 3, 8, 6),
                                    (6, 1, 5, 1)),
    "conv2d one pixel": (conv(2, padding=1), (1, 1, 1, 1), (1, 1, 3, 3), (1,)),
    "conv1d": (conv(1, stride=2, padding=3, dilation=2), (2, 3, 11), (4, 3, 3), (4,)),
    "conv1d depthwise": (conv(1, 3, 0, groups=4), (2, 4, 6), (4, 1, 4)),
    "conv_transpose2d": (transpose(2, stride=2, padding=1, output_padding=1), (2, 3, 4, 5),
                         (3, 4, 3, 3), (4,)),
    "conv_transpose2d rectangular": (transpose(2, stride=(3, 1), padding=(0, 2), dilation=(1, 2),
                                               groups=2), (1, 4, 3, 6), (4, 3, 2, 3), (6,)),
    "conv_transpose2d of blocks": (transpose(2, stride=2), (1, 32, 4, 5), (32, 16, 2, 2), (16,)),
    "conv_transpose2d dilated": (dilated_transpose, (2, 2, 3, 4), (2, 3, 3, 2), (3,)),
    "conv_transpose2d depthwise": (transpose(2, stride=2, groups=3), (1, 3, 3, 2), (3, 1, 4, 4)),
    "conv_transpose1d": (transpose(1, stride=3, padding=1, output_padding=2), (2, 4, 5),
                         (4, 2, 4), (2,)),
    "conv3d": (conv(3, padding=1), (2, 2, 3, 4, 5), (3, 2, 3, 3, 3), (3,)),
    "conv3d strides": (conv(3, stride=(2, 1, 2), padding=(2, 0, 1), dilation=(2, 1, 1), groups=2),
                       (1, 4, 5, 3, 4), (2, 2, 3, 2, 3), (2,)),
    "conv3d flat": (conv(3, padding=(0, 1, 1)), (1, 2, 3, 3, 3), (2, 2, 1, 3, 3)),
    "conv3d deep": (conv(3, 0, 0, 0, 0, 9, 1), (1, 1, 3, 2, 2), (2, 1, 10, 1, 1), (2,)),
    "conv_transpose3d": (transpose(3, stride=2, padding=1, output_padding=1), (1, 2, 2, 3, 4),
                         (2, 3, 3, 3, 3), (3,)),
    "conv_transpose3d groups": (transpose(3, stride=(3, 1, 2), dilation=(2, 1, 1), groups=2),
                                (2, 4, 2, 2, 1), (4, 1, 2, 3, 1)),
    "max_pool1d": (pool("max", 1, 3, 2, 1), (2, 3, 8)),
    "max_pool2d rectangular": (pool("max", 2, (3, 2), (1, 2), (1, 0)), (2, 3, 5, 7)),
    "max_pool2d large": (pool("max", 2, (17, 18), 1), (1, 2, 19, 18)),
    "max_pool3d": (pool("max", 3, (2, 3, 2), (2, 1, 3), (1, 1, 0)), (1, 2, 4, 5, 6)),
    "avg_pool1d": (pool("avg", 1, 4, 3, 2), (2, 3, 9)),
    "avg_pool2d rectangular": (pool("avg", 2, (2, 3), (2, 1), (0, 1)), (2, 3, 6, 4)),
    "avg_pool2d inside": (pool("avg", 2, 3, 2, 1, count_include_pad=False), (1, 2, 6, 5)),
    "avg_pool3d": (pool("avg", 3, (3, 2, 2), (1, 2, 1), (1, 1, 0)), (1, 2, 3, 4, 5)),
    "avg_pool3d inside": (pool("avg", 3, 3, 2, 1, count_include_pad=False), (1, 2, 4, 3, 5)),
    "adaptive_avg_pool1d": (pool("adaptive_avg", 1, 4), (2, 3, 7)),
    "adaptive_avg_pool2d": (pool("adaptive_avg", 2, (3, 8)), (2, 3, 7, 5)),
    "adaptive_avg_pool3d": (pool("adaptive_avg", 3, (2, 3, None)), (1, 2, 5, 4, 3)),
    "adaptive_max_pool1d": (pool("adaptive_max", 1, 3), (2, 3, 9)),
    "adaptive_max_pool2d": (pool("adaptive_max", 2, (3, 7)), (2, 3, 7, 5)),
    "adaptive_max_pool3d": (pool("adaptive_max", 3, (1, 3, 2)), (1, 2, 5, 4, 6)),
    "interpolate nearest": (resize((7, 3), "nearest"), (2, 3, 4, 5)),
    "interpolate nearest of one": (resize(5, "nearest"), (2, 3, 1)),
    "interpolate linear": (resize(8, "linear", False), (2, 3, 5)),
    "interpolate bilinear": (resize((7, 3), "bilinear", False), (2, 3, 4, 8)),
    "interpolate bilinear twice": (resize((8, 10), "bilinear", False), (1, 2, 4, 5)),
    "interpolate bilinear aligned": (resize((7, 3), "bilinear", True), (2, 3, 4, 8)),
    "interpolate aligned to one": (resize((1, 9), "bilinear", True), (1, 2, 4, 1)),
    "interpolate trilinear": (resize((3, 5, 2), "trilinear", False), (1, 2, 4, 3, 5)),
}


def main():
    print_header("LAYER_TABLES", "make_layer_tables.py",
                 lambda: print_cases("torch_layers", LAYERS))


if __name__ == "__main__":
    main()

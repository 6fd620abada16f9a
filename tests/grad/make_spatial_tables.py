#!/usr/bin/env python3
"""Writes tests/grad/pool_tables.h and sample_tables.h: what PyTorch computes, in float64, for
pools, interpolation, samples at the places of a grid and padded convolutions of random shapes:
value and gradients.

usage: make_spatial_tables.py > pool_tables.h
       make_spatial_tables.py samples > sample_tables.h
Needs python3-torch. test_spatial.c makes the same layers from the options in each row.
"""
import random
import sys
import textwrap

import torch
import torch.nn.functional as F
from make_function_tables import braces, evaluate, print_header, whole
from make_torch_tables import project, wave

MODES = {"linear": "LINEAR", "bilinear": "LINEAR", "trilinear": "LINEAR", "bicubic": "CUBIC",
         "nearest": "NEAREST", "nearest-exact": "NEAREST_EXACT", "area": "AREA"}


def fields(**values):
    """A C initialiser of what is neither 0 nor false."""
    parts = []
    for name, value in values.items():
        if not value:
            continue
        if isinstance(value, (list, tuple)):
            value = "{" + ", ".join(str(v) for v in value) + "}"
        parts.append(f".{name} = " + ("true" if value is True else str(value)))
    return "{" + (", ".join(parts) or "0") + "}"


def print_row(kind, axes, function, shapes, index=None, **options):
    inputs = [wave(k + 1, *shape) for k, shape in enumerate(shapes)]
    y, d = evaluate(function, (), inputs, lambda y: wave(9, *y.shape))
    of_parameters = ", ".join(braces(project(gradient)) for gradient in d[1:])
    text = (f'{{{{"{kind.lower()} {axes}", {len(shapes[0])}, {y.dim()}, {len(shapes) - 1}, '
            f'{whole(shapes[0])}, {whole(y.shape)}, {braces(project(y))}, {braces(project(d[0]))}, '
            f'{{{of_parameters or "{0}"}}}}}, SPATIAL_{kind}, {axes}')
    if index is not None:
        text += f", .index = {braces(project(index.double()))}"
    if len(shapes) > 1:
        text += f", .own = {{{', '.join(whole(shape) for shape in shapes[1:])}}}"
    for name, value in options.items():
        text += f", .{name} = {value}"
    print("\n".join(textwrap.wrap(text + "},", 96, initial_indent="    ",
                                  subsequent_indent="     ", break_long_words=False,
                                  break_on_hyphens=False)))


def draw_shape(axes, least, most):
    return [random.randint(1, 2), random.randint(1, 3)] + [
        random.choice([random.randint(least, most), most | 1]) for _ in range(axes)]


def draw_windows(axes, size):
    """Options of a pool whose windows fit, and have an element inside each."""
    kernel = [random.randint(1, min(3, n)) for n in size]
    stride = [random.randint(1, 3) for _ in size]
    padding = [random.randint(0, k // 2) for k in kernel]
    return kernel, stride, padding, random.random() < 0.5


def print_maxima(axes):
    names = ("", "max_pool1d", "max_pool2d", "max_pool3d")
    shape = draw_shape(axes, 3, 7)
    kernel, stride, padding, ceil = draw_windows(axes, shape[2:])
    dilation = [random.choice([1, 1, 2]) if 2 * (k - 1) < n else 1
                for k, n in zip(kernel, shape[2:])]
    padding = [p if d == 1 else 0 for p, d in zip(padding, dilation)]
    arguments = (kernel, stride, padding, dilation, ceil)
    for indices in (False, True):
        y, index = getattr(F, names[axes])(wave(1, *shape), *arguments, return_indices=True)
        print_row("MAX", axes, lambda x: getattr(F, names[axes])(x, *arguments), [shape],
                  index if indices else None,
                  pool=fields(kernels=kernel, strides=stride, pads=padding, dilations=dilation,
                              ceil_mode=ceil))


def print_means(axes):
    function = (None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes]
    shape = draw_shape(axes, 3, 7)
    kernel, stride, padding, ceil = draw_windows(axes, shape[2:])
    inside = random.random() < 0.5
    more = {"divisor_override": random.choice([None, 5])} if axes > 1 else {}
    print_row("AVG", axes, lambda x: function(x, kernel, stride, padding, ceil_mode=ceil,
                                              count_include_pad=not inside, **more), [shape],
              pool=fields(kernels=kernel, strides=stride, pads=padding, ceil_mode=ceil,
                          exclude_padding=inside, **more))


def print_adaptive(axes):
    function = (None, F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[axes]
    shape = draw_shape(axes, 1, 8)
    sizes = [random.randint(1, n + 2) for n in shape[2:]]
    index = function(wave(1, *shape), sizes, return_indices=True)[1]
    print_row("ADAPTIVE", axes, lambda x: function(x, sizes), [shape], index,
              sizes="{" + ", ".join(map(str, sizes)) + "}")


def print_unpool(axes):
    pool = (None, F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes]
    back = (None, F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[axes]
    shape = draw_shape(axes, 3, 7)
    kernel = [random.randint(1, 3) for _ in range(axes)]
    sizes = shape[2:] if random.random() < 0.6 else None
    if not sizes:  # those that follow from the kernel
        shape[2:] = [n // k * k or k for n, k in zip(shape[2:], kernel)]

    def function(x):
        y, index = pool(x, kernel, return_indices=True)
        return back(y * y, index, kernel, output_size=sizes)
    print_row("UNPOOL", axes, function, [shape], pool=fields(kernels=kernel),
              **({"sizes": "{" + ", ".join(map(str, sizes)) + "}"} if sizes else {}))


def print_pools():
    print("static const spatial_case torch_pools[] = {")
    for axes in (1, 2, 3):
        for _ in range(5):
            print_maxima(axes)
            print_means(axes)
        for _ in range(3):
            print_adaptive(axes)
            print_unpool(axes)
    for axes in (2, 3):  # both axes of a square are corrected by the same numbers
        function = (None, None, F.avg_pool2d, F.avg_pool3d)[axes]
        print_row("AVG", axes, lambda x: function(x, 2, ceil_mode=True), [[1, 2] + [5] * axes],
                  pool=fields(kernel=2, ceil_mode=True))
    for axes in (1, 2):  # the only window of each axis reaches behind the padding
        most, mean = ((F.max_pool1d, F.avg_pool1d), (F.max_pool2d, F.avg_pool2d))[axes - 1]
        shape = [[1, 2] + [5] * axes]
        for padding, dilation in ((0, 3), (1, 4)):
            print_row("MAX", axes, lambda x: most(x, 3, 3, padding, dilation, True), shape,
                      pool=fields(kernel=3, padding=padding, dilation=dilation, ceil_mode=True))
        print_row("AVG", axes, lambda x: mean(x, 7, 3, ceil_mode=True), shape,
                  pool=fields(kernel=7, stride=3, ceil_mode=True))
    for _ in range(2):
        shape = draw_shape(1, 6, 11)
        print_row("LP", 1, lambda x: F.lp_pool1d(x * x, 2, 3, 2, ceil_mode=True), [shape],
                  pool=fields(kernel=3, stride=2, ceil_mode=True))
    for axes, mode in ((1, "circular"), (2, "reflect"), (2, "replicate"), (3, "circular")):
        conv = (None, F.conv1d, F.conv2d, F.conv3d)[axes]
        pads = [[1, 2], [0, 1], [2, 0]][:axes]
        around = [n for pair in reversed(pads) for n in pair]
        shape = [2, 2] + [4, 5, 3][:axes]
        print_row("CONV", axes, lambda x, w: conv(F.pad(x, around, mode), w),
                  [shape, [3, 2] + [2] * axes],
                  conv=fields(channels=3, kernel=2, no_bias=True,
                              padding_mode=f"TRI_PADDING_{mode.upper()}",
                              pads=["{%d, %d}" % tuple(pair) for pair in pads]))
    print("};\n")


def print_interpolation(mode, axes, antialias, by_factor):
    aligns = mode not in ("nearest", "nearest-exact", "area") and random.random() < 0.4
    shape = draw_shape(axes, 1, 9)
    size = [random.randint(1, 12) for _ in range(axes)] if not by_factor else None
    factor = [random.choice([0.4, 0.7, 1.3, 2, 2.6]) for _ in range(axes)] if by_factor else None
    if by_factor:
        shape[2:] = [max(n, 3) for n in shape[2:]]
    recompute = True if by_factor and random.random() < 0.3 else None
    smooth = mode not in ("nearest", "nearest-exact", "area")
    print_row("INTERPOLATE", axes, lambda x: F.interpolate(
        x, size, factor, mode, aligns if smooth else None, recompute, antialias),
              [shape], interpolate=fields(
                  mode=f"TRI_INTERPOLATE_{MODES[mode]}", sizes=size, factors=factor,
                  align_corners=aligns, antialias=antialias, recompute_scale_factor=recompute))


def print_samples():
    print("static const spatial_case torch_samples[] = {")
    modes = [("nearest", 1), ("nearest", 2), ("nearest-exact", 2), ("nearest-exact", 3),
             ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2), ("area", 2),
             ("area", 3)]
    for mode, axes in modes:
        for by_factor in (False, False, True):
            print_interpolation(mode, axes, False, by_factor)
    for mode in ("bilinear", "bicubic"):
        for by_factor in (False, False, False, True):
            print_interpolation(mode, 2, True, by_factor)
    for mode in ("bilinear", "nearest", "bicubic"):
        for axes in (2, 3):
            for padding in ("zeros", "border", "reflection"):
                for align in (False, True):
                    if mode == "bicubic" and axes == 3:
                        continue
                    shape = draw_shape(axes, 1, 6)
                    grid = [shape[0]] + [random.randint(1, 4) for _ in range(axes)] + [axes]
                    short = {"bilinear": "LINEAR", "nearest": "NEAREST", "bicubic": "CUBIC"}[mode]
                    print_row("GRID", axes, lambda x, grid: F.grid_sample(
                        x, 1.6 * grid, mode, padding, align), [shape, grid],
                              grid=fields(mode=f"TRI_SAMPLE_{short}", align_corners=align,
                                          padding=f"TRI_SAMPLE_{padding.upper()}"))
    for axes in (2, 3):
        for align in (False, True):
            shape = draw_shape(axes, 1, 5)
            sizes = [random.randint(1, 4) for _ in range(axes)]
            print_row("AFFINE", axes, lambda x, theta: F.grid_sample(
                x, F.affine_grid(theta, [shape[0], 1] + sizes, align), align_corners=align),
                      [shape, [shape[0], axes, axes + 1]], grid=fields(align_corners=align),
                      sizes="{" + ", ".join(map(str, sizes)) + "}")
    print("};\n")


def main():
    samples = sys.argv[1:] == ["samples"]
    random.seed(7 if samples else 5)

    def contents():
        print("// clang-format off")
        (print_samples if samples else print_pools)()
        print("// clang-format on\n")
    print_header("SAMPLE_TABLES" if samples else "POOL_TABLES", "make_spatial_tables.py", contents)


if __name__ == "__main__":
    main()

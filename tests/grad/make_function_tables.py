#!/usr/bin/env python3
"""Writes tests/grad/function_tables.h, function_pairs.h, more_function_tables.h and shape_tables.h:
what PyTorch computes, in float64, for each row of TRI_FUNCTION_LIST and TRI_LOSS_LIST and for
functions of shapes, value and gradients.

usage: make_function_tables.py > function_tables.h
       make_function_tables.py pairs > function_pairs.h
       make_function_tables.py more > more_function_tables.h
       make_function_tables.py shapes > shape_tables.h       then clang-format -i on all
Needs python3-torch. The inputs are waves that the C test computes itself, of the shapes [3, 4],
[4] and [3, 1]; of each tensor two numbers are stored, as in make_torch_tables.py. Functions of one
input are also stored at single points, where most of them have a bend.
"""
import math
import sys

import torch
import torch.nn.functional as F
from make_torch_tables import project, wave

POINTS = [-6, -3, -1, -0.5, -0.0, 0, 0.5, 1, 3, 6, 20.5, math.nan]
SHAPES = [(3, 4), (4,), (3, 1)]
ANY, POSITIVE, UNIT = (0.1, 4), (1.5, 1.25), (0.5, 0.4)  # offset and factor of the waves
INSIDE, ABOVE = (0.05, 0.9), (2.5, 1.25)

# name: (function, parameters, range of the inputs). PyTorch's own gradient of hardsigmoid has 1/6
# in single precision only.
FUNCTIONS = {
    "sub": (torch.sub, (), ANY), "mul": (torch.mul, (), ANY), "div": (torch.div, (), POSITIVE),
    "floor_divide": (lambda a, b: torch.floor_divide(a, b).detach() + 0 * a * b, (), ANY),
    "remainder": (torch.remainder, (), ANY), "fmod": (torch.fmod, (), ANY),
    "maximum": (torch.maximum, (), ANY), "minimum": (torch.minimum, (), ANY),
    "where": (lambda c, a, b: torch.where(c != 0, a, b), (), ANY),
    "lerp": (torch.lerp, (), ANY),
    "less": (lambda a, b: (a < b).double() + 0 * a * b, (), ANY),
    "equal": (lambda a, b: (a == b).double() + 0 * a * b, (), ANY),
    **{name: (lambda a, b, f=getattr(torch, name): f(a, b).double() + 0 * a * b, (), ANY)
       for name in ("less_equal", "greater", "greater_equal", "not_equal", "logical_and",
                    "logical_or", "logical_xor")},
    "atan2": (torch.atan2, (), ANY), "hypot": (torch.hypot, (), ANY),
    "logaddexp": (torch.logaddexp, (), ANY), "xlogy": (torch.xlogy, (), POSITIVE),
    "copysign": (torch.copysign, (), ANY),
    "masked_fill": (lambda x, mask, value: torch.where(mask != 0, value, x) + 0 * mask, (0.75,),
                    ANY),
    "addcmul": (lambda x, a, b, value: torch.addcmul(x, a, b, value=value), (0.75,), ANY),
    "addcdiv": (lambda x, a, b, value: torch.addcdiv(x, a, b, value=value), (0.75,), POSITIVE),
    "add_scalar": (torch.add, (0.75,), ANY), "mul_scalar": (torch.mul, (-1.5,), ANY),
    "pow_scalar": (torch.pow, (3.0,), ANY), "pow": (torch.pow, (), POSITIVE),
    "clamp": (torch.clamp, (-0.5, 3.0), ANY), "neg": (torch.neg, (), ANY),
    "abs": (torch.abs, (), ANY), "sign": (torch.sign, (), ANY), "floor": (torch.floor, (), ANY),
    "detach": (lambda x: x.detach() + 0 * x, (), ANY),
    "ceil": (torch.ceil, (), ANY), "round": (torch.round, (), ANY),
    "square": (torch.square, (), ANY), "sqrt": (torch.sqrt, (), POSITIVE),
    "rsqrt": (torch.rsqrt, (), POSITIVE), "reciprocal": (torch.reciprocal, (), POSITIVE),
    "exp": (torch.exp, (), ANY), "expm1": (torch.expm1, (), ANY),
    "log": (torch.log, (), POSITIVE), "log1p": (torch.log1p, (), POSITIVE),
    "sin": (torch.sin, (), ANY), "cos": (torch.cos, (), ANY), "erf": (torch.erf, (), ANY),
    "normal_cdf": (torch.special.ndtr, (), ANY),
    "sigmoid": (torch.sigmoid, (), ANY), "tanh": (torch.tanh, (), ANY),
    "relu": (F.relu, (), ANY), "leaky_relu": (F.leaky_relu, (0.1,), ANY),
    "relu6": (F.relu6, (), ANY), "silu": (F.silu, (), ANY),
    "silu_mul": (lambda gate, up: F.silu(gate) * up, (), ANY), "gelu": (F.gelu, (), ANY),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (), ANY),
    "quick_gelu": (lambda x: x * torch.sigmoid(1.702 * x), (), ANY), "mish": (F.mish, (), ANY),
    "softsign": (F.softsign, (), ANY), "tanhshrink": (F.tanhshrink, (), ANY),
    "log_sigmoid": (F.logsigmoid, (), ANY), "hardsigmoid": (lambda x: F.relu6(x + 3) / 6, (), ANY),
    "hardswish": (F.hardswish, (), ANY), "selu": (F.selu, (), ANY),
    "elu": (F.elu, (0.75,), ANY), "celu": (F.celu, (0.75,), ANY),
    "softplus": (F.softplus, (1.5,), ANY), "hardtanh": (F.hardtanh, (-0.5, 3.0), ANY),
    "softshrink": (F.softshrink, (0.5,), ANY), "hardshrink": (F.hardshrink, (0.5,), ANY),
    "threshold": (F.threshold, (0.5, 0.25), ANY),
    # Losses: the terms of their elements. Where PyTorch's own has no gradient of the target, its
    # formula stands here.
    "l1_loss": (lambda p, t: F.l1_loss(*torch.broadcast_tensors(p, t), reduction="none"), (), ANY),
    "smooth_l1_loss": (lambda p, t, beta: F.smooth_l1_loss(
        *torch.broadcast_tensors(p, t), reduction="none", beta=beta), (1.5,), ANY),
    "huber_loss": (lambda p, t, delta: F.huber_loss(
        *torch.broadcast_tensors(p, t), reduction="none", delta=delta), (1.5,), ANY),
    "bce_loss": (lambda p, t: -(t * p.log() + (1 - t) * (1 - p).log()), (), UNIT),
    "poisson_nll_loss": (lambda p, t: F.poisson_nll_loss(p, t, reduction="none"), (), ANY),
    "kl_div_loss": (lambda p, t: F.kl_div(*torch.broadcast_tensors(p, t), reduction="none"), (),
                    POSITIVE),
    "gaussian_nll_loss": (lambda p, t, v: F.gaussian_nll_loss(
        *torch.broadcast_tensors(p, t, v), reduction="none"), (), POSITIVE),
    "soft_margin_loss": (lambda p, t: F.softplus(-t * p, threshold=50), (), ANY),
    "hinge_loss": (lambda p, t: torch.relu(1 - t * p), (), ANY),
    "multilabel_soft_margin_loss": (lambda p, t: F.binary_cross_entropy_with_logits(
        *torch.broadcast_tensors(p, t), reduction="none"), (), ANY),
}
class Digamma(torch.autograd.Function):
    """torch.digamma with a slope of 16 digits: PyTorch's has 9."""

    @staticmethod
    def forward(ctx, x):  # pylint: disable=arguments-differ
        ctx.save_for_backward(x)
        return torch.digamma(x)

    @staticmethod
    def backward(ctx, dy):  # pylint: disable=arguments-differ
        x, = ctx.saved_tensors
        above = torch.special.zeta(torch.tensor(2.0, dtype=torch.float64), torch.where(
            x < 0.5, 1 - x, x))
        return dy * torch.where(x < 0.5, (math.pi / torch.sin(math.pi * x))**2 - above, above)


def digamma(x):
    return Digamma.apply(x)


# More functions of one input, which have a file of their own.
MORE_FUNCTIONS = {
    "tan": (torch.tan, (), ANY), "asin": (torch.asin, (), INSIDE),
    "acos": (torch.acos, (), INSIDE), "atan": (torch.atan, (), ANY),
    "sinh": (torch.sinh, (), ANY), "cosh": (torch.cosh, (), ANY),
    "asinh": (torch.asinh, (), ANY), "acosh": (torch.acosh, (), ABOVE),
    "atanh": (torch.atanh, (), INSIDE), "sinc": (torch.sinc, (), ANY),
    "erfinv": (torch.erfinv, (), INSIDE), "erfc": (torch.erfc, (), ANY),
    "exp2": (torch.exp2, (), ANY),
    "lgamma": (torch.lgamma, (), ANY), "digamma": (digamma, (), ANY),
    "log2": (torch.log2, (), POSITIVE), "log10": (torch.log10, (), POSITIVE),
    "logit": (torch.logit, (), UNIT), "trunc": (torch.trunc, (), ANY),
    "frac": (torch.frac, (), ANY), "deg2rad": (torch.deg2rad, (), ANY),
    "rad2deg": (torch.rad2deg, (), ANY), "nan_to_num": (torch.nan_to_num, (0.25,), ANY),
    "logical_not": (lambda x: (x == 0).double() + 0 * x.nan_to_num(), (), ANY),
    "isnan": (lambda x: x.isnan().double() + 0 * x.nan_to_num(), (), ANY),
    "isinf": (lambda x: x.isinf().double() + 0 * x.nan_to_num(), (), ANY),
    "isfinite": (lambda x: x.isfinite().double() + 0 * x.nan_to_num(), (), ANY),
}
INF = math.inf
# Points where formulas are at their limits; of numbers that F32 has too.
EDGES = {
    torch.asinh: [(1e30,), (-1e25,), (INF,), (-INF,)],
    torch.acosh: [(1.0,), (0.5,), (-3.0,), (-1e8,), (1e30,), (INF,)],
    torch.hypot: [(1e30, 2e30), (1e-30, -2e-30), (0.0, 3.0), (-2.0, 2.0), (0.0, 0.0), (INF, 1.0)],
    torch.xlogy: [(0.0, INF), (0.0, 0.0), (0.0, -1.0), (0.0, 2.0), (2.0, INF), (0.0, math.nan)],
    torch.atan2: [(INF, INF), (-INF, INF), (INF, -INF), (-INF, -INF), (1.0, INF), (-1.0, -INF),
                  (INF, 2.0), (0.0, -1.0), (-0.0, -1.0), (-0.0, 1.0), (0.0, 1.0), (0.0, -0.0),
                  (-0.0, -0.0), (0.0, 0.0), (-0.0, 0.0), (2.0, 0.0), (-2.0, -0.0), (2.0, -2.0),
                  (1e30, -1e30), (math.nan, 1.0)],
    torch.pow: [(0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.0, 2.0), (0.0, -1.0), (-0.0, -1.0),
                (0.0, INF), (0.0, math.nan), (-2.0, 0.0), (-2.0, 3.0), (-2.0, -1.0), (-2.0, 0.5),
                (1.0, math.nan), (math.nan, 0.0), (INF, 0.0), (INF, -1.0), (-INF, 3.0)],
    torch.erfinv: [(1.0,), (-1.0,), (0.0,), (1.5,), (-2.0,), (0.5,), (-0.9375,), (math.nan,)],
    torch.lgamma: [(INF,), (-INF,), (0.0,), (-0.0,), (-1.0,), (1.0,), (2.0,), (1e30,), (-0.5,),
                   (1e-20,), (30.25,), (math.nan,)],
    digamma: [(INF,), (-INF,), (0.0,), (-0.0,), (-1.0,), (1.0,), (1e30,), (-0.5,), (-20.25,),
                    (1e-10,), (30.25,), (math.nan,)],
    torch.asin: [(1.0,), (-1.0,), (0.0,), (1.5,), (0.9375,)],
    torch.acos: [(1.0,), (-1.0,), (0.0,), (-1.5,), (0.9375,), (-0.9375,)],
}
INPUTS = {"sub": 2, "mul": 2, "div": 2, "floor_divide": 2, "remainder": 2, "fmod": 2,
          "maximum": 2, "minimum": 2, "where": 3, "lerp": 3, "silu_mul": 2,
          "less": 2, "equal": 2, "pow": 2, "l1_loss": 2, "smooth_l1_loss": 2, "huber_loss": 2,
          "less_equal": 2, "greater": 2, "greater_equal": 2, "not_equal": 2, "logical_and": 2,
          "logical_or": 2, "logical_xor": 2, "atan2": 2, "hypot": 2, "logaddexp": 2, "xlogy": 2,
          "copysign": 2, "masked_fill": 2, "addcmul": 3, "addcdiv": 3,
          "bce_loss": 2, "poisson_nll_loss": 2, "kl_div_loss": 2, "gaussian_nll_loss": 3,
          "soft_margin_loss": 2, "hinge_loss": 2, "multilabel_soft_margin_loss": 2}
NO_POINTS = {"log", "log1p", "sqrt", "rsqrt", "reciprocal", "asin", "acos",
             "acosh", "atanh", "erfinv", "lgamma", "digamma",
             "log2", "log10", "logit"}  # not defined at some of them


# name: (function of x, its shape)
SHAPE_FUNCTIONS = {
    "permute": (lambda x: x.permute(2, 0, 3, 1), (2, 3, 4, 5)),
    "transpose": (lambda x: x.transpose(-1, 1), (2, 3, 4)),
    "slice": (lambda x: x[:, 1:4], (2, 5, 3)),
    "slice from the end": (lambda x: x[..., -3:-1], (2, 5)),
    "slice in steps": (lambda x: x[:, 1:6:2], (2, 6, 3)),
    "slice in steps past the end": (lambda x: x[::3], (8,)),
    "select": (lambda x: x[:, -2], (2, 4, 3)),
    "flip": (lambda x: x.flip(1), (2, 5)),
    "pad": (lambda x: F.pad(x, (0, 0, 2, 3)), (2, 4, 3)),
    "pad negative": (lambda x: F.pad(x, (-1, 2)), (3, 4)),
    "roll": (lambda x: x.roll(2, 1), (2, 5, 2)),
    "roll back": (lambda x: x.roll(-7, 0), (5, 2)),
    "expand": (lambda x: x.expand(2, 3, 4, 2), (3, 1, 2)),
    "repeat": (lambda x: x.repeat(1, 3), (2, 4)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (2, 4, 2)),
    "stack": (lambda x: torch.stack([x, 2 * x], 1), (3, 4)),
    "chunk": (lambda x: x.chunk(3, -1)[1], (2, 6)),
    "glu": (lambda x: F.glu(x, 1), (2, 6, 3)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 8, 3, 4)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 3), (1, 2, 6, 3)),
    "squeeze and unsqueeze": (lambda x: x.squeeze(1).unsqueeze(-1), (3, 1, 4)),
    "sum": (lambda x: x.sum((0, 2)), (2, 3, 4)),
    "mean": (lambda x: x.mean(-1, keepdim=True), (2, 3, 4)),
    "amax": (lambda x: x.amax((1, 2)), (2, 3, 4)),
    "amin": (lambda x: x.amin(0), (4, 3)),
    "variance": (lambda x: ((x - x.mean(1, keepdim=True)) ** 2).mean(1), (3, 7)),
    "var": (lambda x: x.var((0, 2)), (2, 3, 4)),
    "std": (lambda x: x.std(-1, keepdim=True), (2, 3, 4)),
    "std of all": (lambda x: x.std(unbiased=False), (5, 3)),
    "logsumexp": (lambda x: x.logsumexp((0, 2)), (2, 3, 4)),
    "logsumexp of large ones": (lambda x: (1e4 * x).logsumexp(1, keepdim=True), (3, 5)),
    "norm": (lambda x: x.norm(dim=1), (3, 7)),
    "normalize": (lambda x: F.normalize(x, dim=0), (5, 3)),
    "normalize small": (lambda x: F.normalize(x, dim=-1, eps=100), (5, 3)),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x.flip(2) + 1, 1), (2, 6, 3)),
    "softmax": (lambda x: x.softmax(-1), (3, 70)),
    "softmax over rows": (lambda x: x.softmax(1), (2, 5, 3)),
    "softmax over the first axis": (lambda x: x.softmax(0), (70, 65)),
    "softmax of one element": (lambda x: x.softmax(1), (2, 1, 3)),
    "log_softmax": (lambda x: x.log_softmax(-1), (3, 70)),
    "log_softmax over rows": (lambda x: x.log_softmax(-2), (2, 5, 3)),
}


def number(value):
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return "NAN" if math.isnan(value) else repr(float(value))


def braces(values):
    return "{" + ", ".join(number(v) for v in values) + "}"


def whole(values):
    return "{" + ", ".join(str(v) for v in values) + "}"


def evaluate(function, parameters, inputs, weights):
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = function(*inputs, *parameters)
    (y * weights(y)).sum().backward()
    return y.detach(), [x.grad if x.grad is not None else torch.zeros_like(x) for x in inputs]


def print_rows(table, functions, pairs):
    """Functions of one input, or those of several."""
    print(f"static const torch_function {table}[] = {{")
    for name, (function, parameters, (offset, factor)) in functions.items():
        count = INPUTS.get(name, 1)
        if (count > 1) != pairs:
            continue
        inputs = [wave(k + 1, *SHAPES[k]) * factor + offset for k in range(count)]
        y, dx = evaluate(function, parameters, inputs, lambda y: wave(9, *y.shape))
        points = [[0.0], [0.0]]
        if count == 1 and name not in NO_POINTS:
            at = torch.tensor(POINTS, dtype=torch.float64)
            value, slopes = evaluate(function, parameters, [at], torch.ones_like)
            points = [value.tolist(), slopes[0].tolist()]
        print(f'    {{"{name}", {offset}, {factor}, {braces(parameters or (0.0,))}, '
              f'{braces(project(y))}, {{{", ".join(braces(project(d)) for d in dx)}}}, '
              f'{"true" if len(points[0]) > 1 else "false"}, '
              f'{braces(points[0])}, {braces(points[1])}}},')
    print("};\n")


def print_edges():
    print("typedef struct torch_edge {\n    const char *name;\n    double in[2], y, slopes[2];")
    print("} torch_edge;\nstatic const torch_edge torch_edges[] = {")
    for function, points in EDGES.items():
        for point in points:
            inputs = [torch.tensor(v, dtype=torch.float64) for v in point]
            y, slopes = evaluate(function, (), inputs, torch.ones_like)
            # Not compared: the slope where the value is not a number, and that of xlogy at
            # infinity, where PyTorch's is infinite.
            has_slopes = not y.isnan() and point != (0.0, INF)
            slopes = [d.item() if has_slopes else math.nan for d in slopes]
            print(f'    {{"{function.__name__}", {braces(point)}, {number(y.item())}, '
                  f'{braces(slopes)}}},')
    print("};\n")


def print_functions():
    print("#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n")
    print(f"static const double torch_points[] = {braces(POINTS)};\n")
    print("typedef struct torch_function {\n    const char *name;\n    double offset, factor;")
    print("    double parameters[2], y[2], dx[3][2];\n    bool has_points;")
    print(f"    double at_points[{len(POINTS)}], slopes[{len(POINTS)}];\n}} torch_function;")
    print_rows("torch_functions", FUNCTIONS, False)


def print_cases(table, cases):
    """Functions of x and of parameters of their own. name: (function, shapes of x and of the
    parameters)."""
    print(f"static const torch_case {table}[] = {{")
    for name, (function, *shapes) in cases.items():
        inputs = [wave(k + 1, *shape) for k, shape in enumerate(shapes)]
        y, d = evaluate(function, (), inputs, lambda y: wave(9, *y.shape))
        of_parameters = ", ".join(braces(project(gradient)) for gradient in d[1:])
        print(f'    {{"{name}", {len(shapes[0])}, {y.dim()}, {len(shapes) - 1}, '
              f'{whole(shapes[0])}, {whole(y.shape)}, {braces(project(y))}, '
              f'{braces(project(d[0]))}, {{{of_parameters or "{0}"}}}}},')
    print("};\n")


def print_header(name, maker, contents):
    version = torch.__version__.split("+")[0]
    print(f"// Made by {maker}; PyTorch {version}, float64.")
    print(f"#ifndef TRIREME_TESTS_{name}_H\n#define TRIREME_TESTS_{name}_H\n")
    contents()
    print("#endif")


def main():
    if sys.argv[1:] == ["shapes"]:
        print_header("SHAPE_TABLES", "make_function_tables.py", lambda: print_cases(
            "torch_shapes", SHAPE_FUNCTIONS))
    elif sys.argv[1:] == ["more"]:
        print_header("MORE_FUNCTION_TABLES", "make_function_tables.py", lambda: (
            print_rows("torch_more_functions", MORE_FUNCTIONS, False), print_edges()))
    elif sys.argv[1:] == ["pairs"]:
        print_header("FUNCTION_PAIRS", "make_function_tables.py",
                     lambda: print_rows("torch_pairs", FUNCTIONS, True))
    else:
        print_header("FUNCTION_TABLES", "make_function_tables.py", print_functions)


if __name__ == "__main__":
    main()

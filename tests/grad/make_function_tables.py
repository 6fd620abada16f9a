#!/usr/bin/env python3
"""Writes tests/grad/function_tables.h: what PyTorch computes, in float64, for each row of
TRI_FUNCTION_LIST, value and gradients.

usage: make_function_tables.py > function_tables.h, then clang-format -i function_tables.h
Needs python3-torch. The inputs are waves that the C test computes itself, of the shapes [3, 4],
[4] and [3, 1]; of each tensor two numbers are stored, as in make_torch_tables.py. Functions of one
input are also stored at single points, where most of them have a bend.
"""
import math
import torch
import torch.nn.functional as F
from make_torch_tables import project, wave

POINTS = [-6, -3, -1, -0.5, -0.0, 0, 0.5, 1, 3, 6, 20.5, math.nan]
SHAPES = [(3, 4), (4,), (3, 1)]
ANY, POSITIVE = (0.1, 4), (1.5, 1.25)  # offset and factor of the waves

# name: (function, parameters, range of the inputs). PyTorch's own gradient of hardsigmoid has 1/6
# in single precision only.
FUNCTIONS = {
    "sub": (torch.sub, (), ANY), "mul": (torch.mul, (), ANY), "div": (torch.div, (), POSITIVE),
    "maximum": (torch.maximum, (), ANY), "minimum": (torch.minimum, (), ANY),
    "where": (lambda c, a, b: torch.where(c != 0, a, b), (), ANY),
    "lerp": (torch.lerp, (), ANY),
    "less": (lambda a, b: (a < b).double() + 0 * a * b, (), ANY),
    "equal": (lambda a, b: (a == b).double() + 0 * a * b, (), ANY),
    "add_scalar": (torch.add, (0.75,), ANY), "mul_scalar": (torch.mul, (-1.5,), ANY),
    "pow_scalar": (torch.pow, (3.0,), ANY), "pow": (torch.pow, (), POSITIVE),
    "clamp": (torch.clamp, (-0.5, 3.0), ANY), "neg": (torch.neg, (), ANY),
    "abs": (torch.abs, (), ANY), "sign": (torch.sign, (), ANY), "floor": (torch.floor, (), ANY),
    "ceil": (torch.ceil, (), ANY), "round": (torch.round, (), ANY),
    "square": (torch.square, (), ANY), "sqrt": (torch.sqrt, (), POSITIVE),
    "rsqrt": (torch.rsqrt, (), POSITIVE), "reciprocal": (torch.reciprocal, (), POSITIVE),
    "exp": (torch.exp, (), ANY), "expm1": (torch.expm1, (), ANY),
    "log": (torch.log, (), POSITIVE), "log1p": (torch.log1p, (), POSITIVE),
    "sin": (torch.sin, (), ANY), "cos": (torch.cos, (), ANY), "erf": (torch.erf, (), ANY),
    "relu6": (F.relu6, (), ANY), "silu": (F.silu, (), ANY),
    "quick_gelu": (lambda x: x * torch.sigmoid(1.702 * x), (), ANY), "mish": (F.mish, (), ANY),
    "softsign": (F.softsign, (), ANY), "tanhshrink": (F.tanhshrink, (), ANY),
    "log_sigmoid": (F.logsigmoid, (), ANY), "hardsigmoid": (lambda x: F.relu6(x + 3) / 6, (), ANY),
    "hardswish": (F.hardswish, (), ANY), "selu": (F.selu, (), ANY),
    "elu": (F.elu, (0.75,), ANY), "celu": (F.celu, (0.75,), ANY),
    "softplus": (F.softplus, (1.5,), ANY), "hardtanh": (F.hardtanh, (-0.5, 3.0), ANY),
    "softshrink": (F.softshrink, (0.5,), ANY), "hardshrink": (F.hardshrink, (0.5,), ANY),
    "threshold": (F.threshold, (0.5, 0.25), ANY),
}
INPUTS = {"sub": 2, "mul": 2, "div": 2, "maximum": 2, "minimum": 2, "where": 3, "lerp": 3,
          "less": 2, "equal": 2, "pow": 2}
NO_POINTS = {"log", "log1p", "sqrt", "rsqrt", "reciprocal"}  # not defined at some of them


def number(value):
    return "NAN" if math.isnan(value) else repr(float(value))


def braces(values):
    return "{" + ", ".join(number(v) for v in values) + "}"


def evaluate(function, parameters, inputs, weights):
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = function(*inputs, *parameters)
    (y * weights(y)).sum().backward()
    return y.detach(), [x.grad if x.grad is not None else torch.zeros_like(x) for x in inputs]


def main():
    print("// Made by make_function_tables.py; "
          f"PyTorch {torch.__version__.split('+')[0]}, float64.")
    print("#ifndef TRIREME_TESTS_FUNCTION_TABLES_H\n#define TRIREME_TESTS_FUNCTION_TABLES_H\n")
    print("#include <math.h>\n#include <stdbool.h>\n")
    print(f"static const double torch_points[] = {braces(POINTS)};\n")
    print("typedef struct torch_function {\n    const char *name;\n    double offset, factor;")
    print("    double parameters[2], y[2], dx[3][2];\n    bool has_points;")
    print(f"    double at_points[{len(POINTS)}], slopes[{len(POINTS)}];\n}} torch_function;")
    print("static const torch_function torch_functions[] = {")
    for name, (function, parameters, (offset, factor)) in FUNCTIONS.items():
        count = INPUTS.get(name, 1)
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
    print("};\n\n#endif")


if __name__ == "__main__":
    main()

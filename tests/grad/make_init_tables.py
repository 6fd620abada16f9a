#!/usr/bin/env python3
"""Writes tests/grad/init_tables.h: from which distribution PyTorch's initialisers draw.

Also what dirac_ makes, and how many zeros sparse_ makes in each column.

usage: make_init_tables.py > init_tables.h, then clang-format -i on it
Needs python3-torch. unit/test_initial compares tri_init_resolve with it.
"""
from unittest import mock

import torch
from torch.nn import init

# Fields of tri_init, and the arguments of PyTorch's function.
NONLINEARITIES = ("leaky_relu", "relu", "linear", "sigmoid", "tanh", "selu")
SHAPES = ((6, 4), (8, 2, 3, 5))


def cases():
    for shape in SHAPES:
        for gain in (1, 0.3):
            for kind in ("uniform", "normal"):
                yield (f"xavier_{kind}", shape, {"gain": gain}, f".gain = {gain}")
        for nonlinearity in NONLINEARITIES:
            for mode in ("fan_in", "fan_out"):
                for kind in ("uniform", "normal"):
                    slope = 0.2 if nonlinearity == "leaky_relu" else 0
                    yield (f"kaiming_{kind}", shape,
                           {"a": slope, "mode": mode, "nonlinearity": nonlinearity},
                           f".fan_out = {str(mode == 'fan_out').lower()}, .nonlinearity = "
                           f"TRI_NONLINEARITY_{nonlinearity.upper()}, .slope = {slope}")


def drawn(name, shape, arguments):
    """The two numbers that the function hands to the generator."""
    tensor = torch.empty(shape, dtype=torch.float64)
    method = "uniform_" if name.endswith("uniform") else "normal_"
    with mock.patch.object(torch.Tensor, method, autospec=True) as call:
        getattr(init, name + "_")(tensor, **arguments)
    return call.call_args.args[-2:]


# Shape and groups; the first number of channels is not always the second.
DIRACS = (((3, 2, 3), 1), ((4, 3, 2, 4), 2), ((2, 5, 1, 3, 2), 1), ((1, 1, 1), 1))
# Rows and sparsity.
SPARSES = ((10, 0.25), (7, 0.5), (1, 0.1), (4, 0), (5, 1))


def print_exact():
    print("\nstatic const struct {\n    tri_shape shape;\n    int64_t groups, count, ones[4];\n"
          "} dirac_cases[] = {")
    for shape, groups in DIRACS:
        tensor = init.dirac_(torch.empty(shape), groups).flatten()
        ones = tensor.nonzero().flatten().tolist()
        assert set(tensor.tolist()) <= {0.0, 1.0} and len(ones) <= 4
        print(f"    {{{{{len(shape)}, {{{', '.join(map(str, shape))}}}}}, {groups}, {len(ones)},"
              f" {{{', '.join(map(str, ones))}}}}},")
    print("};\n\nstatic const struct {\n    int64_t rows;\n    double sparsity;\n    int zeros;\n"
          "} sparse_cases[] = {")
    for rows, sparsity in SPARSES:
        zeros = (init.sparse_(torch.empty(rows, 3), sparsity) == 0).sum(0).tolist()
        assert len(set(zeros)) == 1
        print(f"    {{{rows}, {sparsity}, {zeros[0]}}},")
    print("};")


def main():
    print("// Written by make_init_tables.py: what PyTorch's initialisers draw from. Uniform: low, "
          "high;\n// normal: mean, standard deviation.\n#ifndef TRIREME_TESTS_INIT_TABLES_H\n"
          "#define TRIREME_TESTS_INIT_TABLES_H\n\n#include <trireme/parameters.h>\n")
    print("static const struct {\n    tri_init init;\n    tri_shape shape;\n    double drawn[2];\n"
          "} init_cases[] = {")
    for name, shape, arguments, fields in cases():
        low, high = drawn(name, shape, arguments)
        print(f"    {{{{.kind = TRI_INIT_{name.upper()}, {fields}}},"
              f" {{{len(shape)}, {{{', '.join(map(str, shape))}}}}}, {{{low!r}, {high!r}}}}},")
    print("};")
    print_exact()
    print("\n#endif")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/grad/tensor_tables.h, einsum_tables.h and tensor_edge_tables.h: what PyTorch
computes, in float64, for the functions of more_functions.h: value and gradients of x and of another
operand.

usage: make_tensor_tables.py tensor > tensor_tables.h
       make_tensor_tables.py einsum > einsum_tables.h
       make_tensor_tables.py tensor_edge > tensor_edge_tables.h    then clang-format -i on all
Needs python3-torch. test_tensors.c calls the same functions.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from make_function_tables import print_cases, print_header
from make_more_tables import below

INDEX = torch.tensor([2, 0, 1, 3, 3, 2])


def einsum(equation):
    return lambda *values: torch.einsum(equation, *values)


def with_index(found):
    """A value and its place, which is compared too."""
    return found.values + found.indices


def with_largest(x, value):
    """x, a constant, with `value` as its largest element."""
    x = x.detach()
    return torch.where(x == x.amax(), value, x)


def with_nan(x):
    return with_largest(x, math.nan)


def among_nan(x, buckets):
    """NumPy's searchsorted, of the first row or of each: PyTorch's takes NaN for the largest only
    where its search does not come upon one."""
    values = with_nan(x).detach().numpy()
    rows = [np.searchsorted(np.sort(values[0] if buckets else row), row,
                            "right" if buckets else "left") for row in values]
    return torch.tensor(np.array(rows))


def shown(y):
    """5 for NaN, and at most 9 for infinity."""
    return y.clamp(-9, 9).nan_to_num(5)


# name: (function, shapes of x and of the other operands). Names with "->" or "," are equations.
EINSUMS = {equation: (einsum(equation), *shapes) for equation, *shapes in [
    ("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk", (2, 3, 4), (2, 4, 5)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("bhqk,bkhd->bqhd", (2, 3, 4, 5), (2, 5, 3, 2)),
    ("i,j->ij", (3,), (4,)), ("i,i->", (7,), (7,)), ("ij->ji", (3, 4)), ("ba", (3, 4)),
    ("ijk->j", (2, 3, 4)), ("ii->i", (4, 4)), ("ii", (5, 5)), ("ijji->j", (2, 3, 3, 2)),
    ("...ij,...jk->...ik", (2, 3, 2, 4), (3, 4, 5)), ("...d,d->...", (2, 3, 4), (4,)),
    ("b...,b...->b", (2, 3, 4), (2, 3, 4)), ("...a,...b", (2, 1, 3), (4, 2)),
    ("ij,ij->ij", (3, 4), (3, 1)), ("ij,jk->ik of one", (3, 1), (5, 2)),
    ("abcde,abcdf->fabc", (2, 1, 2, 3, 2), (2, 1, 2, 3, 2)), ("aij,kj->i", (2, 3, 4), (5, 4)),
    ("abcdef,abcdef->abcde", (2, 1, 2, 1, 2, 3), (2, 1, 2, 1, 2, 3)),
    ("B i , i o -> B o", (3, 4), (4, 2)),
    ("nteh,ehd->nted", (2, 3, 4, 2), (4, 2, 3)), ("ehd,nteh->nted", (4, 2, 3), (2, 3, 4, 2)),
    ("neh,ehd->ned", (3, 1, 4), (1, 4, 2)), ("nte,e->nte", (2, 3, 4), (4,)),
    ("dh,nth->ntd", (5, 4), (2, 3, 4)), ("nabf,abfcd->ndabc", (2, 3, 2, 4), (3, 2, 4, 2, 2)),
    ("nhe,ehd->nde", (2, 3, 4), (4, 3, 2)), ("e,ne->ne", (4,), (3, 4)),
]}
EINSUMS["ij,jk->ik of one"] = (einsum("ij,jk->ik"), (3, 1), (5, 2))
TENSORS = {
    "three": (lambda x, b: torch.einsum("nc,hcd,hd->nh", x, b, b[:, 0]), (4, 3), (2, 3, 3)),
    "addmm": (lambda x, b: torch.addmm(x[0], x, b, beta=0.5, alpha=-2), (4, 4), (4, 4)),
    "baddbmm": (lambda x, b: torch.baddbmm(b, x, b), (2, 3, 3), (2, 3, 3)),
    "outer": (torch.outer, (3,), (5,)),
    "cross": (lambda x, b: torch.cross(x, b, 1), (2, 3, 4), (2, 3, 4)),
    "cdist": (torch.cdist, (2, 3, 4), (2, 5, 4)),
    "cdist of three": (lambda x, b: torch.cdist(x, b, 3.0), (3, 4), (5, 4)),
    "vector_norm 1": (lambda x: torch.linalg.vector_norm(x, 1, 1), (3, 7)),
    "vector_norm 3": (lambda x: torch.linalg.vector_norm(x, 3, (0, 2), True), (3, 2, 4)),
    "vector_norm inf": (lambda x: torch.linalg.vector_norm(x, math.inf, -1), (3, 7)),
    "normalize 1": (lambda x: F.normalize(x, 1.0, 1), (3, 7)),
    "normalize 3": (lambda x: F.normalize(x, 3.0, 0, 2.5), (4, 2, 3)),
    "normalize inf": (lambda x: F.normalize(x, math.inf, -1), (1, 5)),
    "movedim": (lambda x: x.movedim(1, 3), (2, 3, 4, 5)),
    "movedim back": (lambda x: x.movedim(-1, 0), (2, 3, 4)),
    "split": (lambda x: x.split([1, 3, 2], 1)[1], (2, 6, 3)),
    "meshgrid": (lambda x, b: torch.stack(torch.meshgrid(x, b, indexing="ij")), (3,), (4,)),
    "tril": (lambda x: x.tril(1), (2, 3, 4)), "tril below": (lambda x: x.tril(-2), (5, 3)),
    "triu": (lambda x: x.triu(), (2, 4, 3)), "triu above": (lambda x: x.triu(2), (3, 5)),
    "diagonal": (lambda x: x.diagonal(0, 1, 2), (2, 4, 3)),
    "diagonal above": (lambda x: x.diagonal(1, 2, 0), (4, 2, 3)),
    "diagonal below": (lambda x: x.diagonal(-2), (5, 3)),
    "diagonal of one": (lambda x: x.diagonal(), (1, 1)),
    "diag_embed": (torch.diag_embed, (2, 3)),
    "diag_embed above": (lambda x: torch.diag_embed(x, 2), (3,)),
    "diag_embed below": (lambda x: torch.diag_embed(x, -1), (2, 1)),
    "trace": (torch.trace, (3, 4)),
    "one_hot": (lambda x: x * F.one_hot(below(4, 2, 3), 4), (2, 3, 4)),
    "diff": (lambda x: x.diff(dim=1), (2, 5, 3)), "diff twice": (lambda x: x.diff(2), (2, 5)),
    "trapezoid": (lambda x: torch.trapezoid(x, dx=0.5, dim=1), (2, 5, 3)),
    "trapezoid of one": (torch.trapezoid, (3, 1)),
    "index_fill": (lambda x: x.index_fill(1, INDEX, 1.5), (2, 5)),
    "index_copy": (lambda x, b: x.index_copy(0, INDEX[:4], b), (5, 2), (4, 2)),
    "kthvalue": (lambda x: with_index(x.kthvalue(2, 1)), (3, 5)),
    "median": (lambda x: with_index(x.median(1, keepdim=True)), (2, 6, 3)),
    "quantile": (lambda x: x.quantile(0.3, 1), (3, 6)),
    "quantile last": (lambda x: x.quantile(1.0, 0, keepdim=True), (4, 2)),
    "searchsorted": (lambda x: x * torch.searchsorted(x.detach()[:, 1:].sort(-1).values,
                                                      x.detach()), (2, 5)),
    "bucketize": (lambda x: x * torch.bucketize(x.detach(), x.detach()[0, 0].sort().values,
                                                right=True), (2, 3, 4)),
}
# The same of NaN, infinity and zeros.
EDGES = {
    "addmm without c": (lambda x, b: torch.addmm(x.detach() * math.nan, x, b, beta=0, alpha=-2),
                        (4, 4), (4, 4)),
    "index_fill infinite": (lambda x: shown(x.index_fill(1, INDEX, -math.inf)), (2, 5)),
    "median of NaN": (lambda x: x + shown(with_nan(x).median(1, keepdim=True).values)
                      + with_nan(x).median(1, keepdim=True).indices, (2, 6)),
    "quantile of NaN": (lambda x: x + shown(with_nan(x).quantile(0.3, 1, keepdim=True)), (3, 6)),
    "quantile below infinity": (lambda x: x + shown(with_largest(x, math.inf).quantile(
        0.75, 1, keepdim=True)), (3, 5)),
    "searchsorted of NaN": (lambda x: x * torch.searchsorted(
        x.detach()[:, 1:].sort(-1).values, with_nan(x)), (2, 5)),
    "bucketize of NaN": (lambda x: x * torch.bucketize(with_nan(x), x.detach()[0].sort().values,
                                                       right=True), (2, 5)),
    "clamp of turned ends": (lambda x: x + x.clamp(0.25, -0.5), (2, 5)),
    "hardtanh of turned ends": (lambda x: x + F.hardtanh(x, 0.25, -0.5), (2, 5)),
    "searchsorted among NaN": (lambda x: x * among_nan(x, False), (3, 5)),
    "bucketize among NaN": (lambda x: x * among_nan(x, True), (3, 5)),
    "norm of NaN": (lambda x: x * shown(with_nan(x).norm(dim=1, keepdim=True)), (3, 7)),
    "std of NaN": (lambda x: x * shown(with_nan(x).std(1, keepdim=True)), (3, 7)),
    "normalize of NaN": (lambda x: x * shown(F.normalize(with_nan(x), dim=1)), (3, 7)),
    "vector_norm 3 of NaN": (lambda x: x * shown(torch.linalg.vector_norm(
        with_nan(x), 3, 1, True)), (3, 7)),
    "vector_norm 0.5 of zeros": (lambda x: torch.linalg.vector_norm(x * (x > 0), 0.5, 1), (3, 7)),
}


def main():
    name = sys.argv[1]
    table = {"tensor": TENSORS, "einsum": EINSUMS, "tensor_edge": EDGES}[name]
    print_header(f"{name.upper()}_TABLES", "make_tensor_tables.py",
                 lambda: print_cases(f"torch_{name}s", table))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/grad/index_tables.h: what PyTorch computes, in float64, for functions that work
along an axis by the numbers of its elements: value and gradients.

usage: make_index_tables.py > index_tables.h, then clang-format -i on it
Needs python3-torch. test_indexing.c makes the same functions.
"""
import torch
from make_function_tables import print_cases, print_header


def index(limit, *shape):
    """Numbers below `limit`, some of them equal."""
    i = torch.arange(torch.Size(shape).numel())
    return ((i * i + i // 2 + 1) % limit).reshape(shape)


def numbers(x, indices):
    """The indices as numbers that count beside x."""
    return x + indices.to(x.dtype)


def with_index(function, also=lambda x: 0):
    def both(x):
        values, indices = function(x)
        return numbers(values, indices) + also(x)
    return both


HOLES = torch.tensor([1.0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1], dtype=torch.float64).reshape(3, 4)

CASES = {
    "gather": (lambda x: torch.gather(x, 1, index(4, 2, 6, 3)), (2, 4, 3)),
    "gather of the last axis": (lambda x: torch.gather(x, -1, index(5, 3, 2)), (3, 5)),
    "gather with a smaller index": (lambda x: torch.gather(x, 1, index(4, 2, 3, 2)), (3, 4, 5)),
    "take_along for all": (lambda x: torch.take_along_dim(x, index(4, 1, 3, 1), 1), (2, 4, 3)),
    "take_along of rows": (lambda x: torch.take_along_dim(x, index(4, 2, 3, 1), 1), (2, 4, 3)),
    "take_along of an expanded x": (lambda x: torch.take_along_dim(x, index(4, 3, 3, 2), 1),
                                    (3, 4, 1)),
    "take_along of a partly shared index": (
        lambda x: torch.take_along_dim(x, index(2, 1, 3, 3, 1), 2), (2, 3, 2, 2)),
    "index_select": (lambda x: torch.index_select(x, 0, index(5, 7)), (5, 3)),
    "index_select in the middle": (lambda x: torch.index_select(x, -2, index(4, 3)), (2, 4, 3)),
    # Its indices are distinct, because PyTorch's gradient is right only then.
    "scatter": (lambda x, s: x.scatter(1, torch.tensor([[2, 0], [1, 3], [3, 2]]), s),
                (3, 4), (3, 2)),
    "scatter_add": (lambda x, s: x.scatter_add(1, index(4, 2, 6, 3), s), (2, 4, 3), (2, 6, 3)),
    "scatter_add with a smaller index": (lambda x, s: x.scatter_add(0, index(4, 3, 3), s[:3]),
                                         (4, 3), (5, 3)),
    "scatter_amax": (lambda x, s: x.scatter_reduce(1, index(4, 2, 6), s, "amax"), (2, 4), (2, 6)),
    "scatter_amax of equal ones": (
        lambda x, s: (0 * x).scatter_reduce(0, index(3, 6), s.clamp(min=0), "amax"), (3,), (6,)),
    "unfold": (lambda x: x.unfold(1, 3, 2), (2, 8, 3)),
    "unfold of the last axis": (lambda x: x.unfold(-1, 4, 1), (2, 6)),
    "triangle": (lambda x: x * torch.ones(4, 4, dtype=x.dtype).tril(), (2, 4, 4)),
    "prod": (lambda x: x.prod(1), (2, 4, 3)),
    "prod of all": (lambda x: x.prod(), (2, 3)),
    "prod with zeros": (lambda x: (x * HOLES).prod(1, keepdim=True), (3, 4)),
    "any": (lambda x: x + (x > 0.9).any(1, keepdim=True), (5, 4)),
    "all": (lambda x: x + (x > -0.9).all(0, keepdim=True), (4, 5)),
    "sort": (with_index(lambda x: x.sort(dim=1, stable=True)), (2, 6, 3)),
    "sort of equal ones": (
        with_index(lambda x: x.round().sort(dim=-1, stable=True), lambda x: x), (3, 20)),
    "sort down": (with_index(lambda x: x.sort(dim=0, descending=True, stable=True)), (7, 2)),
    "sort down of equal ones": (
        with_index(lambda x: x.round().sort(dim=-1, descending=True, stable=True), lambda x: x),
        (3, 40)),
    "topk": (with_index(lambda x: x.topk(3, dim=1)), (2, 6, 3)),
    "topk of a long axis": (with_index(lambda x: x.topk(5)), (2, 90)),
    "topk smallest": (with_index(lambda x: x.topk(2, dim=0, largest=False)), (5, 4)),
    "cumsum": (lambda x: x.cumsum(1), (2, 5, 3)),
    "cumprod": (lambda x: x.cumprod(-1), (3, 6)),
    "cumprod with zeros": (lambda x: (x * HOLES).cumprod(1), (3, 4)),
    "cummax": (with_index(lambda x: x.cummax(1)), (2, 8, 3)),
    "cummax of equal ones": (with_index(lambda x: x.clamp(min=0).cummax(0)), (9, 2)),
    "cummin": (with_index(lambda x: x.cummin(-1)), (3, 8)),
    "logcumsumexp": (lambda x: (3 * x).logcumsumexp(1), (2, 6, 3)),
    "index_add": (lambda x, s: x.index_add(0, index(4, 6), s), (4, 3), (6, 3)),
}

if __name__ == "__main__":
    print_header("INDEX_TABLES", "make_index_tables.py",
                 lambda: print_cases("torch_indexings", CASES))

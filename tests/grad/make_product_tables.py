#!/usr/bin/env python3
"""Writes tests/grad/product_tables.h: what PyTorch computes, in float64, for products of matrices:
value and gradients of the operands.

usage: make_product_tables.py > product_tables.h, then clang-format -i on it
Needs python3-torch. test_products.c makes the same products.
"""
import math

import torch
from make_function_tables import print_cases, print_header


def attention(scale=None, causal=False, mask=False):
    """softmax(scale * q k^T + bias) v, where a head of k and v is read by several heads of q, and
    the last query stands where the last key does."""
    def function(q, k, v, bias=None):
        k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
        factor = scale or q.shape[3] ** -0.5
        scores = torch.einsum("nthd,nshd->nhts", q, k) * factor
        if mask:  # where the wave is not above -0.5, a key is hidden
            scores = scores.masked_fill(bias <= -0.5, -math.inf)
        elif bias is not None:
            scores = scores + bias
        if causal:
            t, s = scores.shape[2:]
            seen = torch.ones(t, s, dtype=torch.bool).tril(s - t)
            scores = scores.masked_fill(~seen, -math.inf)
        return torch.einsum("nhts,nshe->nthe", scores.softmax(-1), v)
    return function


# name: (function, shapes of the operands)
PRODUCTS = {
    "matmul": (torch.matmul, (3, 5), (5, 2)),
    "matmul of batches": (torch.matmul, (2, 3, 4, 5), (2, 3, 5, 3)),
    "matmul with broadcasting": (torch.matmul, (2, 1, 4, 5), (3, 5, 3)),
    "matmul by one matrix": (torch.matmul, (2, 3, 4, 5), (5, 3)),
    "matmul of one matrix": (torch.matmul, (4, 5), (2, 3, 5, 7)),
    "matmul of two rows": (torch.matmul, (70,), (70,)),
    "matmul of a row": (torch.matmul, (5,), (2, 5, 3)),
    "matmul by a column": (torch.matmul, (2, 4, 5), (5,)),
    "matmul of one element": (torch.matmul, (1, 1, 1), (1, 1)),
    "matmul by a transposed one": (lambda a, b: a @ b.transpose(0, 1).transpose(-1, -2),
                                   (2, 3, 4), (5, 2, 4)),
    "matmul of permuted ones": (lambda a, b: a.permute(0, 2, 1, 3) @ b.permute(0, 2, 3, 1),
                                (2, 5, 3, 4), (2, 6, 3, 4)),
    "attention": (attention(), (2, 5, 4, 3), (2, 7, 2, 3), (2, 7, 2, 3)),
    "attention, causal": (attention(0.7, True), (2, 5, 4, 3), (2, 7, 4, 3), (2, 7, 4, 3)),
    "attention of wider values": (attention(), (2, 5, 4, 3), (2, 7, 2, 3), (2, 7, 2, 5)),
    "attention with a bias": (attention(1.0), (2, 5, 4, 3), (2, 5, 4, 3), (2, 5, 4, 3),
                              (1, 4, 5, 5)),
    "attention with a bias, causal": (attention(0.5, True), (2, 3, 4, 2), (2, 70, 2, 2),
                                      (2, 70, 2, 2), (4, 1, 70)),
    "attention with a mask": (attention(mask=True), (2, 5, 2, 3), (2, 6, 1, 3), (2, 6, 1, 3),
                              (2, 1, 1, 6)),
    "attention of one element": (attention(), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1),
                                 (1, 1, 1, 1)),
}


def main():
    print_header("PRODUCT_TABLES", "make_product_tables.py",
                 lambda: print_cases("torch_products", PRODUCTS))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/grad/product_tables.h: what PyTorch computes, in float64, for products of matrices:
value and gradients of the operands.

usage: make_product_tables.py > product_tables.h, then clang-format -i on it
Needs python3-torch. test_products.c makes the same products.
"""
import torch
from make_function_tables import print_cases, print_header

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
}


def main():
    print_header("PRODUCT_TABLES", "make_product_tables.py",
                 lambda: print_cases("torch_products", PRODUCTS))


if __name__ == "__main__":
    main()

// Sums, maxima and minima of elements of NCCL's types, for the test double of NCCL.
#ifndef TRIREME_TESTS_EMULATED_GPU_NCCL_SUMS_H
#define TRIREME_TESTS_EMULATED_GPU_NCCL_SUMS_H

#include <cstdint>
#include <nccl.h>
#include <vector>

size_t nccl_width(ncclDataType_t type); // in bytes
// Reduces the terms (what each rank sends) from the last rank to the first, so that tests notice
// code that relies on NCCL for sums in rank order. Of F16 and BF16 it computes maxima and minima
// only, because our code never asks NCCL for sums of them.
void nccl_reduce(const std::vector<std::vector<char>> &terms, char *out, ncclDataType_t type,
                 uint64_t count, ncclRedOp_t reduction);

#endif

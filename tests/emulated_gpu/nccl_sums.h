// The arithmetic of the double of NCCL.
#ifndef TRIREME_TESTS_EMULATED_GPU_NCCL_SUMS_H
#define TRIREME_TESTS_EMULATED_GPU_NCCL_SUMS_H

#include <cstdint>
#include <nccl.h>
#include <vector>

size_t nccl_width(ncclDataType_t type); // in bytes
// Reduces the terms of all ranks from the last rank to the first, so that nobody takes the result
// for one in rank order. Sums of half types are left to the caller's own kernels.
void nccl_reduce(const std::vector<std::vector<char>> &terms, char *out, ncclDataType_t type,
                 uint64_t count, ncclRedOp_t reduction);

#endif

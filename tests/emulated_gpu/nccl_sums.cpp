// Sums, maxima and minima of the terms of all ranks, for the test double of NCCL. A term is what
// one rank contributes.
#include "emulated_gpu/nccl_sums.h"

#include <cstring>
#include <utility>

size_t nccl_width(ncclDataType_t type) {
    switch (type) {
    case ncclFloat64:
    case ncclInt64:
        return 8;
    case ncclFloat32:
    case ncclInt32:
        return 4;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    default:
        return 1;
    }
}

namespace {

template <typename T> T combine(T a, T b, ncclRedOp_t reduction) {
    return reduction == ncclSum ? a + b : (reduction == ncclMax) == (a > b) ? a : b;
}

// Reduces from the last rank to the first, as nccl_sums.h explains.
template <typename T>
void reduce_as(const std::vector<std::vector<char>> &terms, char *out, uint64_t count,
               ncclRedOp_t reduction) {
    for (uint64_t i = 0; i < count; i++) {
        T sum, next;
        memcpy(&sum, terms.back().data() + i * sizeof sum, sizeof sum);
        for (size_t r = terms.size() - 1; r-- > 0;) {
            memcpy(&next, terms[r].data() + i * sizeof next, sizeof next);
            sum = combine(sum, next, reduction);
        }
        memcpy(out + i * sizeof sum, &sum, sizeof sum);
    }
}

void widen(std::vector<char> *values, ncclDataType_t type, uint64_t count) {
    std::vector<char> wide(count * sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, values->data() + 2 * i, sizeof bits);
        uint32_t moved = (uint32_t)bits << 16;
        float value;
        if (type == ncclBfloat16) {
            memcpy(&value, &moved, sizeof value);
        } else {
            _Float16 half;
            memcpy(&half, &bits, sizeof half);
            value = (float)half;
        }
        memcpy(wide.data() + i * sizeof value, &value, sizeof value);
    }
    *values = std::move(wide);
}

// Reduces F16 or BF16 by converting to F32 and back. This is exact for maxima and minima, the only
// reductions of half types that are asked for.
void reduce_halves(std::vector<std::vector<char>> terms, char *out, ncclDataType_t type,
                   uint64_t count, ncclRedOp_t reduction) {
    std::vector<char> wide(count * sizeof(float));
    for (auto &term : terms) widen(&term, type, count);
    reduce_as<float>(terms, wide.data(), count, reduction);
    for (uint64_t i = 0; i < count; i++) {
        float value;
        uint32_t bits;
        memcpy(&value, wide.data() + i * sizeof value, sizeof value);
        memcpy(&bits, &value, sizeof bits);
        _Float16 half = (_Float16)value;
        uint16_t top = (uint16_t)(bits >> 16);
        memcpy(out + 2 * i, type == ncclBfloat16 ? (void *)&top : (void *)&half, 2);
    }
}

} // namespace

void nccl_reduce(const std::vector<std::vector<char>> &terms, char *out, ncclDataType_t type,
                 uint64_t count, ncclRedOp_t reduction) {
    switch (type) {
    case ncclFloat32:
        return reduce_as<float>(terms, out, count, reduction);
    case ncclFloat64:
        return reduce_as<double>(terms, out, count, reduction);
    case ncclInt64:
        return reduce_as<int64_t>(terms, out, count, reduction);
    case ncclInt32:
        return reduce_as<int32_t>(terms, out, count, reduction);
    default:
        return reduce_halves(terms, out, type, count, reduction);
    }
}

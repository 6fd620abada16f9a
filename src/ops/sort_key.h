// The order of numbers as one of integers: ascending, -0 equal to 0, and NaN behind all others, as
// in PyTorch. The complement ~key has the opposite order. An integer is its own key. The host and
// kernels of a GPU use the same code.
#ifndef TRIREME_OPS_SORT_KEY_H
#define TRIREME_OPS_SORT_KEY_H

#include "base/kernel_inline.h"

#include <stdint.h>
#include <string.h>

TRI_KERNEL_INLINE int64_t sort_key_f32(float x) {
    uint32_t bits;
    if (x != x) return INT64_MAX;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? -(int64_t)(bits & 0x7fffffff) : (int64_t)bits;
}

TRI_KERNEL_INLINE int64_t sort_key_f64(double x) {
    uint64_t bits;
    if (x != x) return INT64_MAX;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? -(int64_t)(bits & INT64_MAX) : (int64_t)bits;
}

#endif

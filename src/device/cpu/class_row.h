// Finds the maximum of a row of scores (one for each class), and sums their exponentials. Each loop
// has 64 independent accumulators, so that compilers vectorise it. The functions are inlined into
// loops that the macro CPU_RANGES compiles for AVX-512, for AVX2 and for any CPU.
#ifndef TRIREME_DEVICE_CPU_CLASS_ROW_H
#define TRIREME_DEVICE_CPU_CLASS_ROW_H

#include "device/cpu/scalar.h"

#include <math.h>

enum { CLASS_LANES = 64 };

CPU_SCALAR bool cpu_row_has_nan(const void *row, int64_t classes, bool bf16) {
    int found = 0;
    for (int64_t i = 0; i < classes; i++) {
        float x = cpu_get(row, bf16, i);
        found |= x != x;
    }
    return found;
}

// Finds the largest number of a row. Numbers that are NaN are passed over.
CPU_SCALAR float cpu_largest_of_row(const void *row, int64_t classes, bool bf16) {
    float lane[CLASS_LANES];
    int64_t whole = classes / CLASS_LANES * CLASS_LANES;
    for (int k = 0; k < CLASS_LANES; k++) lane[k] = -INFINITY;
    for (int64_t i = 0; i < whole; i += CLASS_LANES)
        for (int k = 0; k < CLASS_LANES; k++) {
            float x = cpu_get(row, bf16, i + k);
            lane[k] = lane[k] < x ? x : lane[k];
        }
    float most = lane[0];
    for (int k = 1; k < CLASS_LANES; k++) most = most < lane[k] ? lane[k] : most;
    for (int64_t i = whole; i < classes; i++) {
        float x = cpu_get(row, bf16, i);
        most = most < x ? x : most;
    }
    return most;
}

// Computes the sum of exp(score − largest) over a row. Also stores each term in `out` unless that
// is NULL.
CPU_SCALAR float cpu_exp_sum_of_row(const void *row, int64_t classes, bool bf16, float largest,
                                    float *out) {
    float lane[CLASS_LANES] = {0};
    int64_t whole = classes / CLASS_LANES * CLASS_LANES;
    for (int64_t i = 0; i < whole; i += CLASS_LANES)
        for (int k = 0; k < CLASS_LANES; k++) {
            float e = cpu_exp_scalar(cpu_get(row, bf16, i + k) - largest);
            if (out) out[i + k] = e;
            lane[k] += e;
        }
    float sum = 0;
    for (int64_t i = whole; i < classes; i++) {
        float e = cpu_exp_scalar(cpu_get(row, bf16, i) - largest);
        if (out) out[i] = e;
        sum += e;
    }
    for (int width = CLASS_LANES / 2; width; width /= 2)
        for (int k = 0; k < width; k++) lane[k] += lane[k + width];
    return sum + lane[0];
}

#endif

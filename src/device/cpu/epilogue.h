// The epilogue of a matrix product: its description, and a function that applies it to a vector of
// 16 sums. Bias and activation are applied while the sums are still in registers, so that the sums
// need not be stored and loaded once more.
#ifndef TRIREME_DEVICE_CPU_EPILOGUE_H
#define TRIREME_DEVICE_CPU_EPILOGUE_H

#include "device/cpu/simd.h"

// What a product does to each finished sum before it stores it: adds the bias, then applies the
// activation.
typedef struct cpu_epilogue {
    const void *bias; // [columns], F32, or BF16 in products of BF16; NULL: no bias
    tri_activation activation;
    float slope; // factor of negative numbers in leaky ReLU
} cpu_epilogue;

// What is done to elements of a product after they are stored, while they are in a cache: `run`
// changes `rows` rows of `count` elements of c in memory, of which the first begins with element
// `begin`, and which lie `stride` elements apart.
typedef struct cpu_finish {
    void (*run)(const void *context, int64_t begin, int64_t stride, int64_t rows, int64_t count);
    const void *context;
    int64_t first; // where the product's c begins in memory, in elements
} cpu_finish;

// Finishes `rows` rows of `columns` elements, of which the first is element `at` of c, and which
// lie `stride` elements apart.
static inline void cpu_finish_rows(const cpu_finish *finish, int64_t at, int64_t stride,
                                   int64_t rows, int64_t columns) {
    bool joins = columns == stride; // rows that follow each other are one
    finish->run(finish->context, finish->first + at, stride, joins ? 1 : rows,
                joins ? rows * columns : columns);
}

// Adds elements `at` to `at` + 15 of the bias to 16 sums and applies the activation. `inside`
// selects the vector lanes for which the bias has elements. For functions marked CPU_AVX512.
CPU_INLINE __m512 cpu_epilogue_apply(const cpu_epilogue *epilogue, bool bf16, int64_t at,
                                     __mmask16 inside, __m512 value) {
    if (epilogue->bias) value = _mm512_add_ps(value, cpu_load(epilogue->bias, bf16, at, inside));
    if (epilogue->activation == TRI_ACTIVATION_NONE) return value;
    __mmask16 negative = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LE_OQ);
    float slope = epilogue->activation == TRI_ACTIVATION_RELU ? 0 : epilogue->slope;
    // Selects zero instead of multiplying by it, because 0 · infinity would be NaN.
    if (slope == 0) return _mm512_maskz_mov_ps((__mmask16)~negative, value);
    return _mm512_mask_mul_ps(value, negative, value, _mm512_set1_ps(slope));
}

#endif

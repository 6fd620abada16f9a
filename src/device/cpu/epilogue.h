// What is done to the sums of a product: a bias is added while they are in registers, and a map may
// change them as soon as they are stored.
#ifndef TRIREME_DEVICE_CPU_EPILOGUE_H
#define TRIREME_DEVICE_CPU_EPILOGUE_H

#include "device/cpu/simd.h"

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

// Adds elements `at` to `at` + 15 of the bias to 16 sums; NULL: there is none. `inside` selects the
// vector lanes for which the bias has elements. For functions marked CPU_AVX512.
CPU_INLINE __m512 cpu_add_bias(const void *bias, bool bf16, int64_t at, __mmask16 inside,
                               __m512 value) {
    return bias ? _mm512_add_ps(value, cpu_load(bias, bf16, at, inside)) : value;
}

#endif

// Matrix products of BF16 with few rows of the left operand, as where a decoder generates one token
// after the other: c = a·b with b stored as [n, k]. Nothing is packed, because each element of b is
// used only `m` times: b is read once, from its first byte to its last, at the memory's rate.
//
// The terms of an element are added in 16 lanes of pairs of k, four or more such sums at a time,
// which are added up at the end. So its bits do not depend on the number of threads or of rows.
#include "device/cpu/gemm_bf16.h"

enum {
    FEW_LANES = 32, // elements of k in a vector
    FEW_SUMS = 4,   // vectors of k whose sums are apart, so that products do not wait
    FEW_STEP = FEW_LANES * FEW_SUMS,
    FEW_COLUMNS = 64,    // columns that are finished together
    FEW_GRAIN = 1 << 15, // elements of b that are worth a second thread
    // How far ahead b is fetched, to the L2 cache, in elements. The CPU's own prefetching stops at
    // the end of a page, and a mapped file has small ones.
    FEW_AHEAD = 8192,
};

typedef struct few_job {
    const cpu_bf16_gemm *gemm;
} few_job;

CPU_INLINE __m512 add_products(__m512 sum, __m512i x, __m512i y) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

CPU_INLINE __m512i load_some(const uint16_t *from, int64_t count) {
    __mmask32 inside = count >= FEW_LANES ? ~(__mmask32)0 : (__mmask32)(((uint32_t)1 << count) - 1);
    return _mm512_maskz_loadu_epi16(inside, from);
}

// Computes one column of c for `rows` rows, a constant, from row `row` on.
CPU_INLINE void few_column(const cpu_bf16_gemm *g, int64_t row, int64_t rows, int64_t column,
                           float *out) {
    const uint16_t *b = g->b + column * g->k, *a = g->a + row * g->k;
    __m512 sums[CPU_FEW_ROWS][FEW_SUMS];
#pragma GCC unroll 4
    for (int64_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int s = 0; s < FEW_SUMS; s++) sums[i][s] = _mm512_setzero_ps();
    int64_t k = 0;
    for (; k + FEW_STEP <= g->k; k += FEW_STEP) {
#pragma GCC unroll 4
        for (int s = 0; s < FEW_SUMS; s++) {
            const uint16_t *at = b + k + s * FEW_LANES;
            _mm_prefetch((const char *)(at + FEW_AHEAD), _MM_HINT_T1);
            __m512i y = _mm512_loadu_si512(at);
#pragma GCC unroll 4
            for (int64_t i = 0; i < rows; i++)
                sums[i][s] = add_products(sums[i][s],
                                          _mm512_loadu_si512(a + i * g->k + k + s * FEW_LANES), y);
        }
    }
    for (int s = 0; k < g->k; k += FEW_LANES, s++) {
        __m512i y = load_some(b + k, g->k - k);
#pragma GCC unroll 4
        for (int64_t i = 0; i < rows; i++) {
            __m512 more =
                add_products(_mm512_setzero_ps(), load_some(a + i * g->k + k, g->k - k), y);
            sums[i][0] = _mm512_add_ps(sums[i][0], more);
        }
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < rows; i++)
        out[i * FEW_COLUMNS] = _mm512_reduce_add_ps(_mm512_add_ps(
            _mm512_add_ps(sums[i][0], sums[i][1]), _mm512_add_ps(sums[i][2], sums[i][3])));
}

static CPU_AVX512 void few_columns(const cpu_bf16_gemm *g, int64_t first, int64_t count,
                                   float *out) {
    for (int64_t j = 0; j < count; j++) {
        int64_t i = 0;
        for (; i + 4 <= g->m; i += 4) few_column(g, i, 4, first + j, out + i * FEW_COLUMNS + j);
        if (g->m - i == 3) few_column(g, i, 3, first + j, out + i * FEW_COLUMNS + j);
        if (g->m - i == 2) few_column(g, i, 2, first + j, out + i * FEW_COLUMNS + j);
        if (g->m - i == 1) few_column(g, i, 1, first + j, out + i * FEW_COLUMNS + j);
    }
}

// Computes columns begin … end − 1 of c, in units of FEW_COLUMNS.
static CPU_AVX512 void few_range(void *context, int64_t begin, int64_t end, int thread) {
    const cpu_bf16_gemm *g = ((const few_job *)context)->gemm;
    float sums[CPU_FEW_ROWS * FEW_COLUMNS];
    for (int64_t u = begin; u < end; u++) {
        int64_t first = u * FEW_COLUMNS, left = g->n - first;
        int64_t count = left < FEW_COLUMNS ? left : FEW_COLUMNS;
        few_columns(g, first, count, sums);
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < count; j += 16) {
                __mmask16 inside = cpu_first_lanes(count - j);
                __m512 sum = _mm512_maskz_loadu_ps(inside, sums + i * FEW_COLUMNS + j);
                int64_t at = i * g->n + first + j;
                sum = cpu_add_bias(g->bias, true, first + j, inside, sum);
                cpu_store(g->c, !g->c_f32, at, inside, sum);
            }
        if (g->finish) cpu_finish_rows(g->finish, first, g->n, g->m, count);
    }
}

bool cpu_few_supports(const cpu_bf16_gemm *g) {
    return g->m <= CPU_FEW_ROWS && g->b_transposed && !g->a_transposed && !g->accumulate;
}

void cpu_few_run(const cpu_device *device, const cpu_bf16_gemm *gemm) {
    few_job job = {.gemm = gemm};
    cpu_parallel(device, (gemm->n + FEW_COLUMNS - 1) / FEW_COLUMNS,
                 FEW_GRAIN / (FEW_COLUMNS * gemm->k) + 1, few_range, &job);
}

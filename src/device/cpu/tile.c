// Tiles of matrix products c = a·b and packing of their operands for AVX-512, in F32 and BF16. A
// tile is at most 6 × 64 sums, which stay in registers; k is the axis that is summed over. tile.h
// describes the functions.
#include "device/cpu/tile.h"

#include "device/cpu/epilogue.h"

enum {
    TILE_VECTORS = CPU_TILE_COLUMNS / 16,
    TILE_K_RUN = 64, // after so many steps of k, cpu_tile.a_skip elements of `a` are skipped
    PACK_AHEAD = 16, // packing prefetches this many rows ahead
};

// What the inner loop does: it multiplies numbers; it multiplies numbers and prefetches the memory
// at `ahead`; or it multiplies pairs of BF16.
typedef enum tile_kind { TILE_NUMBERS, TILE_AHEAD, TILE_PAIRS, TILE_KIND_COUNT } tile_kind;

// Computes sum + x · column. For pairs of BF16 this is the instruction VDPBF16PS, written as
// assembly because its intrinsic only compiles in functions whose target attribute names
// AVX512_BF16.
CPU_INLINE __m512 multiply_add(bool pairs, __m512 x, __m512 column, __m512 sum) {
    if (!pairs) return _mm512_fmadd_ps(x, column, sum);
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(column));
    return sum;
}

// Computes a tile of `rows` rows and `vectors` vectors of 16 columns. Stores only the columns of
// the last vector that `last` selects. Callers give constants for all but `job` and `last`, so that
// the compiler unrolls the loops and keeps the sums in registers.
CPU_INLINE void tile(const cpu_tile *job, __mmask16 last, int rows, int vectors, tile_kind kind) {
    const bool pairs = kind == TILE_PAIRS;
    __m512 sum[CPU_TILE_ROWS * TILE_VECTORS];
    const float *a = job->a, *b = job->b;
    const int64_t a_row = job->a_row, a_k = job->a_k, ahead_step = job->ahead_step;
    const char *ahead = job->ahead;
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const char *c = job->c_bf16 ? (const char *)(job->c_bf16 + i * job->c_bf16_row + 16 * v)
                                        : (const char *)(job->c + i * job->c_row + 16 * v);
            _mm_prefetch(c, _MM_HINT_T0);
            __mmask16 inside = v == vectors - 1 ? last : 0xFFFF;
            sum[i * vectors + v] =
                pairs && job->accumulate
                    ? _mm512_maskz_loadu_ps(inside, job->c + i * job->c_row + 16 * v)
                    : _mm512_setzero_ps();
        }
    const int64_t run = job->a_skip ? TILE_K_RUN : job->k;
    for (int64_t left = job->k; left > 0; left -= run, a += job->a_skip)
        for (int64_t p = left < run ? left : run; p > 0; p--) {
            __m512 column[TILE_VECTORS];
            if (kind == TILE_AHEAD) {
                _mm_prefetch(ahead, _MM_HINT_T1);
                ahead += ahead_step;
            }
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) column[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                __m512 x = _mm512_set1_ps(a[i * a_row]);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    sum[i * vectors + v] = multiply_add(pairs, x, column[v], sum[i * vectors + v]);
            }
            a += a_k;
            b += CPU_TILE_COLUMNS;
        }
    const bool adds = job->accumulate && !pairs;
    if (!adds && !job->c_bf16 && !job->bias) {
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                _mm512_mask_storeu_ps(job->c + i * job->c_row + 16 * v,
                                      v == vectors - 1 ? last : 0xFFFF, sum[i * vectors + v]);
        return;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            __mmask16 inside = v == vectors - 1 ? last : 0xFFFF;
            float *c = job->c + i * job->c_row + 16 * v;
            __m512 value = sum[i * vectors + v];
            if (adds) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(inside, c));
            value = cpu_add_bias(job->bias, pairs, 16 * v, inside, value);
            if (job->c_bf16)
                cpu_store(job->c_bf16, true, i * job->c_bf16_row + 16 * v, inside, value);
            else
                _mm512_mask_storeu_ps(c, inside, value);
        }
}

typedef void (*tile_function)(const cpu_tile *job, __mmask16 last);

// clang-format off
#define TILE(rows, vectors)                                                                        \
    static CPU_AVX512 void numbers_##rows##_##vectors(const cpu_tile *job, __mmask16 last) {       \
        tile(job, last, rows, vectors, TILE_NUMBERS);                                              \
    }                                                                                              \
    static CPU_AVX512 void ahead_##rows##_##vectors(const cpu_tile *job, __mmask16 last) {         \
        tile(job, last, rows, vectors, TILE_AHEAD);                                                \
    }                                                                                              \
    static CPU_AVX512 void pairs_##rows##_##vectors(const cpu_tile *job, __mmask16 last) {         \
        tile(job, last, rows, vectors, TILE_PAIRS);                                                \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)
#define ROW(name, rows) {name##_##rows##_1, name##_##rows##_2, name##_##rows##_3, name##_##rows##_4}
#define ROWS(name)                                                                                 \
    {ROW(name, 1), ROW(name, 2), ROW(name, 3), ROW(name, 4), ROW(name, 5), ROW(name, 6)}
static const tile_function tiles[TILE_KIND_COUNT][CPU_TILE_ROWS][TILE_VECTORS] = {
    [TILE_NUMBERS] = ROWS(numbers), [TILE_AHEAD] = ROWS(ahead), [TILE_PAIRS] = ROWS(pairs)};
// clang-format on

void cpu_tile_multiply(const cpu_tile *job, int64_t rows, int64_t columns) {
    int64_t vectors = (columns + 15) / 16;
    tile_kind kind = job->pairs ? TILE_PAIRS : job->ahead ? TILE_AHEAD : TILE_NUMBERS;
    tiles[kind][rows - 1][vectors - 1](job, (__mmask16)(0xFFFF >> (16 * vectors - columns)));
}

void cpu_tile_multiply_rows(const cpu_tile *job, int64_t rows, int64_t columns) {
    cpu_tile part = *job;
    for (int64_t i = 0; i < rows; i += CPU_TILE_ROWS) {
        cpu_tile_multiply(&part, rows - i < CPU_TILE_ROWS ? rows - i : CPU_TILE_ROWS, columns);
        part.a += CPU_TILE_ROWS * job->a_row;
        part.c += CPU_TILE_ROWS * job->c_row;
    }
}

CPU_INLINE void pack_rows(const void *from, bool bf16, int64_t stride, int64_t rows,
                          int64_t columns, float *to, int64_t panel) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j += CPU_TILE_COLUMNS) {
            float *out = to + j / CPU_TILE_COLUMNS * panel + r * CPU_TILE_COLUMNS;
            for (int64_t k = j; k < j + CPU_TILE_COLUMNS; k += 16) {
                int64_t at = r * stride + k, ahead = at + PACK_AHEAD * stride;
                _mm_prefetch((const char *)from + ahead * (bf16 ? 2 : 4), _MM_HINT_T0);
                __mmask16 inside = k < columns ? cpu_first_lanes(columns - k) : 0;
                _mm512_storeu_ps(out + k - j, cpu_load(from, bf16, at, inside));
            }
        }
}

CPU_INLINE void pack_columns(const void *from, bool bf16, int64_t stride, int64_t k,
                             int64_t columns, float *to) {
    // If k is small, prefetches all rows first, because the hardware does not prefetch short rows
    // that lie far apart.
    for (int64_t j = 0; j < columns && k <= 64; j++)
        for (int64_t p = 0; p < k; p += bf16 ? 32 : 16)
            _mm_prefetch((const char *)from + (j * stride + p) * (bf16 ? 2 : 4), _MM_HINT_T0);
    for (int64_t p = 0; p < k; p += 16)
        for (int64_t j = 0; j < CPU_TILE_COLUMNS; j += 16) {
            int64_t count = k - p < 16 ? k - p : 16;
            __mmask16 inside = (__mmask16)((1u << count) - 1);
            __m512 r[16];
            for (int64_t i = 0; i < 16; i++)
                r[i] = j + i < columns ? cpu_load(from, bf16, (j + i) * stride + p, inside)
                                       : _mm512_setzero_ps();
            cpu_transpose16(r);
            for (int64_t i = 0; i < count; i++)
                _mm512_storeu_ps(to + (p + i) * CPU_TILE_COLUMNS + j, r[i]);
        }
}

CPU_AVX512 void cpu_pack_rows(const void *from, bool bf16, int64_t stride, int64_t rows,
                              int64_t columns, float *to, int64_t panel) {
    if (bf16)
        pack_rows(from, true, stride, rows, columns, to, panel);
    else
        pack_rows(from, false, stride, rows, columns, to, panel);
}

CPU_AVX512 void cpu_pack_columns(const void *from, bool bf16, int64_t stride, int64_t k,
                                 int64_t columns, float *to) {
    if (bf16)
        pack_columns(from, true, stride, k, columns, to);
    else
        pack_columns(from, false, stride, k, columns, to);
}

CPU_AVX512 void cpu_pack_groups(const float *from, int64_t stride, int64_t k, int64_t rows,
                                float *to) {
    for (int64_t row = 0; row < rows; row += CPU_TILE_GROUP, to += CPU_TILE_GROUP * k) {
        __mmask16 inside = cpu_first_lanes(rows - row);
        for (int64_t p = 0; p < k; p++) {
            const float *at = from + p * stride + row;
            _mm_prefetch((const char *)(at + CPU_TILE_GROUP), _MM_HINT_T0);
            _mm512_storeu_ps(to + p * CPU_TILE_GROUP, _mm512_maskz_loadu_ps(inside, at));
        }
    }
}

CPU_AVX512 void cpu_transpose(const float *from, int64_t stride, int64_t rows, int64_t columns,
                              const float *bias, float *to, int64_t to_stride) {
    for (int64_t c = 0; c < columns; c += 16)
        for (int64_t row = 0; row < rows; row += 16) {
            __m512 r[16];
            __mmask16 inside = cpu_first_lanes(columns - c), wanted = cpu_first_lanes(rows - row);
            for (int64_t i = 0; i < 16; i++)
                r[i] = row + i < rows ? _mm512_maskz_loadu_ps(inside, from + (row + i) * stride + c)
                                      : _mm512_setzero_ps();
            cpu_transpose16(r);
            for (int64_t i = 0; i < 16 && c + i < columns; i++)
                _mm512_mask_storeu_ps(to + (c + i) * to_stride + row, wanted,
                                      cpu_add_bias(bias, false, row, wanted, r[i]));
        }
}

const cpu_tile_code cpu_tile_code_avx512 = {.multiply = cpu_tile_multiply,
                                            .pack_rows = cpu_pack_rows,
                                            .pack_columns = cpu_pack_columns,
                                            .pack_groups = cpu_pack_groups,
                                            .transpose = cpu_transpose};

const cpu_tile_code *cpu_tile_code_of(const cpu_device *device) {
    if (cpu_has(&device->head.description, CPU_HAS_AVX512)) return &cpu_tile_code_avx512;
    return cpu_has(&device->head.description, CPU_HAS_AVX2) ? &cpu_tile_code_avx2
                                                            : &cpu_tile_code_base;
}

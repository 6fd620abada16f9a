// Packs the operands of products c = a·b by AMX into chunks of 32 × 32 BF16 values, and computes
// blocks of 32 × 32 sums. A tile is a register of AMX: 16 rows of 64 bytes. k is the axis that is
// summed over; a pair is two values of neighbouring k. amx.h describes chunks and functions.
#include "device/cpu/amx.h"

#include <string.h>

// Packs b, stored as [columns, k]. At a time it reads 16 columns with 32 values of k each, a matrix
// of [16 columns][16 pairs], and transposes it to [16 pairs][16 columns], as chunks have it.
CPU_AVX512 void cpu_amx_pack_b_rows(const uint16_t *b, int64_t stride, int64_t k, int64_t columns,
                                    uint16_t *to) {
    for (int64_t j = 0; j < columns; j += CPU_AMX_SIDE)
        for (int64_t s = 0; s < k; s += CPU_AMX_SIDE)
            for (int64_t half = j; half < j + CPU_AMX_SIDE; half += 16, to += 16 * CPU_AMX_SIDE) {
                __m512 r[16];
                int64_t left = k - s;
                __mmask32 inside = left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
                const uint16_t *from = b + half * stride + s;
                for (int64_t i = 0; i < 16; i++)
                    r[i] = half + i < columns ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(
                                                    inside, from + i * stride))
                                              : _mm512_setzero_ps();
                cpu_transpose16(r);
                for (int64_t i = 0; i < 16; i++) _mm512_storeu_ps(to + i * CPU_AMX_SIDE, r[i]);
            }
}

CPU_AVX512 void cpu_amx_pack_b_plain(const uint16_t *b, int64_t stride, int64_t k, int64_t columns,
                                     uint16_t *to) {
    for (int64_t j = 0; j < columns; j += CPU_AMX_SIDE)
        for (int64_t p = 0; p < k; p += 2) {
            const uint16_t *from = b + p * stride + j;
            __builtin_prefetch(from + CPU_AMX_SIDE * stride);
            __builtin_prefetch(from + (CPU_AMX_SIDE + 1) * stride);
            if (p % CPU_AMX_SIDE == 0 && k - p < CPU_AMX_SIDE)
                memset(to, 0, CPU_AMX_CHUNK * sizeof *to);
            for (int64_t half = 0; half < CPU_AMX_SIDE; half += 16) {
                int64_t left = columns - j - half;
                _mm512_storeu_si512(to + p % CPU_AMX_SIDE * 16 + half * CPU_AMX_SIDE,
                                    cpu_pairs_of_rows(from + half, stride, p + 1 < k,
                                                      left > 0 ? cpu_first_lanes(left) : 0));
            }
            if ((p + 2) % CPU_AMX_SIDE == 0 || p + 2 >= k) to += CPU_AMX_CHUNK;
        }
}

CPU_AVX512 void cpu_amx_pack_a_rows(const uint16_t *a, int64_t stride, int64_t rows, int64_t k,
                                    uint16_t *to) {
    for (int64_t i = 0; i < rows; i += CPU_AMX_SIDE)
        for (int64_t s = 0; s < k; s += CPU_AMX_SIDE) {
            int64_t left = k - s;
            __mmask32 inside = left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
            const uint16_t *from = a + i * stride + s;
            for (int64_t r = i; r < i + CPU_AMX_SIDE; r++, from += stride, to += CPU_AMX_SIDE)
                _mm512_storeu_si512(to, r < rows ? _mm512_maskz_loadu_epi16(inside, from)
                                                 : _mm512_setzero_si512());
        }
}

// Packs `a`, stored as [k, rows]. At a time it reads 32 values of k of 16 rows, a matrix of [16
// pairs][16 rows], and transposes it to [16 rows][16 pairs], as chunks have it.
CPU_AVX512 void cpu_amx_pack_a_columns(const uint16_t *a, int64_t stride, int64_t rows, int64_t k,
                                       uint16_t *to) {
    for (int64_t i = 0; i < rows; i += CPU_AMX_SIDE)
        for (int64_t s = 0; s < k; s += CPU_AMX_SIDE)
            for (int64_t half = i; half < i + CPU_AMX_SIDE; half += 16, to += 16 * CPU_AMX_SIDE) {
                __m512 r[16];
                int64_t left = rows - half;
                __mmask16 inside = left > 0 ? cpu_first_lanes(left) : 0;
                const uint16_t *from = a + s * stride + half;
                for (int64_t p = 0; p < 16; p++)
                    r[p] = _mm512_castsi512_ps(cpu_pairs_of_rows(from + 2 * p * stride, stride,
                                                                 s + 2 * p + 1 < k,
                                                                 s + 2 * p < k ? inside : 0));
                cpu_transpose16(r);
                for (int64_t p = 0; p < 16; p++) _mm512_storeu_ps(to + p * CPU_AMX_SIDE, r[p]);
            }
}

// Defines the function for blocks of 16 · row_tiles × 16 · column_tiles sums, where at least one of
// the two numbers is 1. Tiles 0 to 2 hold the sums, 4 and 5 the rows of `a`, 6 and 7 the columns of
// `b`.
#define AMX_BLOCK(name, row_tiles, column_tiles)                                                   \
    static CPU_AMX __attribute__((noinline)) void name(const cpu_amx_rows *rows,                   \
                                                       const uint16_t *b, int64_t chunks,          \
                                                       float *sums, cpu_amx_sums mode) {           \
        const int64_t row = rows->row, line = CPU_AMX_SIDE * (int64_t)sizeof(float);               \
        const char *a = (const char *)rows->data, *below = a + 16 * row;                           \
        float *under = sums + 16 * CPU_AMX_SIDE;                                                   \
        __asm__ volatile(                                                                          \
            "" ::                                                                                  \
                : "memory"); /* the compiler must store packed operands before tiles load them */  \
        if (mode == CPU_AMX_ACCUMULATE) {                                                          \
            _tile_loadd(0, sums, line);                                                            \
            if (column_tiles == 2) _tile_loadd(1, sums + 16, line);                                \
            if (row_tiles == 2) _tile_loadd(2, under, line);                                       \
        } else {                                                                                   \
            _tile_zero(0);                                                                         \
            _tile_zero(1);                                                                         \
            _tile_zero(2);                                                                         \
        }                                                                                          \
        for (int64_t i = 0; i < chunks; i++) {                                                     \
            _tile_loadd(6, b, 64);                                                                 \
            _tile_loadd(4, a, row);                                                                \
            _tile_dpbf16ps(0, 4, 6);                                                               \
            if (column_tiles == 2) {                                                               \
                _tile_loadd(7, b + CPU_AMX_CHUNK / 2, 64);                                         \
                _tile_dpbf16ps(1, 4, 7);                                                           \
            }                                                                                      \
            if (row_tiles == 2) {                                                                  \
                _tile_loadd(5, below, row);                                                        \
                _tile_dpbf16ps(2, 5, 6);                                                           \
            }                                                                                      \
            a += rows->chunk;                                                                      \
            below += rows->chunk;                                                                  \
            b += CPU_AMX_CHUNK;                                                                    \
        }                                                                                          \
        _tile_stored(0, sums, line);                                                               \
        if (column_tiles == 2) _tile_stored(1, sums + 16, line);                                   \
        if (row_tiles == 2) _tile_stored(2, under, line);                                          \
    }
AMX_BLOCK(block_1x1, 1, 1)
AMX_BLOCK(block_1x2, 1, 2)
AMX_BLOCK(block_2x1, 2, 1)

// Stores rows `row` to `end` - 1 of the finished sums of an earlier block (beside->sums) as BF16.
// cpu_amx_block_beside calls it while the tiles multiply for the next block.
CPU_INLINE void store_rows(const cpu_amx_beside *beside, int64_t row, int64_t end) {
    const float *from = beside->sums + row * CPU_AMX_SIDE;
    uint16_t *to = beside->c + row * beside->c_row;
    for (; row < end; row++, from += CPU_AMX_SIDE, to += beside->c_row)
        _mm512_storeu_si512(to, cpu_narrow_both(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)));
}

CPU_AVX512 void cpu_amx_store_beside(cpu_amx_beside *beside) {
    if (beside->sums) store_rows(beside, 0, CPU_AMX_SIDE);
    beside->sums = NULL;
}

// Does the work `beside` between the instructions of AMX. That work takes almost no extra time,
// because the vector unit is nearly idle while the tiles multiply.
CPU_AMX void cpu_amx_block_beside(const cpu_amx_rows *rows, const uint16_t *b, int64_t chunks,
                                  float *sums, int64_t stride, cpu_amx_sums mode,
                                  const cpu_amx_beside *beside) {
    const int64_t row = rows->row, line = stride * (int64_t)sizeof(float);
    const char *a = (const char *)rows->data, *below = a + 16 * row, *ahead = beside->ahead;
    float *under = sums + 16 * stride;
    int64_t stored = beside->sums ? 0 : CPU_AMX_SIDE, each = CPU_AMX_SIDE / chunks + 1;
    // The compiler must store packed operands before tiles load them.
    __asm__ volatile("" ::: "memory");
    if (mode == CPU_AMX_ACCUMULATE) {
        _tile_loadd(0, sums, line);
        _tile_loadd(1, sums + 16, line);
        _tile_loadd(2, under, line);
        _tile_loadd(3, under + 16, line);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < chunks; i++) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a, row);
        _tile_dpbf16ps(0, 4, 6);
        for (int64_t l = 0; l < beside->lines; l++)
            _mm_prefetch(ahead + l * beside->line, _MM_HINT_T1);
        _tile_loadd(7, b + CPU_AMX_CHUNK / 2, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (stored < CPU_AMX_SIDE) {
            int64_t end = stored + each < CPU_AMX_SIDE ? stored + each : CPU_AMX_SIDE;
            store_rows(beside, stored, end);
            stored = end;
        }
        _tile_loadd(5, below, row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += rows->chunk;
        below += rows->chunk;
        ahead += beside->chunk;
        b += CPU_AMX_CHUNK;
    }
    _tile_stored(0, sums, line);
    _tile_stored(1, sums + 16, line);
    _tile_stored(2, under, line);
    _tile_stored(3, under + 16, line);
}

void cpu_amx_block(const cpu_amx_rows *a, const uint16_t *b, int64_t chunks, float *sums,
                   cpu_amx_sums mode, int64_t height, int64_t width) {
    static const cpu_amx_beside nothing = {.ahead = (const char *)&nothing};
    if (height > 16 && width > 16)
        cpu_amx_block_beside(a, b, chunks, sums, CPU_AMX_SIDE, mode, &nothing);
    else if (height > 16)
        block_2x1(a, b, chunks, sums, mode);
    else
        (width > 16 ? block_1x2 : block_1x1)(a, b, chunks, sums, mode);
}

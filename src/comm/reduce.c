#include "comm/shm/reduce.h"

#include "base/status.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { REDUCE_BLOCK_BYTES = 4096 };

#define REDUCE_SUM(a, b) ((a) + (b))
#define REDUCE_MAX(a, b) ((a) > (b) ? (a) : (b))
#define REDUCE_MIN(a, b) ((a) < (b) ? (a) : (b))

// out = a + b, and the same into two places. The arrays may be the same ones, never shifted ones,
// which is what ivdep says. Integers add as unsigned: overflow wraps.
#define REDUCE_PAIR(isa, type, word, expression, attribute)                                        \
    attribute static void fold_##isa##_##word(void *out, const void *first, const void *second,    \
                                              size_t count) {                                      \
        type *o = out;                                                                             \
        const type *a = first, *b = second;                                                        \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) o[i] = expression(a[i], b[i]);     \
    }                                                                                              \
    attribute static void both_##isa##_##word(void *out, void *other, const void *first,           \
                                              const void *second, size_t count) {                  \
        type *o = out, *p = other;                                                                 \
        const type *a = first, *b = second;                                                        \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) {                                  \
            type sum = expression(a[i], b[i]);                                                     \
            o[i] = sum;                                                                            \
            p[i] = sum;                                                                            \
        }                                                                                          \
    }

#define REDUCE_TYPE(isa, type, sum_type, word, attribute)                                          \
    REDUCE_PAIR(isa, sum_type, word##_sum, REDUCE_SUM, attribute)                                  \
    REDUCE_PAIR(isa, type, word##_max, REDUCE_MAX, attribute)                                      \
    REDUCE_PAIR(isa, type, word##_min, REDUCE_MIN, attribute)

#define REDUCE_ISA(isa, attribute)                                                                 \
    REDUCE_TYPE(isa, float, float, f32, attribute)                                                 \
    REDUCE_TYPE(isa, double, double, f64, attribute)                                               \
    REDUCE_TYPE(isa, int64_t, uint64_t, i64, attribute)                                            \
    REDUCE_TYPE(isa, int32_t, uint32_t, i32, attribute)

typedef struct reduce_row {
    void (*fold)(void *out, const void *first, const void *second, size_t count);
    void (*both)(void *out, void *other, const void *first, const void *second, size_t count);
} reduce_row;

#define REDUCE_ROW(isa, word)                                                                      \
    {                                                                                              \
        [TRI_REDUCE_SUM] = {fold_##isa##_##word##_sum, both_##isa##_##word##_sum},                 \
        [TRI_REDUCE_MAX] = {fold_##isa##_##word##_max, both_##isa##_##word##_max},                 \
        [TRI_REDUCE_MIN] = {                                                                       \
            fold_##isa##_##word##_min,                                                             \
            both_##isa##_##word##_min                                                              \
        }                                                                                          \
    }

#define REDUCE_TABLE(isa)                                                                          \
    static const reduce_row table_##isa[TRI_DTYPE_COUNT][3] = {[TRI_F32] = REDUCE_ROW(isa, f32),   \
                                                               [TRI_F64] = REDUCE_ROW(isa, f64),   \
                                                               [TRI_I64] = REDUCE_ROW(isa, i64),   \
                                                               [TRI_I32] = REDUCE_ROW(isa, i32)};

REDUCE_ISA(plain, )
REDUCE_TABLE(plain)
#if defined(__x86_64__)
REDUCE_ISA(avx2, __attribute__((target("avx2"))))
REDUCE_TABLE(avx2)
REDUCE_ISA(avx512, __attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))))
REDUCE_TABLE(avx512)
#endif

static const reduce_row *reduce_find(tri_dtype dtype, tri_comm_reduction reduction) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return &table_avx512[dtype][reduction];
    if (__builtin_cpu_supports("avx2")) return &table_avx2[dtype][reduction];
#endif
    return &table_plain[dtype][reduction];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static size_t stream_lines(char *to, const char *from,
                                                           size_t bytes) {
    size_t done = 0;
    for (; done + 64 <= bytes; done += 64) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + done));
        __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + done + 32));
        _mm256_stream_si256((__m256i *)(void *)(to + done), low);
        _mm256_stream_si256((__m256i *)(void *)(to + done + 32), high);
    }
    _mm_sfence(); // streamed stores become visible before the flag that announces them
    return done;
}
#endif

void shm_copy(void *to, const void *from, size_t bytes, bool stream) {
    if (bytes == 0 || to == from) return;
    size_t done = 0;
#if defined(__x86_64__)
    if (stream && (uintptr_t)to % 64 == 0 && __builtin_cpu_supports("avx2"))
        done = stream_lines(to, from, bytes);
#endif
    memcpy((char *)to + done, (const char *)from + done, bytes - done);
}

void shm_reduce(tri_dtype dtype, tri_comm_reduction reduction, int ins, const void *const *in,
                int outs, void *const *out, size_t count, bool stream) {
    size_t width = tri_dtype_bytes(dtype);
    const reduce_row *row = reduce_find(dtype, reduction);
    TRI_ASSERT(row->fold && ins > 0);
    if (ins == 2 && outs == 2 && !stream) {
        row->both(out[0], out[1], in[0], in[1], count);
        return;
    }
    if (ins == 2 && outs == 1 && !stream) {
        row->fold(out[0], in[0], in[1], count);
        return;
    }
    // A block of the sum stays in the first cache until it went to every place.
    _Alignas(64) char block[REDUCE_BLOCK_BYTES];
    size_t step = REDUCE_BLOCK_BYTES / width;
    for (size_t begin = 0; begin < count; begin += step) {
        size_t n = count - begin < step ? count - begin : step, offset = begin * width;
        const void *sum = (const char *)in[0] + offset;
        for (int r = 1; r < ins; r++) {
            row->fold(block, sum, (const char *)in[r] + offset, n);
            sum = block;
        }
        for (int o = 0; o < outs; o++) shm_copy((char *)out[o] + offset, sum, n * width, stream);
    }
}

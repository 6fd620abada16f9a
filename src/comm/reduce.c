// Reductions for every type, operation and instruction set. Macros write the functions, because the
// functions differ only in these three. The best instruction set is chosen at run time, so that one
// program runs on all CPUs. A term is one rank's contribution to a sum. The wire type is the type
// in which terms travel between ranks.
#include "comm/reduce.h"

#include "base/status.h"
#include "tensor/half.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { REDUCE_BLOCK_BYTES = 4096, REDUCE_BLOCK = REDUCE_BLOCK_BYTES / 4 };

#define REDUCE_SUM(a, b) ((a) + (b))
#define REDUCE_MAX(a, b) ((a) > (b) ? (a) : (b))
#define REDUCE_MIN(a, b) ((a) < (b) ? (a) : (b))

// The functions fold_… compute out = a + b (or maximum, or minimum), and the functions both_… write
// the same result to two outputs. An output may be the same array as an input, but never overlaps
// one at an offset, so the pragma ivdep is allowed. Integers are added as unsigned, so that
// overflow wraps around.
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

// Functions that convert half types to F32 and back, because half types are added in F32. GCC
// vectorises the loops for BF16, but not those for F16: WIDEN_… and NARROW_… convert as many F16
// values as they can with the processor's own instruction, and the loop converts the rest.
#define REDUCE_HALF(isa, attribute)                                                                \
    attribute static void widen_##isa##_bf16(float *out, const void *from, size_t count) {         \
        const uint16_t *in = from;                                                                 \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) out[i] = tri_bf16_to_float(in[i]); \
    }                                                                                              \
    attribute static void narrow_##isa##_bf16(void *to, const float *in, size_t count) {           \
        uint16_t *out = to;                                                                        \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) out[i] = tri_float_to_bf16(in[i]); \
    }                                                                                              \
    attribute static void widen_##isa##_f16(float *out, const void *from, size_t count) {          \
        const uint16_t *in = from;                                                                 \
        size_t done = WIDEN_##isa(out, in, count);                                                 \
        for (size_t i = done; i < count; i++) out[i] = tri_f16_to_float(in[i]);                    \
    }                                                                                              \
    attribute static void narrow_##isa##_f16(void *to, const float *in, size_t count) {            \
        uint16_t *out = to;                                                                        \
        size_t done = NARROW_##isa(out, in, count);                                                \
        for (size_t i = done; i < count; i++) out[i] = tri_float_to_f16(in[i]);                    \
    }

#define REDUCE_ISA(isa, attribute)                                                                 \
    REDUCE_TYPE(isa, float, float, f32, attribute)                                                 \
    REDUCE_TYPE(isa, double, double, f64, attribute)                                               \
    REDUCE_TYPE(isa, int64_t, uint64_t, i64, attribute)                                            \
    REDUCE_TYPE(isa, int32_t, uint32_t, i32, attribute)                                            \
    REDUCE_HALF(isa, attribute)

typedef struct reduce_kernels {
    void (*fold)(void *out, const void *first, const void *second, size_t count);
    void (*both)(void *out, void *other, const void *first, const void *second, size_t count);
} reduce_kernels;

typedef struct reduce_half {
    void (*widen)(float *out, const void *in, size_t count);
    void (*narrow)(void *out, const float *in, size_t count);
} reduce_half;

typedef struct reduce_table {
    reduce_kernels kernels[TRI_DTYPE_COUNT][3];
    reduce_half halves[TRI_DTYPE_COUNT]; // conversions for the types that are added in F32
} reduce_table;

#define REDUCE_KERNELS(isa, word)                                                                  \
    {                                                                                              \
        [TRI_REDUCE_SUM] = {fold_##isa##_##word##_sum, both_##isa##_##word##_sum},                 \
        [TRI_REDUCE_MAX] = {fold_##isa##_##word##_max, both_##isa##_##word##_max},                 \
        [TRI_REDUCE_MIN] = {                                                                       \
            fold_##isa##_##word##_min,                                                             \
            both_##isa##_##word##_min                                                              \
        }                                                                                          \
    }

#define REDUCE_TABLE(isa)                                                                          \
    static const reduce_table table_##isa = {                                                      \
        .kernels = {[TRI_F32] = REDUCE_KERNELS(isa, f32),                                          \
                    [TRI_F64] = REDUCE_KERNELS(isa, f64),                                          \
                    [TRI_I64] = REDUCE_KERNELS(isa, i64),                                          \
                    [TRI_I32] = REDUCE_KERNELS(isa, i32)},                                         \
        .halves = {[TRI_BF16] = {widen_##isa##_bf16, narrow_##isa##_bf16},                         \
                   [TRI_F16] = {widen_##isa##_f16, narrow_##isa##_f16}}};

#define WIDEN_plain(out, in, count) 0
#define NARROW_plain(out, in, count) 0
REDUCE_ISA(plain, )
REDUCE_TABLE(plain)
#if defined(__x86_64__)
enum { HALF_VECTOR = 8 };

__attribute__((target("avx2,f16c"))) static size_t widen_vectors(float *out, const uint16_t *in,
                                                                 size_t count) {
    size_t i = 0;
    for (; i + HALF_VECTOR <= count; i += HALF_VECTOR)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + i))));
    return i;
}

__attribute__((target("avx2,f16c"))) static size_t narrow_vectors(uint16_t *out, const float *in,
                                                                  size_t count) {
    size_t i = 0;
    for (; i + HALF_VECTOR <= count; i += HALF_VECTOR)
        _mm_storeu_si128((void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

#define WIDEN_avx2(out, in, count) widen_vectors(out, in, count)
#define NARROW_avx2(out, in, count) narrow_vectors(out, in, count)
#define WIDEN_avx512(out, in, count) widen_vectors(out, in, count)
#define NARROW_avx512(out, in, count) narrow_vectors(out, in, count)
REDUCE_ISA(avx2, __attribute__((target("avx2,f16c"))))
REDUCE_TABLE(avx2)
REDUCE_ISA(avx512, __attribute__((target("avx512f,avx512dq,f16c,prefer-vector-width=512"))))
REDUCE_TABLE(avx512)
#endif

static const reduce_table *reduce_find(void) {
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2"); // every processor with AVX2 has F16C too
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return &table_avx512;
    if (avx2) return &table_avx2;
#endif
    return &table_plain;
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
    // Makes the streamed stores visible before later stores, such as the counter by which this rank
    // tells the others that its data are there.
    _mm_sfence();
    return done;
}
#endif

void comm_copy(void *to, const void *from, size_t bytes, bool stream) {
    if (bytes == 0 || to == from) return;
    size_t done = 0;
#if defined(__x86_64__)
    if (stream && (uintptr_t)to % 64 == 0 && __builtin_cpu_supports("avx2"))
        done = stream_lines(to, from, bytes);
#endif
    memcpy((char *)to + done, (const char *)from + done, bytes - done);
}

static const void *at(const void *memory, size_t bytes) { return (const char *)memory + bytes; }

static void round_to(const reduce_half *type, float *values, size_t count) {
    _Alignas(64) uint16_t narrow[REDUCE_BLOCK];
    type->narrow(narrow, values, count);
    type->widen(values, narrow, count);
}

// Reduces values that are stored, or travel, in a half type. They are added in F32, block by block,
// so that the sums of a block stay in the first-level cache until they have been copied to every
// output.
static void reduce_in_f32(const reduce_table *table, const tri_comm_op *op, int in_count,
                          const void *const *in, int out_count, void *const *out, size_t count,
                          bool stream) {
    const reduce_half *stored = &table->halves[op->dtype], *wire = &table->halves[op->wire];
    const reduce_kernels *kernels = &table->kernels[TRI_F32][op->reduction];
    _Alignas(64) float sum[REDUCE_BLOCK], next[REDUCE_BLOCK];
    _Alignas(64) uint16_t narrow[REDUCE_BLOCK];
    size_t width = tri_dtype_bytes(op->dtype);
    for (size_t begin = 0; begin < count; begin += REDUCE_BLOCK) {
        size_t n = count - begin < REDUCE_BLOCK ? count - begin : REDUCE_BLOCK;
        for (int r = 0; r < in_count; r++) {
            float *to = r == 0 ? sum : next;
            const void *from = at(in[r], begin * width);
            bool travels = r > 0 || !op->accumulate;
            if (stored->widen)
                stored->widen(to, from, n);
            else
                memcpy(to, from, n * sizeof *to);
            if (wire->widen && travels) round_to(wire, to, n);
            if (r > 0) kernels->fold(sum, sum, next, n);
        }
        if (wire->widen && op->kind == TRI_COMM_ALL_REDUCE) round_to(wire, sum, n);
        if (stored->narrow) stored->narrow(narrow, sum, n);
        const void *result = stored->narrow ? (const void *)narrow : sum;
        for (int o = 0; o < out_count; o++)
            comm_copy((char *)out[o] + begin * width, result, n * width, stream);
    }
}

void comm_narrow(tri_dtype half, void *to, const void *from, int64_t count) {
    reduce_find()->halves[half].narrow(to, from, (size_t)count);
}

void comm_widen(tri_dtype half, void *to, const void *from, int64_t count) {
    reduce_find()->halves[half].widen(to, from, (size_t)count);
}

void comm_reduce(const tri_comm_op *op, int in_count, const void *const *in, int out_count,
                 void *const *out, size_t count, bool stream) {
    const reduce_table *table = reduce_find();
    TRI_ASSERT(in_count > 0);
    // Terms are rounded to the wire type. A single term is not, because then there is only one
    // rank, which sends nothing.
    bool rounds = op->wire != TRI_F32 && in_count - op->accumulate > 1;
    if (rounds || table->halves[op->dtype].widen) {
        reduce_in_f32(table, op, in_count, in, out_count, out, count, stream);
        return;
    }
    const reduce_kernels *kernels = &table->kernels[op->dtype][op->reduction];
    TRI_ASSERT(kernels->fold);
    if (in_count == 2 && out_count == 2 && !stream) {
        kernels->both(out[0], out[1], in[0], in[1], count);
        return;
    }
    if (in_count == 2 && out_count == 1 && !stream) {
        kernels->fold(out[0], in[0], in[1], count);
        return;
    }
    _Alignas(64) char block[REDUCE_BLOCK_BYTES];
    size_t width = tri_dtype_bytes(op->dtype), step = REDUCE_BLOCK_BYTES / width;
    for (size_t begin = 0; begin < count; begin += step) {
        size_t n = count - begin < step ? count - begin : step, offset = begin * width;
        const void *sum = at(in[0], offset);
        for (int r = 1; r < in_count; r++) {
            kernels->fold(block, sum, at(in[r], offset), n);
            sum = block;
        }
        for (int o = 0; o < out_count; o++)
            comm_copy((char *)out[o] + offset, sum, n * width, stream);
    }
}

// Compares the exponential functions, the normal distribution, the arc tangent and the remainder of
// `cpu` with the C library's, for special, huge and tiny arguments, on every instruction set; and
// the kernels that use these functions with the reference device `ref`, on scores of such sizes.
#include "device/cpu/functions.h"
#include "device/cpu/simd.h"
#include "support/compare_kernels.h"

#include <trireme/functions.h>

static const float specials[] = {
    0,
    -0.0f,
    (float)INFINITY,
    -(float)INFINITY,
    (float)NAN,
    1e-40f,
    -1e-40f,
    1e15f,
    -1e15f,
    3.4e38f,
    -3.4e38f,
    86.9f,
    87,
    87.4f,
    88,
    88.5f,
    88.722f,
    88.73f,
    89,
    90,
    91,
    104,
    105,
    106,
    -86.9f,
    -87,
    -87.4f,
    -88,
    -88.73f,
    -90,
    -103,
    -104,
    -105,
    -106,
    -1000,
    1000,
    0.5f,
    -0.5f,
    1,
    -1,
    20,
    -20,
    1e-8f,
    -1e-8f,
    2e9f,
    -2e9f,
    1e30f,
    -1e30f,
    1e5f,
    -1e5f,
    0x1.62e430p+6f,
    0x1.62e42ep+6f,
    -126,
    126,
    127.5f,
    -150,
    16777216,
    -16777216.0f,
    2147483648.0f,
    -2147483648.0f,
    3,
    -3,
    7.25f,
    -7.25f,
};
enum { SPECIALS = sizeof specials / sizeof *specials };

typedef struct exp_job {
    const float *x;
    float *y;
} exp_job;

CPU_BODY number_body(void *context, int64_t begin, int64_t end) {
    const exp_job job = *(const exp_job *)context;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) job.y[i] = cpu_exp_scalar(job.x[i]);
}
CPU_RANGES(number)

CPU_BODY cdf_body(void *context, int64_t begin, int64_t end) {
    const exp_job job = *(const exp_job *)context;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) job.y[i] = cpu_normal_cdf_scalar(job.x[i]);
}
CPU_RANGES(cdf)

CPU_BODY atan_body(void *context, int64_t begin, int64_t end) {
    const exp_job job = *(const exp_job *)context;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) job.y[i] = cpu_atan_scalar(job.x[i]);
}
CPU_RANGES(atan)

typedef struct fmod_job {
    const float *a, *b;
    float *y;
} fmod_job;

CPU_BODY remainder_body(void *context, int64_t begin, int64_t end) {
    const fmod_job job = *(const fmod_job *)context;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) job.y[i] = cpu_fmod_scalar(job.a[i], job.b[i]);
}
CPU_RANGES(remainder)

static CPU_AVX512 void exp_vectors(void *context, int64_t begin, int64_t end, int thread) {
    const exp_job *job = context;
    for (int64_t i = begin; i < end; i += 16) {
        __mmask16 inside = cpu_first_lanes(end - i);
        _mm512_mask_storeu_ps(job->y + i, inside,
                              cpu_exp(_mm512_maskz_loadu_ps(inside, job->x + i)));
    }
}

// Checks e^x for `count` numbers x. Instead of results below 1.2e-38, which are subnormal, 0 is
// allowed.
static void check(const char *what, cpu_range range, const float *x, int64_t count) {
    float *y = calloc((size_t)count, sizeof *y);
    range(&(exp_job){x, y}, 0, count, 0);
    for (int64_t i = 0; i < count; i++) {
        double want = (double)expf(x[i]), got = (double)y[i];
        bool same = isnan(want) ? isnan(got) : isinf(want) ? got == want : false;
        if (same || (isfinite(want) && fabs(got - want) <= 3e-7 * want + 1.7e-38)) continue;
        fail_msg("%s: e^%.9g is %.9g, not %.9g", what, (double)x[i], got, want);
    }
    free(y);
}

// Checks the normal distribution, whose far tail a gradient of GELU needs as exactly as its middle.
static void check_cdf(const char *what, cpu_range range, float *x, int64_t count) {
    float *y = calloc((size_t)count, sizeof *y);
    for (int64_t i = 0; i < count; i++) x[i] = -14 + 28 * (float)i / (float)count;
    range(&(exp_job){x, y}, 0, count, 0);
    for (int64_t i = 0; i < count; i++) {
        double want = erfc((double)x[i] * -0.70710678118654752440) / 2, got = (double)y[i];
        if (fabs(got - want) <= 8 * 0x1p-24 * want + 1.7e-38) continue;
        fail_msg("%s: normal_cdf(%.9g) is %.9g, not %.9g", what, (double)x[i], got, want);
    }
    float ends[4] = {-(float)INFINITY, (float)INFINITY, (float)NAN, 0};
    range(&(exp_job){ends, y}, 0, 4, 0);
    assert_true(y[0] == 0 && y[1] == 1 && isnan(y[2]) && y[3] == 0.5f);
    free(y);
}

// Checks the arc tangent.
static void check_atan(const char *what, cpu_range range, const float *x, int64_t count) {
    float *y = calloc((size_t)count, sizeof *y);
    range(&(exp_job){(float *)x, y}, 0, count, 0);
    for (int64_t i = 0; i < count; i++) {
        double want = atan((double)x[i]), got = (double)y[i];
        bool same = isnan(want) ? isnan(got) : fabs(got - want) <= 5 * 0x1p-24 * fabs(want);
        if (!same || (want == 0 && signbit(want) != signbit(got)))
            fail_msg("%s: atan(%.9g) is %.9g, not %.9g", what, (double)x[i], got, want);
    }
    free(y);
}

// Checks the remainder of divisions, of which many quotients are nearly whole, to the last bit.
static void check_fmod(const char *what, cpu_range range, int64_t count) {
    static const float sizes[] = {1, 0x1p-140f, 0x1p99f, 3e38f};
    float *values = malloc(3 * (size_t)count * sizeof *values);
    float *a = values, *b = a + count, *y = b + count;
    for (int64_t i = 0; i < count; i++) {
        b[i] = compare_value() * sizes[i % 4];
        float quotient = floorf(compare_value() * (i % 5 == 0 ? 0x1p28f : 1000));
        a[i] = i % 3 == 0 ? compare_value() * 300 * sizes[i % 4] : b[i] * quotient;
        if (i % 7 == 0) a[i] = nextafterf(a[i], -(float)INFINITY);
    }
    range(&(fmod_job){a, b, y}, 0, count, 0);
    for (int64_t i = 0; i < count; i++) {
        float want = fmodf(a[i], b[i]);
        if (b[i] == 0 || !cpu_fmod_fits(a[i], b[i]) || !memcmp(&want, &y[i], sizeof want)) continue;
        fail_msg("%s: fmod(%.9g, %.9g) is %.9g, not %.9g", what, (double)a[i], (double)b[i],
                 (double)y[i], (double)want);
    }
    free(values);
}

static void test_fmod_fits(void **state) {
    const float infinity = (float)INFINITY;
    assert_true(cpu_fmod_fits(0x1p28f, -1) && cpu_fmod_fits(0, 1e-45f));
    assert_false(cpu_fmod_fits(0x1.000002p28f, 1) || cpu_fmod_fits(1, 0) ||
                 cpu_fmod_fits(infinity, 3e38f) || cpu_fmod_fits(1, infinity) ||
                 cpu_fmod_fits((float)NAN, 1) || cpu_fmod_fits(1, (float)NAN));
}

static void test_tanh_keeps_the_sign_of_0(void **state) {
    assert_true(signbit(cpu_tanh_scalar(-0.0f)) && !signbit(cpu_tanh_scalar(0)));
}

static void test_numbers(void **state) {
    enum { MANY = 100000 };
    float *x = malloc(MANY * sizeof *x);
    for (int i = 0; i < MANY; i++) x[i] = compare_value() * 110;
    const unsigned features[] = {CPU_HAS_AVX512 | CPU_HAS_AVX2, CPU_HAS_AVX2, 0};
    const bool has[] = {__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"),
                        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), true};
    static const char *const names[] = {"AVX-512", "AVX2", "base"};
    for (int i = 0; i < 3; i++) {
        if (!has[i]) continue;
        cpu_device level = {.head.description.features = features[i]};
        check(names[i], number_range(&level), specials, SPECIALS);
        check(names[i], number_range(&level), x, MANY);
        check_cdf(names[i], cdf_range(&level), x, MANY);
        check_atan(names[i], atan_range(&level), specials, SPECIALS);
        check_atan(names[i], atan_range(&level), x, MANY);
        check_fmod(names[i], remainder_range(&level), MANY);
    }
    if (has[0]) {
        check("vectors", exp_vectors, specials, SPECIALS);
        check("vectors", exp_vectors, x, MANY);
    }
    free(x);
}

// Compares attention (its gradient if `grad`) with `ref` where some keys have the score `far`,
// which may be huge, as in a run that diverges. No result may be NaN.
static void compare_attention(float far, bool grad) {
    enum { KEYS = 70, WIDTH = 16 };
    compare_case c = compare_open(2);
    tri_shape x = tri_shape_of(1, KEYS, 1, WIDTH), norms = tri_shape_of(1, 1, KEYS);
    tri_attention_attr attr = {.scale = 1};
    float q[KEYS * WIDTH] = {0}, k[KEYS * WIDTH] = {0}, lse[KEYS];
    for (int i = 0; i < KEYS; i++) {
        q[i * WIDTH] = 1;
        k[i * WIDTH] = i % 3 == 0 ? far : compare_value();
    }
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < KEYS; i++) largest = fmax(largest, (double)k[i * WIDTH]);
    for (int i = 0; i < KEYS; i++) sum += exp((double)k[i * WIDTH] - largest);
    for (int i = 0; i < KEYS; i++) lse[i] = (float)(largest + log(sum));
    void *data[6] = {q, k, NULL, NULL, NULL, lse};
    tri_value in[6];
    for (int i = 0; i < 5; i++) in[i] = compare_input(&c, TRI_F32, x);
    in[5] = compare_input(&c, TRI_F32, norms);
    tri_node_add(c.graph, grad ? &tri_op_attention_grad : &tri_op_attention, in, grad ? 6 : 3,
                 &attr, "attention");
    compare_last_node(&c, data, 1);
    compare_close(&c);
}

// formula: NULL for cross-entropy.
static void compare_scores(const char *formula, float far) {
    enum { ROWS = 3, CLASSES = 100 };
    compare_case c = compare_open(1);
    float x[ROWS * CLASSES];
    for (int i = 0; i < ROWS * CLASSES; i++) x[i] = i % 7 == 3 ? far : compare_value();
    tri_shape shape = tri_shape_of(ROWS, CLASSES);
    bool losses = formula == NULL;
    tri_value in[2] = {compare_input(&c, TRI_F32, shape),
                       losses ? compare_input(&c, TRI_I64, tri_shape_of(ROWS))
                              : compare_input(&c, TRI_F32, shape)};
    if (losses)
        tri_node_add(c.graph, &tri_op_cross_entropy, in, 2, NULL, "scores");
    else
        tri_map_values(c.graph, formula, in, strstr(formula, "->") ? 2 : 1);
    compare_last_node(&c, (void *[]){x, NULL}, 1);
    compare_close(&c);
}

static void test_kernels(void **state) {
    static const float far[] = {-1e15f, -1e4f, -88.5f, 88.5f, 1e4f, 1e15f};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        compare_attention(far[i], false);
        compare_attention(far[i], true);
        compare_scores(NULL, far[i]);
        compare_scores("gate, up -> gate * sigmoid(gate) * up", far[i]);
        compare_scores("x * normal_cdf(x)", far[i]);
        compare_scores("fmod(x, 1.5)", far[i]);
        compare_scores("x % -0.75", far[i]);
        compare_scores("x // 2.5", far[i]);
    }
}

int main(void) {
    const struct CMUnitTest numbers[] = {cmocka_unit_test(test_numbers),
                                         cmocka_unit_test(test_fmod_fits),
                                         cmocka_unit_test(test_tanh_keeps_the_sign_of_0)};
    const struct CMUnitTest kernels[] = {cmocka_unit_test(test_kernels)};
    int failed = cmocka_run_group_tests(numbers, NULL, NULL);
    static const char *const levels[] = {"bf16", "avx512", "avx2", "base"};
    for (int i = 0; i < 4; i++) {
        setenv("TRIREME_CPU_ISA", levels[i], 1);
        printf("TRIREME_CPU_ISA=%s\n", levels[i]);
        failed += cmocka_run_group_tests(kernels, NULL, NULL);
    }
    return failed;
}

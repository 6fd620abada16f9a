// Compares our Winograd convolutions and their gradients with the reference device `ref` at random
// shapes, for AVX-512 and for AVX2. Checks that results that must be zero are exactly zero. Checks
// that results have the same bits on any number of threads and, except for the gradient of the
// weight, in a batch of any size.
#include "support/compare_kernels.h"
#include "support/mapped_product.h"

#include <cmocka.h>

typedef enum task { FORWARD, GRAD_INPUT, GRAD_WEIGHT, TASKS } task;

typedef struct size {
    int64_t n, c, o, height, width, padding;
    int64_t formula; // of mapped_formulas
    bool bias, direct, bf16;
} size;

static const tri_node *add(compare_case *c, const size *s, task what) {
    tri_conv2d_attr attr = {.stride = {1, 1},
                            .padding = {s->padding, s->padding},
                            .dilation = {1, 1},
                            .groups = 1,
                            .direct = s->direct};
    tri_shape x = tri_shape_of(s->n, s->c, s->height, s->width);
    tri_shape y =
        tri_shape_of(s->n, s->o, s->height + 2 * s->padding - 2, s->width + 2 * s->padding - 2);
    tri_shape weight = tri_shape_of(s->o, s->c, 3, 3);
    tri_dtype dtype = s->bf16 ? TRI_BF16 : TRI_F32;
    if (what == FORWARD) {
        tri_value in[] = {compare_input(c, dtype, x), compare_input(c, dtype, weight), {0}};
        if (s->bias) in[2] = compare_input(c, dtype, tri_shape_of(s->o));
        mapped_product(c->graph, &tri_op_conv2d, in, 3, &attr, s->formula);
    } else if (what == GRAD_WEIGHT) {
        tri_conv2d_grad_attr grad = {.conv = attr, .shape = weight, .has_bias = s->bias};
        tri_value in[] = {compare_input(c, dtype, x), compare_input(c, dtype, y)};
        tri_node_add(c->graph, &tri_op_conv2d_grad_weight, in, 2, &grad, "conv");
    } else {
        tri_conv2d_grad_attr grad = {.conv = attr, .shape = x};
        tri_value in[] = {compare_input(c, dtype, y), compare_input(c, dtype, weight)};
        mapped_product(c->graph, &tri_op_conv2d_grad_input, in, 2, &grad, s->formula);
    }
    return &c->graph->nodes[c->graph->node_count - 1];
}

static bool is_winograd(const compare_case *c) {
    const tri_graph *g = c->graph;
    const tri_node *node = &g->nodes[g->node_count - 1];
    const tri_kernel_def *def = tri_device_select(&c->cpu->description, g, node);
    return def->is_winograd && def->is_winograd(g, node);
}

static size random_size(void) {
    size s = {.n = compare_between(1, 4),
              .c = 16 * compare_between(1, 5),
              .o = 16 * compare_between(1, 5),
              .padding = compare_between(0, 1),
              .formula = compare_between(0, 2),
              .bias = compare_between(0, 1)};
    s.height = compare_between(8, 19) + 2 * (1 - s.padding);
    s.width = compare_between(8, 19) + 2 * (1 - s.padding);
    return s;
}

// BF16 results may be neighbours, 2^-7 of a number apart; the gradient of a weight is F32.
static void compare_random_shapes(bool bf16, int rounds) {
    for (int i = 0; i < rounds; i++) {
        compare_seed = (uint64_t)i;
        size s = random_size();
        s.bf16 = bf16;
        for (task what = FORWARD; what < TASKS; what++) {
            compare_case c = compare_open(1 + i % 3);
            c.tolerance = bf16 && what != GRAD_WEIGHT ? 8e-3 : 5e-6;
            add(&c, &s, what);
            compare_last_node(&c, NULL, 1);
            assert_true(is_winograd(&c));
            compare_close(&c);
        }
    }
}
static void test_random_shapes(void **state) { compare_random_shapes(false, 60); }
static void test_bf16(void **state) { compare_random_shapes(true, 30); }

// Runs a node on `threads` threads with the given inputs; the caller frees the result.
static float *result(const size *s, task what, int threads, void *const *in) {
    compare_case c = compare_open(threads);
    const tri_node *node = add(&c, s, what);
    void *out[TRI_MAX_OUTPUTS], *updated[TRI_MAX_INPUTS] = {0};
    compare_run(c.cpu, &c, node, in, out, updated);
    assert_true(is_winograd(&c));
    for (int i = 0; i < node->input_count; i++) free(updated[i]);
    for (int i = 1; i < node->output_count; i++) free(out[i]);
    compare_close(&c);
    return out[0];
}

static float *numbers(int64_t count) {
    float *values = compare_alloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = compare_value();
    return values;
}

// The first image gets the same bits whether one thread computes it alone or together with other
// images, or several threads do.
static void test_same_bits(void **state) {
    for (int i = 0; i < 20; i++) {
        compare_seed = (uint64_t)i;
        size several = random_size(), alone = several;
        several.n = 5;
        alone.n = 1;
        int64_t x = several.c * several.height * several.width;
        int64_t height = several.height + 2 * several.padding - 2;
        int64_t y = several.o * height * (several.width + 2 * several.padding - 2);
        float *weight = numbers(several.o * several.c * 9), *bias = numbers(several.o);
        for (task what = FORWARD; what < GRAD_WEIGHT; what++) {
            float *from = numbers(5 * (what == FORWARD ? x : y));
            int64_t count = what == FORWARD ? y : x;
            void *in[TRI_MAX_INPUTS] = {from, weight, bias};
            float *wanted = result(&several, what, 1, in), *first = result(&alone, what, 1, in);
            assert_memory_equal(first, wanted, (size_t)count * sizeof *first);
            for (int threads = 2; threads <= 4; threads++) {
                float *found = result(&several, what, threads, in);
                assert_memory_equal(found, wanted, (size_t)(5 * count) * sizeof *found);
                free(found);
            }
            free(wanted);
            free(first);
            free(from);
        }
        free(weight);
        free(bias);
    }
}

static void test_weight_same_bits(void **state) {
    for (int i = 0; i < 20; i++) {
        compare_seed = (uint64_t)i;
        size s = random_size();
        // The kernel sums over groups of tiles (4 × 4 pixels of dy) in blocks of 48 tiles.
        // With 5 samples, each group is at most one block; with 35, some groups have several.
        s.n = 5 + 30 * (i % 2);
        int64_t x = s.c * s.height * s.width;
        int64_t y = s.o * (s.height + 2 * s.padding - 2) * (s.width + 2 * s.padding - 2);
        void *in[TRI_MAX_INPUTS] = {numbers(s.n * x), numbers(s.n * y)};
        float *wanted = result(&s, GRAD_WEIGHT, 1, in);
        for (int threads = 2; threads <= 4; threads++) {
            float *found = result(&s, GRAD_WEIGHT, threads, in);
            assert_memory_equal(found, wanted, (size_t)(s.o * s.c * 9) * sizeof *found);
            free(found);
        }
        free(wanted);
        free(in[0]);
        free(in[1]);
    }
}

// If a channel of x or dy is all zeros, the gradient of its weights is 0 and not rounding noise.
static void test_weight_zeros(void **state) {
    size s = {.n = 3, .c = 32, .o = 48, .height = 11, .width = 13, .padding = 1};
    const int64_t pixels = 11 * 13;
    float *x = numbers(s.n * s.c * pixels), *dy = numbers(s.n * s.o * pixels);
    for (int64_t i = 0; i < s.n * s.c * pixels; i++)
        if (i / pixels % s.c == 7) x[i] = 0;
    for (int64_t i = 0; i < s.n * s.o * pixels; i++)
        if (i / pixels % s.o == 33) dy[i] = 0;
    float *out = result(&s, GRAD_WEIGHT, 2, (void *[]){x, dy});
    int64_t zeros = 0;
    for (int64_t i = 0; i < s.o * s.c * 9; i++) {
        if (i / 9 % s.c == 7 || i / 9 / s.c == 33) assert_true(out[i] == 0);
        zeros += out[i] == 0;
    }
    assert_int_equal(zeros, 9 * (s.c + s.o - 1));
    free(out);
    free(x);
    free(dy);
}

// A result is exactly zero if one factor of each of its products is zero: all results of an image
// of zeros, and those of a channel whose weights are zeros.
static void test_zeros(void **state) {
    size s = {.n = 2, .c = 32, .o = 48, .height = 11, .width = 13, .padding = 1};
    int64_t x = s.c * 11 * 13, y = s.o * 11 * 13, taps = s.o * s.c * 9;
    float *weight = numbers(taps);
    for (int64_t i = 0; i < s.c * 9; i++) weight[i] = 0; // the weights of output channel 0
    for (int64_t i = 0; i < taps; i++)
        if (i / 9 % s.c == 5) weight[i] = 0; // the weights of input channel 5
    for (task what = FORWARD; what < GRAD_WEIGHT; what++) {
        int64_t from = what == FORWARD ? x : y, to = what == FORWARD ? y : x;
        float *in = numbers(2 * from);
        memset(in + from, 0, (size_t)from * sizeof *in); // the second image has only zeros
        float *out = result(&s, what, 2, (void *[]){in, weight, NULL});
        int64_t none = what == FORWARD ? 0 : 5, zeros = 0;
        for (int64_t i = 0; i < 2 * to; i++) {
            bool zero = i >= to || i / (11 * 13) == none;
            if (zero) assert_true(out[i] == 0);
            zeros += out[i] == 0;
        }
        assert_int_equal(zeros, to + 11 * 13);
        free(out);
        free(in);
    }
    free(weight);
}

static const char *chosen(const size *s, task what) {
    compare_case c = compare_open(1);
    const char *name = tri_device_select(&c.cpu->description, c.graph, add(&c, s, what))->name;
    compare_close(&c);
    return name;
}

static void test_rule(void **state) {
    size s = {.n = 1, .c = 16, .o = 32, .height = 8, .width = 10, .padding = 1};
    for (task what = FORWARD; what < TASKS; what++) {
        assert_string_equal(chosen(&s, what), "winograd");
        size direct = s, small = s, odd = s, padded = s;
        direct.direct = true;
        small.height = 7;
        odd.c = 24;
        padded.padding = 2;
        assert_string_not_equal(chosen(&direct, what), "winograd");
        assert_string_not_equal(chosen(&small, what), "winograd");
        assert_string_not_equal(chosen(&odd, what), "winograd");
        assert_string_not_equal(chosen(&padded, what), "winograd");
    }
}

static void test_base(void **state) {
    size s = {.n = 1, .c = 16, .o = 32, .height = 8, .width = 10, .padding = 1};
    setenv("TRIREME_CPU_ISA", "base", 1);
    for (task what = FORWARD; what < TASKS; what++)
        assert_string_not_equal(chosen(&s, what), "winograd");
}

static int run_all(const char *isa) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_shapes),    cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_weight_same_bits), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_weight_zeros),     cmocka_unit_test(test_rule),
    };
    setenv("TRIREME_CPU_ISA", isa, 1);
    printf("TRIREME_CPU_ISA=%s\n", isa);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest base[] = {cmocka_unit_test(test_base)};
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        printf("this CPU has no AVX2, and nothing else computes Winograd's convolutions\n");
        return 77;
    }
    int failed = run_all("avx2");
    if (__builtin_cpu_supports("avx512bw")) failed += run_all("avx512");
    const struct CMUnitTest half[] = {cmocka_unit_test(test_bf16)};
    setenv("TRIREME_CPU_ISA", "bf16", 1); // without AMX, which multiplies BF16 faster
    if (__builtin_cpu_supports("avx512bf16")) failed += cmocka_run_group_tests(half, NULL, NULL);
    return failed + cmocka_run_group_tests(base, NULL, NULL);
}

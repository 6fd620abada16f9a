// Checks that in a deterministic run every kernel gives the same bits on any number of threads, for
// every op at random shapes. An op_family (tests/support/op_families.c) builds random graphs of
// related ops.
#include "device/cpu/cpu.h"
#include "support/op_families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 6 };

// A convolution with so many channels that oneDNN would compute the gradient of its weight by its
// own Winograd convolution, if the run were not deterministic.
static void build_wide(op_case *c) {
    tri_conv2d_grad_attr a = {.conv = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1},
                              .shape = tri_shape_of(112, 112, 3, 3)};
    int64_t samples = op_draw(c, 2, 5);
    tri_value x = op_numbers(c, tri_shape_of(samples, 112, 10, 10), -1, 1);
    tri_value dy = op_numbers(c, tri_shape_of(samples, 112, 8, 8), -1, 1);
    op_add(c, &tri_op_conv2d_grad_weight, (tri_value[]){x, dy}, &a);
}
static const op_family wide = {.name = "wide convolution", .build = build_wide};

static int failures; // how many nodes had results that differed; the test fails at its end

static void open_side(op_side *s, const op_family *family, int threads, tri_dtype dtype,
                      uint64_t seed) {
    op_side_open(
        s, family, &tri_device_cpu,
        (op_side_options){.threads = threads, .dtype = dtype, .seed = seed, .deterministic = true});
    op_run_ok(s->session);
}

// Compares every value that the graph computes on so many threads with that on one thread.
static void compare(const op_family *family, const op_side *one, int threads) {
    op_side many;
    open_side(&many, family, threads, one->c.dtype, one->c.seed);
    const tri_graph *g = one->c.graph;
    for (int i = 0; i < g->node_count; i++) {
        for (int k = 0; k < g->nodes[i].output_count; k++) {
            tri_value value = g->nodes[i].outputs[k];
            size_t bytes = (size_t)op_count(one->session, value) *
                           tri_dtype_bytes(tri_value_get(g, value)->dtype);
            if (memcmp(op_host(one->session, value), op_host(many.session, value), bytes) == 0)
                continue;
            failures++;
            print_error("%s, %s, seed %llu: output %d of %s (kernel %s) differs on %d threads\n",
                        family->name, tri_dtype_name(one->c.dtype), (unsigned long long)one->c.seed,
                        k, g->nodes[i].op->name,
                        tri_device_select(&one->device->description, g, &g->nodes[i])->name,
                        threads);
        }
    }
    op_side_close(&many);
}

static void compare_rounds(const op_family *family, tri_dtype dtype, int rounds) {
    for (int round = 0; round < rounds; round++) {
        op_side one;
        open_side(&one, family, 1, dtype, 100 * (uint64_t)dtype + (uint64_t)round);
        for (int threads = 2; threads <= 3; threads++) compare(family, &one, threads);
        op_side_close(&one);
    }
}

static void test_same_bits(void **state) {
    for (const op_family *family = op_families; family->name; family++) {
        if (family->any_layout) continue; // only the device `ref` has these layouts
        // Convolutions have most kernels, among which shapes and attributes choose.
        int rounds = strncmp(family->name, "conv", 4) == 0 ? 6 * ROUNDS : ROUNDS;
        compare_rounds(family, TRI_F32, rounds);
        compare_rounds(family, TRI_BF16, rounds);
        compare_rounds(family, TRI_F16, 2);
    }
    compare_rounds(&wide, TRI_F32, 2);
    assert_int_equal(failures, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Compares `cpu` with the reference device `ref`: every op and a small network at random shapes, on
// one thread and on all. An op_family (tests/support/op_families.c) builds random graphs of related
// ops.
#include "device/cpu/cpu.h"
#include "ops/ops.h"
#include "support/op_compare.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/functions.h>

#include <cmocka.h>

static void test_one_thread(void **state) { op_compare_all(&tri_device_cpu, 1, TRI_F32, 2000, 24); }

static void test_halves(void **state) {
    op_compare_all(&tri_device_cpu, 1, TRI_BF16, 4000, 16);
    op_compare_all(&tri_device_cpu, 0, TRI_BF16, 5000, 8);
    op_compare_all(&tri_device_cpu, 1, TRI_F16, 6000, 4);
}

static void compare_attention(const char *isa, int threads, uint64_t seed, int rounds) {
    const op_family *family = op_families;
    while (family->name && strcmp(family->name, "attention") != 0) family++;
    assert_non_null(family->name);
    setenv("TRIREME_CPU_ISA", isa, 1);
    op_compare(family, &tri_device_cpu, threads, TRI_BF16, seed, rounds);
    unsetenv("TRIREME_CPU_ISA");
}

// Tests the kernels for attention of BF16 on CPUs with AMX, and on CPUs with AVX512_BF16 but
// without AMX, with so many queries and keys that both are divided into several blocks.
static void test_attention(void **state) {
    compare_attention("amx", 1, 100, 40);
    compare_attention("amx", 3, 200, 20);
    compare_attention("bf16", 2, 300, 20);
}

// 0 threads means as many as OMP_NUM_THREADS says or, if it is not set, one for each core.
static void test_all_threads(void **state) {
    op_compare_all(&tri_device_cpu, 0, TRI_F32, 3000, 12);
}

// Ops that are in no op_family: copy_to, whose kernel at most copies, and the op that
// looks for numbers that are not finite.
static const tri_op *const alone[] = {&tri_op_copy_to, &tri_op_first_not_finite};

static bool is_alone(const tri_op *op) {
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i] == op) return true;
    return false;
}

// Sets drawn[i] if op tri_ops[i] is in any of the first 200 random graphs that `family` builds.
static void mark_ops(const op_family *family, bool *drawn) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        op_case c = {.graph = op_graph_open(TRI_F32), .dtype = TRI_F32, .seed = seed};
        family->build(&c);
        for (int n = 0; n < c.graph->node_count; n++)
            for (int i = 0; i < tri_op_count; i++)
                if (c.graph->nodes[n].op == tri_ops[i]) drawn[i] = true;
        op_graph_close(c.graph);
    }
}

static void test_every_op_has_a_family(void **state) {
    bool *drawn = calloc((size_t)tri_op_count, sizeof *drawn);
    for (const op_family *family = op_families; family->name; family++) mark_ops(family, drawn);
    int missing = 0;
    for (int i = 0; i < tri_op_count; i++) {
        if (drawn[i] != is_alone(tri_ops[i]) || (tri_ops[i]->flags & TRI_OP_COLLECTIVE)) continue;
        missing++;
        print_error(drawn[i] ? "%s is in a family: take it out of `alone`\n"
                             : "%s is in no row of op_families (tests/support/op_families.c)\n",
                    tri_ops[i]->name);
    }
    free(drawn);
    assert_int_equal(missing, 0);
}

// Matrices of several tiles that are transposed while a formula is computed, beside an input that
// is not.
static void build_transposed(op_case *c) {
    tri_graph *g = c->graph;
    int64_t rows = op_draw(c, 1, 150), columns = op_draw(c, 1, 150);
    tri_value x = op_numbers(c, tri_shape_of(op_draw(c, 1, 3), columns, rows), -1, 1);
    tri_value y = tri_transpose(g, x, 1, 2);
    tri_value b = op_numbers(c, tri_value_shape(g, y), -1, 1);
    tri_map(g, "a, b -> a * b + 1", y, b);
}

static void test_transposed(void **state) {
    const op_family family = {.name = "transposed", .build = build_transposed, .tolerance = 1e-6};
    op_compare(&family, &tri_device_cpu, 1, TRI_F32, 8000, 60);
    op_compare(&family, &tri_device_cpu, 3, TRI_F32, 8100, 30);
    op_compare(&family, &tri_device_cpu, 1, TRI_BF16, 8200, 10);
}

static void test_bad_labels(void **state) { op_compare_bad_labels(&tri_device_cpu); }

// An output that is so large that it is written past the caches, with blocks at both ends that are
// not whole. All numbers are exact.
static void test_large_map(void **state) {
    (void)state;
    static const char *const isas[] = {"avx512", "avx2", "base"};
    const int64_t count = (5 << 20) + 37;
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        setenv("TRIREME_CPU_ISA", isas[isa], 1);
        tri_device *device = op_device_open(&tri_device_cpu, 3);
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value in[2] = {tri_input(g, "a", TRI_F32, tri_shape_of(count)),
                           tri_input(g, "b", TRI_F32, tri_shape_of(count))};
        tri_map_attr attr = {0};
        assert_int_equal(
            tri_formula_parse("a, b -> max(a * 2 - b, b) * (b - a) + 3", NULL, &attr.formula),
            TRI_OK);
        tri_value y = tri_node_add(g, &tri_op_map, in, 2, &attr, "");
        op_session *s = op_session_open(g, device, false);
        float *a = op_host(s, in[0]), *b = op_host(s, in[1]), *out = op_host(s, y);
        for (int64_t i = 0; i < count; i++) {
            a[i] = (float)(i % 1009);
            b[i] = (float)(i % 457);
        }
        op_run_ok(s);
        for (int64_t i = 0; i < count; i++) {
            float most = a[i] * 2 - b[i] > b[i] ? a[i] * 2 - b[i] : b[i];
            if (out[i] != most * (b[i] - a[i]) + 3)
                fail_msg("%s, element %lld: %g", isas[isa], (long long)i, (double)out[i]);
        }
        op_session_close(s);
        op_graph_close(g);
        device->backend->close(device);
    }
    unsetenv("TRIREME_CPU_ISA");
}

// Sines and cosines of small, large and huge angles are within 2 units in the last place.
static void test_sines(void **state) {
    (void)state;
    static const char *const isas[] = {"avx512", "avx2", "base"};
    enum { COUNT = 64 * 300 };
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        setenv("TRIREME_CPU_ISA", isas[isa], 1);
        tri_device *device = op_device_open(&tri_device_cpu, 1);
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(COUNT));
        tri_value y[] = {tri_sin(g, x), tri_cos(g, x)};
        op_session *s = op_session_open(g, device, false);
        for (int i = 0; i < COUNT; i++)
            op_set(s, x, i, i == 0 ? -0.0 : (i % 2 ? 1 : -1) * pow(1.006, i - 9000));
        op_run_ok(s);
        assert_true(signbit(op_get(s, y[0], 0)));
        for (int i = 0; i < 2 * COUNT; i++) {
            double angle = op_get(s, x, i / 2), got = op_get(s, y[i % 2], i / 2);
            double wanted = i % 2 ? cos(angle) : sin(angle);
            if (!isfinite(angle) ? !isnan(got)
                                 : fabs(got - wanted) > 0x1p-22 * fabs(wanted) + 1e-44)
                fail_msg("%s, angle %.9g: %.9g, not %.9g", isas[isa], angle, got, wanted);
        }
        op_session_close(s);
        op_graph_close(g);
        device->backend->close(device);
    }
    unsetenv("TRIREME_CPU_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread), cmocka_unit_test(test_all_threads),
        cmocka_unit_test(test_large_map),  cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_sines),      cmocka_unit_test(test_halves),
        cmocka_unit_test(test_attention),  cmocka_unit_test(test_every_op_has_a_family),
        cmocka_unit_test(test_bad_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

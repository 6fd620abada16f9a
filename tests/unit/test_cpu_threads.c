// Checks that the kernels of transformers give the same bits on any number of threads. An op_family
// (tests/support/op_families.c) builds random graphs of related ops.
#include "device/cpu/cpu.h"
#include "support/op_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 8 };

typedef struct side {
    op_case c;
    tri_device *device;
    op_session *session;
} side;

static side open_side(const op_family *family, int threads, tri_dtype dtype, uint64_t seed) {
    side s = {.c = {.graph = op_graph_open(TRI_F32), .dtype = dtype, .seed = seed}};
    family->build(&s.c);
    const char *message = "";
    if (tri_graph_status(s.c.graph, &message) != TRI_OK) fail_msg("%s: %s", family->name, message);
    s.device = op_device_open(&tri_device_cpu, threads);
    s.session = op_session_open(s.c.graph, s.device, false);
    op_sources_fill(s.session, &s.c);
    op_run_ok(s.session);
    return s;
}

static void close_side(side *s) {
    op_session_close(s->session);
    s->device->backend->close(s->device);
    op_graph_close(s->c.graph);
}

static void compare(const op_family *family, int threads, tri_dtype dtype, uint64_t seed) {
    side one = open_side(family, 1, dtype, seed), many = open_side(family, threads, dtype, seed);
    const tri_graph *g = one.c.graph;
    for (int i = 0; i < g->node_count; i++) {
        for (int k = 0; k < g->nodes[i].output_count; k++) {
            tri_value value = g->nodes[i].outputs[k];
            size_t bytes = (size_t)op_count(one.session, value) *
                           tri_dtype_bytes(tri_value_get(g, value)->dtype);
            if (memcmp(op_host(one.session, value), op_host(many.session, value), bytes) != 0)
                fail_msg("%s, seed %llu: output %d of %s differs on %d threads", family->name,
                         (unsigned long long)seed, k, g->nodes[i].op->name, threads);
        }
    }
    close_side(&one);
    close_side(&many);
}

static void test_same_bits(void **state) {
    static const char *const names[] = {"linear on many rows", "attention",  "norm",
                                        "embedding",           "gated",      "rotary",
                                        "class losses",        "elementwise"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        const op_family *family = op_families;
        while (family->name && strcmp(family->name, names[n]) != 0) family++;
        assert_non_null(family->name);
        for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
            compare(family, 2, TRI_F32, seed);
            compare(family, 3, TRI_F32, 100 + seed);
            compare(family, 3, TRI_BF16, 200 + seed);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Compares where a device and the reference device `ref` have results that are not finite, if one
// input has a number that is not. op_compare.h explains families and cases.
#include "support/op_compare.h"

#include "base/philox.h"
#include "device/ref/ref.h"
#include "tensor/half.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double planted[] = {NAN, INFINITY, -INFINITY};
enum { PLANTED_ELEMENTS = 2 };

typedef enum number_kind { FINITE, PLUS_INFINITY, MINUS_INFINITY, NOT_A_NUMBER } number_kind;

static number_kind kind_of(double number) {
    if (isnan(number)) return NOT_A_NUMBER;
    if (isfinite(number)) return FINITE;
    return number > 0 ? PLUS_INFINITY : MINUS_INFINITY;
}

// A case on the device and on `ref`.
typedef struct two_sides {
    const op_family *family;
    op_side device, ref;
    op_not_finite rule;
} two_sides;

static bool uses_winograd(const op_side *s) {
    const tri_graph *g = s->c.graph;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        const tri_kernel_def *def = tri_device_select(&s->device->description, g, node);
        if (def && def->is_winograd && def->is_winograd(g, node)) return true;
    }
    return false;
}

static bool is_loose(const two_sides *t, double number) {
    return t->rule == OP_NOT_FINITE_SPREADS || (t->rule == OP_INFINITY_SPREADS && !isnan(number));
}

static bool agree(const two_sides *t, double number, double got, double want) {
    number_kind device = kind_of(got), ref = kind_of(want);
    if (!is_loose(t, number) || (isnan(number) && ref == NOT_A_NUMBER)) return device == ref;
    return ref == FINITE || device != FINITE;
}

static void print_difference(const two_sides *t, tri_value source, double number, tri_value value,
                             int64_t i, double got, double want) {
    const tri_graph *g = t->device.c.graph;
    const tri_node *node = tri_value_node(t->ref.c.graph, value);
    const tri_node *on_device = tri_value_node(g, value);
    const tri_kernel_def *def =
        on_device ? tri_device_select(&t->device.device->description, g, on_device) : NULL;
    fprintf(stderr,
            "FAILED: %s, %s, seed %" PRIu64 ": with %g in %%%" PRIu32 ", element %" PRId64
            " of %%%" PRIu32 " of %s (kernel %s) is %g on the device and %g on ref\n",
            t->family->name, tri_dtype_name(t->ref.c.dtype), t->ref.c.seed, number, source.id, i,
            value.id, node ? node->op->name : "a source", def ? def->name : "none", got, want);
}

// Returns whether the sides agree about one value, and prints the first element about which they
// do not.
static bool compare_value(const two_sides *t, tri_value source, double number, tri_value value) {
    tri_dtype dtype = tri_value_get(t->ref.c.graph, value)->dtype;
    int64_t count = op_count(t->ref.session, value);
    if (!tri_dtype_is_float(dtype)) {
        size_t bytes = (size_t)count * tri_dtype_bytes(dtype);
        if (is_loose(t, number) ||
            memcmp(op_host(t->device.session, value), op_host(t->ref.session, value), bytes) == 0)
            return true;
        print_difference(t, source, number, value, 0, 0, 0);
        return false;
    }
    double got[OP_READ_COUNT], want[OP_READ_COUNT];
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i % OP_READ_COUNT, rest = count - i;
        if (k == 0) {
            op_read(t->device.session, value, i, rest < OP_READ_COUNT ? rest : OP_READ_COUNT, got);
            op_read(t->ref.session, value, i, rest < OP_READ_COUNT ? rest : OP_READ_COUNT, want);
        }
        if ((isfinite(got[k]) && isfinite(want[k])) || agree(t, number, got[k], want[k])) continue;
        print_difference(t, source, number, value, i, got[k], want[k]);
        return false;
    }
    return true;
}

static void plant(op_side *s, int source, double number) {
    tri_value value = s->c.sources[source].value;
    op_restore_sources(s->session);
    for (int i = 0; i < PLANTED_ELEMENTS; i++) {
        uint32_t word = tri_philox_at(s->c.seed, 5, (uint32_t)source, (uint64_t)i);
        op_set(s->session, value, word % op_count(s->session, value), number);
    }
    op_run_ok(s->session);
}

// Returns whether the sides agree with `number` in some elements of a source.
static bool compare_planted(two_sides *t, int source, double number) {
    tri_value value = t->ref.c.sources[source].value;
    int common = t->ref.built < t->device.built ? t->ref.built : t->device.built;
    plant(&t->device, source, number);
    plant(&t->ref, source, number);
    for (uint32_t id = 1; id < (uint32_t)common; id++) {
        tri_value result = {id};
        if (tri_value_get(t->ref.c.graph, result)->kind == TRI_VALUE_NONE) continue;
        if (!compare_value(t, value, number, result)) return false;
    }
    for (int i = 0; i < t->ref.c.graph->parameter_count; i++) {
        tri_value gradient = tri_gradient_of(t->ref.c.graph, i);
        // The layout pass may have added a reorder behind the gradient, on one side only.
        if (tri_value_is(gradient) && gradient.id >= (uint32_t)common &&
            gradient.id == tri_gradient_of(t->device.c.graph, i).id &&
            !compare_value(t, value, number, gradient))
            return false;
    }
    return true;
}

// Returns how many sources of a case made device and `ref` differ.
static int compare_case(const op_family *family, const tri_device_backend *backend, tri_dtype dtype,
                        uint64_t seed) {
    two_sides t = {.family = family};
    int failed = 0;
    op_side_options options = {.threads = 1, .dtype = dtype, .seed = seed};
    op_side_open(&t.device, family, backend, options);
    op_side_open(&t.ref, family, &tri_device_ref, options);
    op_keep_sources(t.device.session);
    op_keep_sources(t.ref.session);
    t.rule = uses_winograd(&t.device) ? OP_NOT_FINITE_SPREADS : family->not_finite;
    for (int i = 0; i < t.ref.c.source_count; i++) {
        const op_source *s = &t.ref.c.sources[i];
        if (s->kind != OP_SOURCE_NUMBERS || op_count(t.ref.session, s->value) == 0) continue;
        // One of the infinities, by turns; averages of squares, for example, are never negative.
        int infinity = s->low < 0 && (seed + (uint64_t)i) % 2 == 1 ? 2 : 1;
        failed += !compare_planted(&t, i, planted[0]);
        failed += !compare_planted(&t, i, planted[infinity]);
    }
    op_side_close(&t.device);
    op_side_close(&t.ref);
    return failed;
}

void op_compare_not_finite(const tri_device_backend *backend, tri_dtype dtype, uint64_t seed,
                           int rounds) {
    int failed = 0;
    for (const op_family *family = op_families; family->name; family++)
        for (int round = 0; round < rounds; round++)
            if (!family->any_layout && family->not_finite != OP_NOT_FINITE_ANYWHERE)
                failed += compare_case(family, backend, dtype, seed + (uint64_t)round);
    if (failed) fail_msg("%d times a device and ref differ: see above", failed);
}

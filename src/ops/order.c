// Defines the ops that order elements along one axis: argmax finds the first of the largest, sort
// sorts, or finds the first few of what is sorted.
#include "ops/rules.h"

static tri_status argmax_shape(const void *attr, tri_op_signature *s) {
    const tri_argmax_attr *a = attr;
    TRI_TRY(ops_want_number("argmax", "x", s->in_type[0]));
    TRI_TRY(ops_want_axis("argmax", a->axis, &s->in[0]));
    s->out[0] = s->in[0];
    s->out[0].dims[a->axis] = 1;
    s->out_type[0] = TRI_I64;
    return TRI_OK;
}

static tri_status sort_shape(const void *attr, tri_op_signature *s) {
    const tri_sort_attr *a = attr;
    TRI_TRY(ops_want_number("sort", "x", s->in_type[0]));
    TRI_TRY(ops_want_axis("sort", a->axis, &s->in[0]));
    int64_t size = s->in[0].dims[a->axis];
    if (a->count < 0 || a->count > size || size > INT32_MAX)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "sort: there are no first %" PRId64 " of the %" PRId64
                        " elements of axis %" PRId64,
                        a->count, size, a->axis);
    ops_like_first(s);
    s->out[0].dims[a->axis] = a->count;
    s->out[1] = s->out[0];
    s->out_type[1] = TRI_I64;
    return TRI_OK;
}

static void sort_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                          const bool *wanted, tri_value *in_grads) {
    tri_scatter_attr back = {.kind = TRI_SCATTER_ADD,
                             .axis = ((const tri_sort_attr *)node->attr)->axis,
                             .shape = tri_value_shape(graph, node->inputs[0])};
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] =
        ops_node(graph, node, &tri_op_scatter, &back, node->outputs[1], out_grads[0], none, none);
}

static tri_cost argmax_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 1);
}

static tri_cost sort_cost(const void *attr, const tri_op_signature *s) {
    double rounds = 1;
    for (int64_t n = s->in[0].dims[((const tri_sort_attr *)attr)->axis]; n > 1; n /= 2) rounds++;
    return ops_cost_per_input(s, 2 * rounds);
}

static const tri_attr_field argmax_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_argmax_attr, axis),
    OPS_FIELD(TRI_ATTR_BOOL, tri_argmax_attr, minimum),
    {0},
};

static const tri_attr_field sort_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_sort_attr, axis),
    OPS_FIELD(TRI_ATTR_INT, tri_sort_attr, count),
    OPS_FIELD(TRI_ATTR_BOOL, tri_sort_attr, descending),
    {0},
};

const tri_op tri_op_argmax = {
    .name = "argmax",
    .doc = "x -> index I64: along an axis, which keeps the size 1, the number of the first of the "
           "largest elements or, with `minimum`, of the smallest; NaN is both",
    .input_count = 1,
    .output_count = 1,
    .attr_bytes = sizeof(tri_argmax_attr),
    .attr_fields = argmax_fields,
    .shape = argmax_shape,
    .cost = argmax_cost,
};

const tri_op tri_op_sort = {
    .name = "sort",
    .doc = "x -> y, index I64: along an axis the first `count` elements in their order, and which "
           "of x they are; equal ones stay in order, and NaN counts as the largest",
    .input_count = 1,
    .output_count = 2,
    .attr_bytes = sizeof(tri_sort_attr),
    .attr_fields = sort_fields,
    .shape = sort_shape,
    .gradient = sort_gradient,
    .cost = sort_cost,
};

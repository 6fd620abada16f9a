// Defines the op that joins tensors along one axis, and the op that takes the gradient of one of
// them out of the joined gradient: their shape rules, gradient rule and cost.
#include "ops/rules.h"

static tri_status concat_shape(const void *attr, tri_op_signature *s) {
    const tri_concat_attr *a = attr;
    int64_t sum = 0;
    char x_text[160], y_text[160];
    TRI_TRY(ops_want_types("concat", s, 1, s->input_count, s->in_type[0]));
    if (a->dim < 0 || a->dim >= s->in[0].rank)
        return TRI_FAIL(TRI_BAD_INPUT, "concat: input 0 %s has no axis %" PRId64,
                        tri_shape_text(&s->in[0], x_text, sizeof x_text), a->dim);
    for (int i = 0; i < s->input_count; i++) {
        if (!s->present[i]) continue;
        tri_shape wanted = s->in[0];
        if (s->in[i].rank == wanted.rank) wanted.dims[a->dim] = s->in[i].dims[a->dim];
        if (!tri_shape_equal(&wanted, &s->in[i]))
            return TRI_FAIL(
                TRI_BAD_INPUT,
                "concat: input %d %s differs from input 0 %s in more than axis %" PRId64, i,
                tri_shape_text(&s->in[i], y_text, sizeof y_text),
                tri_shape_text(&s->in[0], x_text, sizeof x_text), a->dim);
        if (__builtin_add_overflow(sum, s->in[i].dims[a->dim], &sum))
            return TRI_FAIL(TRI_BAD_INPUT, "concat: the result has too many elements");
    }
    ops_like_first(s);
    s->out[0].dims[a->dim] = sum;
    return TRI_OK;
}

static tri_status concat_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_concat_grad_attr *a = attr;
    char text[160];
    TRI_TRY(ops_want_float("concat_grad", "dy", s->in_type[0]));
    const tri_shape *dy = &s->in[0];
    if (a->dim < 0 || a->dim >= dy->rank || a->first < 0 || a->size < 0 ||
        a->first > dy->dims[a->dim] - a->size)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "concat_grad: dy %s has no elements %" PRId64 " to %" PRId64 " along axis %" PRId64,
            tri_shape_text(dy, text, sizeof text), a->first, a->first + a->size - 1, a->dim);
    ops_like_first(s);
    s->out[0].dims[a->dim] = a->size;
    return TRI_OK;
}

static void concat_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_concat_attr *a = node->attr;
    tri_concat_grad_attr grad = {.dim = a->dim};
    tri_value none = {0};
    if (!tri_value_is(out_grads[0])) return;
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        grad.size = tri_value_shape(graph, node->inputs[i]).dims[a->dim];
        if (wanted[i])
            in_grads[i] =
                ops_node(graph, node, &tri_op_concat_grad, &grad, out_grads[0], none, none, none);
        grad.first += grad.size;
    }
}

static tri_cost no_cost(const void *attr, const tri_op_signature *s) { return (tri_cost){0}; }

static const tri_attr_field concat_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_concat_attr, dim),
    {0},
};

static const tri_attr_field concat_grad_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_concat_grad_attr, dim),
    OPS_FIELD(TRI_ATTR_INT, tri_concat_grad_attr, first),
    OPS_FIELD(TRI_ATTR_INT, tri_concat_grad_attr, size),
    {0},
};

static bool concat_slice(int input, int dim, const tri_op_signature *full, void *attr,
                         tri_op_slices *slices) {
    return dim != ((const tri_concat_attr *)attr)->dim;
}

const tri_op tri_op_concat = {
    .name = "concat",
    .doc = "a, b?, ... (up to 8) -> y: one after the other along axis dim; their other axes agree",
    .input_count = TRI_MAX_INPUTS,
    .optional_inputs = TRI_MAX_INPUTS - 1,
    .output_count = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = TRI_MAX_INPUTS,
    .axes = TRI_AXES_ANY,
    .slice = concat_slice,
    .attr_bytes = sizeof(tri_concat_attr),
    .attr_fields = concat_fields,
    .shape = concat_shape,
    .gradient = concat_gradient,
    .cost = no_cost,
};

const tri_op tri_op_concat_grad = {
    .name = "concat_grad",
    .doc = "dy -> dx: the `size` elements from `first` on along axis dim",
    .input_count = 1,
    .output_count = 1,
    .attr_bytes = sizeof(tri_concat_grad_attr),
    .attr_fields = concat_grad_fields,
    .shape = concat_grad_shape,
    .cost = no_cost,
};

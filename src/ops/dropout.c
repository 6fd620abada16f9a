// Defines the op dropout: its shape rule and gradient rule. The mask is not stored, because the
// backward pass can compute it again: it depends only on the layer's key, the number of the step,
// the sample's number in the step, and the element's number in the sample. The input `position`
// has the step and the first sample of the micro-batch.
#include "ops/rules.h"

static tri_status shape_of(const char *op, const void *attr, tri_op_signature *s) {
    const tri_dropout_attr *a = attr;
    TRI_TRY(ops_want_float(op, "x", s->in_type[0]));
    if (s->in[0].rank < 1)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: x must have samples as its first axis", op);
    TRI_TRY(ops_want_type(op, "position", s->in_type[1], TRI_I64));
    TRI_TRY(ops_want_shape(op, "position", &s->in[1], tri_shape_of(2)));
    if (!(a->p >= 0 && a->p <= 1))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: p must be 0 to 1, not %g", op, a->p);
    if (a->run < 0 || a->first < 0 || (a->run > 0 && a->first + a->run > a->stride))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: elements %" PRId64 " to %" PRId64 " of every %" PRId64
                        " do not lie in a sample",
                        op, a->first, a->first + a->run, a->stride);
    ops_like_first(s);
    return TRI_OK;
}

static tri_status dropout_shape(const void *attr, tri_op_signature *s) {
    return shape_of("dropout", attr, s);
}

static tri_status dropout_grad_shape(const void *attr, tri_op_signature *s) {
    return shape_of("dropout_grad", attr, s);
}

static void dropout_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_dropout_grad, node->attr, out_grads[0],
                           node->inputs[1], none, none);
}

static const tri_attr_field dropout_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_dropout_attr, p),
    OPS_FIELD(TRI_ATTR_KEY, tri_dropout_attr, key),
    OPS_FIELD(TRI_ATTR_INT, tri_dropout_attr, run),
    OPS_FIELD(TRI_ATTR_INT, tri_dropout_attr, stride),
    OPS_FIELD(TRI_ATTR_INT, tri_dropout_attr, first),
    {0},
};

// Tells dropout which elements of a full sample the slice has, so that the slices together have the
// mask that one rank would draw.
static bool dropout_slice(int input, int dim, const tri_op_signature *full, void *attr,
                          tri_op_slices *slices) {
    tri_dropout_attr *a = attr;
    a->stride = 1;
    for (int i = dim; i < full->in[0].rank; i++) a->stride *= full->in[0].dims[i];
    a->run = a->stride / slices->count;
    a->first = a->run * slices->index;
    return true;
}

const tri_op tri_op_dropout = {
    .name = "dropout",
    .doc = "x [N, ...], position -> y: x / (1 - p) where Philox(key, step, position of the sample, "
           "element in the sample) >= p * 2^32, else 0",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_RANDOM,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_MIDDLE | TRI_AXES_LAST,
    .slice = dropout_slice,
    .attr_bytes = sizeof(tri_dropout_attr),
    .attr_fields = dropout_fields,
    .shape = dropout_shape,
    .gradient = dropout_gradient,
};

const tri_op tri_op_dropout_grad = {
    .name = "dropout_grad",
    .doc = "dy, position -> dx: dropout's mask and scale again, on dy",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_RANDOM,
    .in_place = 1,
    .attr_bytes = sizeof(tri_dropout_attr),
    .attr_fields = dropout_fields,
    .shape = dropout_grad_shape,
};

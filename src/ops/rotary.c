// Defines the op rotary position embedding: its shape rule, gradient rule and cost.
#include "ops/rules.h"

#include "base/limits.h"

static tri_status rotary_shape(const void *attr, tri_op_signature *s) {
    const tri_rotary_attr *a = attr;
    TRI_TRY(ops_want_float("rotary", "x", s->in_type[0]));
    TRI_TRY(ops_want_rank("rotary", "x [N, T, H, D]", &s->in[0], 4));
    if (s->in[0].dims[3] < 2 || s->in[0].dims[3] % 2)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rotary: D is turned in pairs and must be even, not %" PRId64,
                        s->in[0].dims[3]);
    int64_t angles;
    if (__builtin_mul_overflow(s->in[0].dims[1], s->in[0].dims[3], &angles) ||
        angles > TRI_MAX_SAMPLE_ELEMENTS)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rotary: %" PRId64 " positions of %" PRId64 " features are too many angles",
                        s->in[0].dims[1], s->in[0].dims[3]);
    if (!(a->theta > 0) || a->first < 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rotary: theta must be above 0 and first at least 0, not %g and %" PRId64,
                        a->theta, a->first);
    const tri_rotary_scaling *scaling = &a->scaling;
    if (scaling->factor != 0 && !(scaling->factor > 0 && scaling->low > 0 && scaling->length > 0 &&
                                  scaling->high > scaling->low))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rotary: a scaling needs numbers above 0 and a high factor above the low "
                        "one, not factor %g, low %g, high %g, length %g",
                        scaling->factor, scaling->low, scaling->high, scaling->length);
    if (s->present[1]) TRI_TRY(ops_want_spans("rotary", s, 1));
    ops_like_first(s);
    return TRI_OK;
}

static void rotary_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    tri_rotary_attr back = *(const tri_rotary_attr *)node->attr;
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    back.inverse = !back.inverse;
    in_grads[0] =
        ops_node(graph, node, &tri_op_rotary, &back, out_grads[0], node->inputs[1], none, none);
}

static tri_cost rotary_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 3);
}

static const tri_attr_field rotary_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_rotary_attr, theta),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_rotary_attr, scaling.factor),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_rotary_attr, scaling.low),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_rotary_attr, scaling.high),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_rotary_attr, scaling.length),
    OPS_FIELD(TRI_ATTR_INT, tri_rotary_attr, first),
    OPS_FIELD(TRI_ATTR_BOOL, tri_rotary_attr, inverse),
    {0},
};

static bool rotary_slice(int input, int dim, const tri_op_signature *full, void *attr,
                         tri_op_slices *slices) {
    tri_rotary_attr *a = attr;
    if (dim == 0) return !full->present[1]; // each sample has its own span
    if (dim == 1) a->first += full->in[0].dims[1] / slices->count * slices->index;
    return true;
}

const tri_op tri_op_rotary = {
    .name = "rotary",
    .doc = "x [N, T, H, D], spans? -> y: the pair (x[i], x[i + D/2]) turned by the angle (first + "
           "span[0] + t) * theta^(-2i / D), which `scaling` makes slower, backwards when inverse; "
           "arXiv 2104.09864 in the halves of Llama",
    .input_count = 2,
    .optional_inputs = 1,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_ROWS,
    .slice = rotary_slice,
    .attr_bytes = sizeof(tri_rotary_attr),
    .attr_fields = rotary_fields,
    .shape = rotary_shape,
    .gradient = rotary_gradient,
    .cost = rotary_cost,
};

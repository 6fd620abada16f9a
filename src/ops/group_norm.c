// Defines the op group norm: its shape rule, gradient rule and cost.
#include "ops/rules.h"

// Checks x and the groups, and finds the shape [N, groups] of mean and inv_std.
static tri_status want_groups(const char *op, const tri_group_norm_attr *a, const tri_shape *x,
                              tri_shape *groups) {
    char text[128];
    if (x->rank < 2 || a->groups < 1 || x->dims[1] % a->groups != 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: x must be [N, C, ..] with C in %" PRId64 " groups, but is %s", op,
                        a->groups, tri_shape_text(x, text, sizeof text));
    *groups = tri_shape_of(x->dims[0], a->groups);
    return ops_want_eps(op, a->norm.eps);
}

static tri_status group_norm_shape(const void *attr, tri_op_signature *s) {
    const tri_group_norm_attr *a = attr;
    static const char *const names[] = {"x", "weight", "bias"};
    TRI_TRY(ops_want_float("group_norm", "input 0", s->in_type[0]));
    TRI_TRY(ops_want_accumulators("group_norm", s, 1, 3));
    TRI_TRY(want_groups("group_norm", a, &s->in[0], &s->out[1]));
    if (s->present[1] != s->present[2])
        return TRI_FAIL(TRI_BAD_INPUT, "group_norm: weight and bias go together");
    for (int i = 1; i < 3 && s->present[i]; i++)
        TRI_TRY(ops_want_shape("group_norm", names[i], &s->in[i], tri_shape_of(s->in[0].dims[1])));
    ops_like_first(s);
    TRI_TRY(ops_narrow_type("group_norm", a->norm.narrow, s->in_type[0], &s->out_type[0]));
    s->out[2] = s->out[1];
    s->out_type[1] = s->out_type[2] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static tri_status group_norm_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "group_norm_grad";
    static const char *const names[] = {"x", "dy", "mean", "inv_std", "weight"};
    const tri_group_norm_attr *a = attr;
    tri_dtype accumulator = ops_accumulator_type(s->in_type[0]);
    tri_shape groups, channels;
    TRI_TRY(ops_want_norm_gradient(op, a->norm.narrow, 5, s));
    TRI_TRY(want_groups(op, a, &s->in[0], &groups));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1], s->in[0]));
    channels = tri_shape_of(s->in[0].dims[1]);
    for (int i = 2; i < 5 && s->present[i]; i++) {
        TRI_TRY(ops_want_type(op, names[i], s->in_type[i], accumulator));
        TRI_TRY(ops_want_shape(op, names[i], &s->in[i], i == 4 ? channels : groups));
    }
    ops_like_first(s);
    s->out[1] = s->out[2] = s->present[4] ? channels : tri_shape_of(0);
    s->out_type[1] = s->out_type[2] = accumulator;
    return TRI_OK;
}

static void group_norm_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1] || wanted[2])) return;
    tri_value inputs[5] = {node->inputs[0], out_grads[0], node->outputs[1], node->outputs[2],
                           node->inputs[1]};
    in_grads[0] = tri_node_add(graph, &tri_op_group_norm_grad, inputs, 5, node->attr, node->name);
    if (!tri_value_is(node->inputs[1])) return;
    in_grads[1] = tri_node_output(graph, in_grads[0], 1);
    in_grads[2] = tri_node_output(graph, in_grads[0], 2);
}

static tri_cost group_norm_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 8);
}

static tri_cost group_norm_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 12);
}

static const tri_attr_field group_norm_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_group_norm_attr, norm.eps),
    OPS_FIELD(TRI_ATTR_TYPE, tri_group_norm_attr, norm.narrow),
    OPS_FIELD(TRI_ATTR_INT, tri_group_norm_attr, groups),
    {0},
};

// Ranks share samples or groups.
static bool group_norm_slice(int input, int dim, const tri_op_signature *full, void *attr,
                             tri_op_slices *slices) {
    tri_group_norm_attr *a = attr;
    if (dim == 0) return true;
    if (dim > 1 || a->groups % slices->count) return false;
    a->groups /= slices->count;
    slices->in[1] = slices->in[2] = 0;
    return true;
}

const tri_op tri_op_group_norm = {
    .name = "group_norm",
    .doc = "x [N, C, ..], weight [C]?, bias [C]? -> y, mean [N, groups], inv_std [N, groups]: y = "
           "(x - mean) * inv_std * weight + bias with the mean and the biased variance of each "
           "sample's groups of C / groups neighbouring channels",
    .input_count = 3,
    .optional_inputs = 2,
    .output_count = 3,
    .flags = TRI_OP_RECOMPUTABLE,
    .in_place = 1,
    .precision = TRI_PRECISION_NORM,
    .narrow = offsetof(tri_group_norm_attr, norm.narrow),
    .streams = 1,
    .axes = TRI_AXES_ROWS,
    .slice = group_norm_slice,
    .attr_bytes = sizeof(tri_group_norm_attr),
    .attr_fields = group_norm_fields,
    .shape = group_norm_shape,
    .gradient = group_norm_gradient,
    .cost = group_norm_cost,
};

const tri_op tri_op_group_norm_grad = {
    .name = "group_norm_grad",
    .doc = "x, dy, mean, inv_std, weight? -> dx, dweight, dbias: with h = (x - mean) * inv_std and "
           "g = dy * weight: dbias = sum over samples and pixels of dy, dweight = that of dy * h, "
           "dx = inv_std * (g - mean(g) - h * mean(g * h)) with the means of a group; dweight and "
           "dbias are empty without a weight",
    .input_count = 5,
    .optional_inputs = 1,
    .output_count = 3,
    .in_place = 2,
    .attr_bytes = sizeof(tri_group_norm_attr),
    .attr_fields = group_norm_fields,
    .shape = group_norm_grad_shape,
    .cost = group_norm_grad_cost,
};

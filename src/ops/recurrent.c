// Defines the op recurrent, the steps of a recurrent layer (LSTM, GRU, or plain) over a whole
// sequence, and its gradient: their shape rules, gradient rule and costs. The products with the
// layer's input are a linear layer before it, and the gradient of the weight is one behind
// recurrent_grad, because both are products over the whole sequence at once.
#include "ops/rules.h"

// The sizes: T steps of N samples, and H units.
typedef struct sizes {
    int64_t steps, samples, units, gates;
} sizes;

static tri_shape sequence(const tri_recurrent_attr *a, const sizes *z, int64_t width) {
    return a->time_first ? tri_shape_of(z->steps, z->samples, width)
                         : tri_shape_of(z->samples, z->steps, width);
}

static tri_shape saved_shape(const tri_recurrent_attr *a, const sizes *z) {
    bool has = a->keeps && (a->kind == TRI_RECURRENT_LSTM || a->kind == TRI_RECURRENT_GRU);
    return has ? tri_shape_of(z->steps, z->samples, 4 * z->units) : tri_shape_of(0);
}

static tri_shape cells_shape(const tri_recurrent_attr *a, const sizes *z) {
    bool has = a->keeps && a->kind == TRI_RECURRENT_LSTM;
    return has ? tri_shape_of(z->steps + 1, z->samples, z->units) : tri_shape_of(0);
}

// Finds the sizes from the shape of sequences and of the weight, which it checks.
static tri_status find_sizes(const char *op, const tri_recurrent_attr *a, const char *name,
                             const tri_shape *of, const tri_shape *weight, sizes *z) {
    if (a->kind < 0 || a->kind >= TRI_RECURRENT_KINDS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: there is no kind %" PRId64, op, a->kind);
    TRI_TRY(ops_want_rank(op, name, of, 3));
    TRI_TRY(ops_want_rank(op, "weight [gates * H, H]", weight, 2));
    *z = (sizes){.steps = of->dims[!a->time_first],
                 .samples = of->dims[a->time_first],
                 .units = weight->dims[1],
                 .gates = tri_recurrent_gates(a->kind)};
    return ops_want_shape(op, "weight", weight, tri_shape_of(z->gates * z->units, z->units));
}

static tri_status recurrent_shape(const void *attr, tri_op_signature *s) {
    const char *op = "recurrent";
    const tri_recurrent_attr *a = attr;
    sizes z;
    TRI_TRY(ops_want_one_type(op, s, 0, 5));
    TRI_TRY(find_sizes(op, a, "gates", &s->in[0], &s->in[1], &z));
    TRI_TRY(ops_want_shape(op, "gates", &s->in[0], sequence(a, &z, z.gates * z.units)));
    if (z.steps < 1 || z.units < 1)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: needs a step and a unit at least", op);
    if (s->present[2])
        TRI_TRY(ops_want_shape(op, "bias", &s->in[2], tri_shape_of(z.gates * z.units)));
    tri_shape state = tri_shape_of(z.samples, z.units);
    if (s->present[3]) TRI_TRY(ops_want_shape(op, "h", &s->in[3], state));
    if (s->present[4] && a->kind != TRI_RECURRENT_LSTM)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: only an LSTM has a state c", op);
    if (s->present[4]) TRI_TRY(ops_want_shape(op, "c", &s->in[4], state));
    s->out[0] = sequence(a, &z, z.units);
    s->out[1] = state;
    s->out[2] = a->kind == TRI_RECURRENT_LSTM ? state : tri_shape_of(0);
    s->out[3] = saved_shape(a, &z);
    s->out[4] = cells_shape(a, &z);
    for (int i = 0; i < s->output_count; i++) s->out_type[i] = s->in_type[0];
    return TRI_OK;
}

static tri_status recurrent_grad_shape(const void *attr, tri_op_signature *s) {
    static const char *const names[] = {"weight", "y",        "saved",    "cells",
                                        "dy",     "d last h", "d last c", "h"};
    const char *op = "recurrent_grad";
    const tri_recurrent_attr *a = attr;
    sizes z;
    TRI_TRY(ops_want_one_type(op, s, 0, s->input_count));
    TRI_TRY(find_sizes(op, a, "y", &s->in[1], &s->in[0], &z));
    tri_shape state = tri_shape_of(z.samples, z.units), y = sequence(a, &z, z.units);
    tri_shape wanted[] = {s->in[0], y,    saved_shape(a, &z), cells_shape(a, &z), y, state,
                          state,    state};
    for (int i = 1; i < s->input_count; i++)
        if (s->present[i]) TRI_TRY(ops_want_shape(op, names[i], &s->in[i], wanted[i]));
    s->out[0] = sequence(a, &z, z.gates * z.units);
    s->out[1] = a->kind == TRI_RECURRENT_GRU ? s->out[0] : tri_shape_of(0);
    s->out[2] = y;
    s->out[3] = state;
    s->out[4] = a->kind == TRI_RECURRENT_LSTM ? state : tri_shape_of(0);
    for (int i = 0; i < s->output_count; i++) s->out_type[i] = s->in_type[0];
    return TRI_OK;
}

static void recurrent_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                               const bool *wanted, tri_value *in_grads) {
    const tri_recurrent_attr *a = node->attr;
    tri_value none = {0}, weight = node->inputs[1];
    if (!tri_value_is(out_grads[0]) && !tri_value_is(out_grads[1]) && !tri_value_is(out_grads[2]))
        return;
    tri_value in[] = {weight,       node->outputs[0], node->outputs[3], node->outputs[4],
                      out_grads[0], out_grads[1],     out_grads[2],     node->inputs[3]};
    tri_value dgates = tri_node_add(graph, &tri_op_recurrent_grad, in, 8, a, node->name);
    bool is_gru = a->kind == TRI_RECURRENT_GRU;
    tri_value dproduct = is_gru ? tri_node_output(graph, dgates, 1) : dgates;
    in_grads[0] = dgates;
    if (wanted[1] || wanted[2]) {
        tri_linear_grad_attr grad = {.axes = 1,
                                     .shape = tri_value_shape(graph, weight),
                                     .has_bias = tri_value_is(node->inputs[2])};
        in_grads[1] = ops_node(graph, node, &tri_op_linear_grad_weight, &grad,
                               tri_node_output(graph, dgates, 2), dproduct, none, none);
        if (grad.has_bias) in_grads[2] = tri_node_output(graph, in_grads[1], 1);
    }
    if (wanted[3]) in_grads[3] = tri_node_output(graph, dgates, 3);
    if (wanted[4]) in_grads[4] = tri_node_output(graph, dgates, 4);
}

static tri_cost cost_of(const tri_shape *weight, const tri_shape *y) {
    double rows = (double)tri_shape_count(y) / (double)weight->dims[1];
    double products = 2 * (double)tri_shape_count(weight), functions = 12 * (double)weight->dims[0];
    return (tri_cost){.flops = rows * (products + functions)};
}

static tri_cost recurrent_cost(const void *attr, const tri_op_signature *s) {
    return cost_of(&s->in[1], &s->out[0]);
}

static tri_cost recurrent_grad_cost(const void *attr, const tri_op_signature *s) {
    return cost_of(&s->in[0], &s->in[1]);
}

static const tri_attr_field recurrent_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_recurrent_attr, kind),
    OPS_FIELD(TRI_ATTR_BOOL, tri_recurrent_attr, reverse),
    OPS_FIELD(TRI_ATTR_BOOL, tri_recurrent_attr, time_first),
    OPS_FIELD(TRI_ATTR_BOOL, tri_recurrent_attr, keeps),
    {0},
};

const tri_op tri_op_recurrent = {
    .name = "recurrent",
    .doc = "gates [N, T, G*H], weight [G*H, H], bias?, h?, c? [N, H] -> y [N, T, H], last h, last "
           "c, saved, cells: with p = h * transposed weight + bias, for each step of gates x: "
           "kinds 0 and 1: h = tanh or relu(x + p); 2 (LSTM; i, f, g, o): c = s(f) c + s(i) "
           "tanh(g), h = s(o) tanh(c) of x + p; 3 (GRU; r, z, n): n = tanh(x + s(r) p), "
           "h = (1 - s(z)) n + s(z) h",
    .input_count = 5,
    .optional_inputs = 3,
    .output_count = 5,
    .attr_bytes = sizeof(tri_recurrent_attr),
    .attr_fields = recurrent_fields,
    .shape = recurrent_shape,
    .gradient = recurrent_gradient,
    .cost = recurrent_cost,
};

const tri_op tri_op_recurrent_grad = {
    .name = "recurrent_grad",
    .doc =
        "weight, y, saved, cells, dy?, d last h?, d last c?, h? -> dgates, dproduct (empty where "
        "it equals dgates), before (h of the step before), dh, dc: the gradient of recurrent; "
        "that of the weight is transposed dproduct * before",
    .input_count = 8,
    .optional_inputs = 4,
    .output_count = 5,
    .attr_bytes = sizeof(tri_recurrent_attr),
    .attr_fields = recurrent_fields,
    .shape = recurrent_grad_shape,
    .cost = recurrent_grad_cost,
};

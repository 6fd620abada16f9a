// Defines the op scaled dot-product attention: its shape rule, gradient rule and cost. Grouped
// heads and the causal mask are part of the op, so that no tensor has to hold a mask or repeated
// heads.
#include "ops/rules.h"

// Checks that q [N, T, H, D] fits k and v [N, S, K, D].
static tri_status attention_rules(const char *op, const tri_attention_attr *a,
                                  const tri_op_signature *s) {
    const int64_t *q = s->in[0].dims, *k = s->in[1].dims;
    TRI_TRY(ops_want_rank(op, "q [N, T, H, D]", &s->in[0], 4));
    TRI_TRY(ops_want_rank(op, "k [N, S, K, D]", &s->in[1], 4));
    TRI_TRY(ops_want_shape(op, "k", &s->in[1], tri_shape_of(q[0], k[1], k[2], q[3])));
    TRI_TRY(ops_want_shape(op, "v", &s->in[2], s->in[1]));
    if (q[2] % k[2])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: the %" PRId64 " heads of q must be a multiple of the %" PRId64
                        " of k and v",
                        op, q[2], k[2]);
    if (a->causal && k[1] < q[1])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: causal attention of %" PRId64 " queries needs as many keys, but there "
                        "are %" PRId64,
                        op, q[1], k[1]);
    return TRI_OK;
}

static tri_shape per_query(const tri_op_signature *s) {
    const int64_t *q = s->in[0].dims;
    return tri_shape_of(q[0], q[2], q[1]);
}

static tri_status attention_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("attention", s, 0, 3));
    TRI_TRY(attention_rules("attention", attr, s));
    ops_like_first(s);
    s->out[1] = per_query(s);
    s->out_type[1] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static tri_status attention_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "attention_grad";
    TRI_TRY(ops_want_one_type(op, s, 0, 5));
    TRI_TRY(attention_rules(op, attr, s));
    TRI_TRY(ops_want_shape(op, "y", &s->in[3], s->in[0]));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[4], s->in[0]));
    TRI_TRY(ops_want_type(op, "log_sum_exp", s->in_type[5], ops_accumulator_type(s->in_type[0])));
    TRI_TRY(ops_want_shape(op, "log_sum_exp", &s->in[5], per_query(s)));
    for (int i = 0; i < 3; i++) {
        s->out[i] = s->in[i];
        s->out_type[i] = s->in_type[i];
    }
    return TRI_OK;
}

static void attention_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                               const bool *wanted, tri_value *in_grads) {
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1] || wanted[2])) return;
    tri_value inputs[6] = {node->inputs[0],  node->inputs[1], node->inputs[2],
                           node->outputs[0], out_grads[0],    node->outputs[1]};
    in_grads[0] = tri_node_add(graph, &tri_op_attention_grad, inputs, 6, node->attr, node->name);
    for (int i = 1; i < 3; i++) in_grads[i] = tri_node_output(graph, in_grads[0], i);
}

// Counts the flops of `count` products of [T, D] by [D, S] for each head. Under a causal mask, only
// the pairs of query and key that the mask leaves count. Softmax is left out, because it costs
// little in comparison.
static tri_cost products(const tri_attention_attr *a, const tri_op_signature *s, double count) {
    const int64_t *q = s->in[0].dims;
    double queries = (double)q[1], keys = (double)s->in[1].dims[1];
    double pairs = a->causal ? queries * (keys - (queries - 1) / 2) : queries * keys;
    return (tri_cost){.flops = 2 * count * (double)(q[0] * q[2] * q[3]) * pairs};
}

static tri_cost attention_cost(const void *attr, const tri_op_signature *s) {
    return products(attr, s, 2);
}

// One of the five products makes the scores again, which the forward pass does not keep.
static tri_cost attention_grad_cost(const void *attr, const tri_op_signature *s) {
    return (tri_cost){.flops = products(attr, s, 5).flops, .repeated = products(attr, s, 1).flops};
}

static const tri_attr_field attention_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_attention_attr, scale),
    OPS_FIELD(TRI_ATTR_BOOL, tri_attention_attr, causal),
    {0},
};

const tri_op tri_op_attention = {
    .name = "attention",
    .doc = "q [N, T, H, D], k, v [N, S, K, D] -> y [N, T, H, D], log_sum_exp [N, H, T]: y = "
           "softmax(scale * q * transposed k) * v, head h of q with head h / (H / K) of k and v; "
           "causal: query t sees keys 0 to t + S - T; log_sum_exp is of the scaled scores",
    .input_count = 3,
    .output_count = 2,
    .precision = TRI_PRECISION_HALF,
    .streams = 3,
    .axes = TRI_AXES_FIRST,
    .attr_bytes = sizeof(tri_attention_attr),
    .attr_fields = attention_fields,
    .shape = attention_shape,
    .gradient = attention_gradient,
    .cost = attention_cost,
};

const tri_op tri_op_attention_grad = {
    .name = "attention_grad",
    .doc = "q, k, v, y, dy, log_sum_exp -> dq, dk, dv: with p = exp(scale * q * transposed k - "
           "log_sum_exp) and ds = scale * p * (dy * transposed v - sum over D of dy * y): dq = ds "
           "* k, dk = transposed ds * q, dv = transposed p * dy, summed over the heads of a group",
    .input_count = 6,
    .output_count = 3,
    .attr_bytes = sizeof(tri_attention_attr),
    .attr_fields = attention_fields,
    .shape = attention_grad_shape,
    .cost = attention_grad_cost,
};

// Defines the op that looks up rows of a table by token: its shape rules, gradient rule and costs.
#include "ops/rules.h"

// Computes the shape of y: the axes of ids, followed by D, the last axis of the weight.
static tri_status embedding_output(const char *op, const tri_embedding_attr *a,
                                   const tri_op_signature *s, const tri_shape *weight,
                                   tri_shape *y) {
    char text[160];
    TRI_TRY(ops_want_type(op, "ids", s->in_type[0], TRI_I64));
    TRI_TRY(ops_want_rank(op, "weight [V, D]", weight, 2));
    if (a->first < 0 || a->total < 0 || (a->total && a->first + weight->dims[0] > a->total))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: the weight %s cannot have rows %" PRId64 " and following of %" PRId64,
                        op, tri_shape_text(weight, text, sizeof text), a->first, a->total);
    *y = s->in[0];
    if (y->rank == TRI_MAX_RANK)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: ids %s have too many axes", op,
                        tri_shape_text(y, text, sizeof text));
    y->dims[y->rank++] = weight->dims[1];
    return TRI_OK;
}

static tri_status embedding_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("embedding", "weight", s->in_type[1]));
    TRI_TRY(embedding_output("embedding", attr, s, &s->in[1], &s->out[0]));
    s->out_type[0] = s->in_type[1];
    return TRI_OK;
}

static tri_status embedding_grad_weight_shape(const void *attr, tri_op_signature *s) {
    const char *op = "embedding_grad_weight";
    const tri_embedding_grad_attr *a = attr;
    tri_shape y;
    TRI_TRY(ops_want_float(op, "dy", s->in_type[1]));
    TRI_TRY(embedding_output(op, &a->rows, s, &a->shape, &y));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1], y));
    s->out[0] = a->shape;
    s->out_type[0] = ops_accumulator_type(s->in_type[1]);
    return TRI_OK;
}

static void embedding_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                               const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[1] || !tri_value_is(out_grads[0])) return;
    tri_embedding_grad_attr grad = {.shape = tri_value_shape(graph, node->inputs[1]),
                                    .rows = *(const tri_embedding_attr *)node->attr};
    in_grads[1] = ops_node(graph, node, &tri_op_embedding_grad_weight, &grad, node->inputs[0],
                           out_grads[0], none, none);
}

// The cost: rows are only copied, so there are no flops.
static tri_cost embedding_cost(const void *attr, const tri_op_signature *s) {
    return (tri_cost){0};
}

static tri_cost embedding_grad_weight_cost(const void *attr, const tri_op_signature *s) {
    return (tri_cost){.flops = (double)tri_shape_count(&s->in[1])};
}

static const tri_attr_field embedding_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_embedding_attr, first),
    OPS_FIELD(TRI_ATTR_INT, tri_embedding_attr, total),
    {0},
};

static const tri_attr_field embedding_grad_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_embedding_grad_attr, rows.first),
    OPS_FIELD(TRI_ATTR_INT, tri_embedding_grad_attr, rows.total),
    {0},
};

static int64_t count_tokens(const void *attr, const tri_op_signature *s) {
    const tri_embedding_attr *a = attr;
    return a->total ? a->total : s->in[1].dims[0];
}

static const tri_op_classes tokens = {count_tokens, "tokens", "in its vocabulary"};

const tri_op tri_op_embedding = {
    .name = "embedding",
    .doc = "ids I64 [..], weight [V, D] -> y [.., D]: row ids of the weight; ids are 0 to V - 1; "
           "or to total - 1, where the weight is a part of the table and other rows give 0",
    .input_count = 2,
    .output_count = 1,
    .precision = TRI_PRECISION_GATHER,
    .attr_bytes = sizeof(tri_embedding_attr),
    .attr_fields = embedding_fields,
    .classes = &tokens,
    .shape = embedding_shape,
    .gradient = embedding_gradient,
    .cost = embedding_cost,
};

const tri_op tri_op_embedding_grad_weight = {
    .name = "embedding_grad_weight",
    .doc = "ids, dy -> dweight [V, D]: each row the sum of dy where ids have it, in the order of "
           "ids; 0 elsewhere",
    .input_count = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_embedding_grad_attr),
    .attr_fields = embedding_grad_fields,
    .shape = embedding_grad_weight_shape,
    .cost = embedding_grad_weight_cost,
};

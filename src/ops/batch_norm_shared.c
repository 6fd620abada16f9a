// Defines the ops for batch norm over the micro-batches of all replicas (trainer.sync_batchnorm).
// Each replica computes the moments of its own micro-batch: mean and sum of squared deviations of
// each channel, and the number of samples. The moments of all replicas are gathered, and each
// replica combines them and normalises. Combining is exact for any numbers of samples (Chan, Golub
// and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
#include "ops/rules.h"

#include <string.h>

// Checks that x is [N, C, …].
static tri_status want_channels(const char *op, const tri_op_signature *s, int64_t *channels) {
    char x[160];
    TRI_TRY(ops_want_float(op, "x", s->in_type[0]));
    if (s->in[0].rank < 2)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: x must be [N, C, ...], but is %s", op,
                        tri_shape_text(&s->in[0], x, sizeof x));
    *channels = s->in[0].dims[1];
    return TRI_OK;
}

static tri_status moments_shape(const void *attr, tri_op_signature *s) {
    int64_t c;
    TRI_TRY(want_channels("batch_norm_moments", s, &c));
    s->out[0] = tri_shape_of(1, 2 * c + 1);
    s->out_type[0] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static tri_status want_replicas(const char *op, const tri_batch_norm_shared_attr *a,
                                const tri_op_signature *s, int input, int64_t channels) {
    TRI_TRY(ops_want_eps(op, a->norm.eps));
    return ops_want_shape(op, "moments", &s->in[input],
                          tri_shape_of(a->replicas.slices, 2 * channels + 1));
}

static tri_status shared_shape(const void *attr, tri_op_signature *s) {
    const char *op = "batch_norm_shared";
    const tri_batch_norm_shared_attr *a = attr;
    int64_t c;
    TRI_TRY(want_channels(op, s, &c));
    TRI_TRY(ops_want_accumulators(op, s, 1, 4));
    TRI_TRY(ops_want_shape(op, "weight", &s->in[1], tri_shape_of(c)));
    TRI_TRY(ops_want_shape(op, "bias", &s->in[2], tri_shape_of(c)));
    TRI_TRY(want_replicas(op, a, s, 3, c));
    TRI_TRY(ops_batch_norm_shape(op, &a->norm, &s->in[0], &s->out[0]));
    for (int i = 1; i < 5; i++) {
        s->out[i] = tri_shape_of(c);
        s->out_type[i] = ops_accumulator_type(s->in_type[0]);
    }
    ops_batch_norm_index(&a->norm, s);
    return ops_narrow_type(op, a->norm.narrow, s->in_type[0], &s->out_type[0]);
}

static tri_status want_gradient(const char *op, const tri_batch_norm_attr *a,
                                const tri_op_signature *s, int64_t *channels) {
    TRI_TRY(want_channels(op, s, channels));
    TRI_TRY(ops_batch_norm_gradient(op, a, s));
    return ops_want_accumulators(op, s, 3, s->input_count);
}

static tri_status sums_shape(const void *attr, tri_op_signature *s) {
    const char *op = "batch_norm_sums";
    int64_t c;
    TRI_TRY(want_gradient(op, attr, s, &c));
    TRI_TRY(ops_want_shape(op, "mean", &s->in[3], tri_shape_of(c)));
    TRI_TRY(ops_want_shape(op, "inv_std", &s->in[4], tri_shape_of(c)));
    for (int i = 0; i < 3; i++) {
        s->out[i] = i < 2 ? tri_shape_of(c) : tri_shape_of(2, c);
        s->out_type[i] = ops_accumulator_type(s->in_type[0]);
    }
    return TRI_OK;
}

static tri_status shared_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "batch_norm_shared_grad";
    static const char *const names[] = {"weight", "mean", "inv_std"};
    const tri_batch_norm_shared_attr *a = attr;
    int64_t c;
    TRI_TRY(want_gradient(op, &a->norm, s, &c));
    for (int i = 0; i < 3; i++)
        TRI_TRY(ops_want_shape(op, names[i], &s->in[3 + i], tri_shape_of(c)));
    TRI_TRY(ops_want_shape(op, "sums", &s->in[6], tri_shape_of(2, c)));
    TRI_TRY(want_replicas(op, a, s, 7, c));
    ops_like_first(s);
    return TRI_OK;
}

// Only the gradient of y is used. The other outputs are mean and inv_std, whose dependence on x the
// formula of dx already contains, and the running statistics, which do not influence the loss.
// Every replica has the same weight and bias. The gradient that a replica computes for them is one
// term of a sum over replicas. It is summed after the backward pass, with the gradients of all
// other parameters.
static void shared_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_batch_norm_shared_attr *a = node->attr;
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1] || wanted[2])) return;
    const tri_value *in = node->inputs, *out = node->outputs;
    tri_value mask = ops_batch_norm_mask(&a->norm, node, out_grads[0]);
    tri_value ends[] = {in[0], mask, out_grads[0], out[1], out[2]};
    in_grads[1] = tri_node_add(graph, &tri_op_batch_norm_sums, ends, 5, &a->norm, node->name);
    in_grads[2] = tri_node_output(graph, in_grads[1], 1);
    if (!wanted[0]) return;
    tri_value sums = tri_node_output(graph, in_grads[1], 2);
    sums = tri_node_add(graph, &tri_op_all_reduce, &sums, 1, &a->replicas, node->name);
    tri_value all[] = {in[0], mask, out_grads[0], in[1], out[1], out[2], sums, in[3]};
    in_grads[0] = tri_node_add(graph, &tri_op_batch_norm_shared_grad, all, 8, a, node->name);
}

tri_value ops_batch_norm_shared(tri_graph *graph, const tri_node *node, const tri_value *inputs,
                                const tri_collective_attr *replicas) {
    tri_batch_norm_shared_attr attr = {.replicas = *replicas};
    memcpy(&attr.norm, node->attr, sizeof attr.norm);
    tri_value in[4] = {inputs[0], inputs[1], inputs[2]};
    in[3] = tri_node_add(graph, &tri_op_batch_norm_moments, in, 1, NULL, node->name);
    in[3] = tri_node_add(graph, &tri_op_all_gather, &in[3], 1, replicas, node->name);
    return tri_node_add(graph, &tri_op_batch_norm_shared, in, 4, &attr, node->name);
}

static tri_cost moments_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 4);
}

static tri_cost shared_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 4);
}

static tri_cost gradient_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 5);
}

static const tri_attr_field shared_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_batch_norm_shared_attr, norm.eps),
    OPS_FIELD(TRI_ATTR_BOOL, tri_batch_norm_shared_attr, norm.relu),
    OPS_FIELD(TRI_ATTR_TYPE, tri_batch_norm_shared_attr, norm.narrow),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_shared_attr, norm.pool.kernel, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_shared_attr, norm.pool.stride, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_shared_attr, norm.pool.padding, .count = 2),
    OPS_FIELD(TRI_ATTR_BOOL, tri_batch_norm_shared_attr, norm.pool.relu),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_shared_attr, replicas.slices),
    {0},
};

const tri_op tri_op_batch_norm_moments = {
    .name = "batch_norm_moments",
    .doc = "x [N, C, ...] -> moments [1, 2C + 1]: the mean of each channel, the sum of squared "
           "deviations from it of each, N",
    .input_count = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_ANY,
    .shape = moments_shape,
    .cost = moments_cost,
};

const tri_op tri_op_batch_norm_shared = {
    .name = "batch_norm_shared",
    .doc = "x [N, C, ...], weight, bias, moments [R, 2C + 1] of all replicas -> y, mean, inv_std, "
           "mean_sum, var_sum, index: as batch_norm, with mean and variance over all replicas; "
           "mean_sum "
           "and var_sum are this one's N times them",
    .input_count = 4,
    .output_count = 6,
    .precision = TRI_PRECISION_NORM,
    .narrow = offsetof(tri_batch_norm_shared_attr, norm.narrow),
    .attr_bytes = sizeof(tri_batch_norm_shared_attr),
    .attr_fields = shared_fields,
    .shape = shared_shape,
    .gradient = shared_gradient,
    .cost = shared_cost,
};

const tri_op tri_op_batch_norm_sums = {
    .name = "batch_norm_sums",
    .doc = "x, mask, dy, mean, inv_std -> dweight, dbias, sums [2, C]: dweight and dbias as "
           "batch_norm_grad computes them, then both again",
    .input_count = 5,
    .output_count = 3,
    .attr_bytes = sizeof(tri_batch_norm_attr),
    .attr_fields = ops_batch_norm_fields,
    .shape = sums_shape,
    .cost = gradient_cost,
};

const tri_op tri_op_batch_norm_shared_grad = {
    .name = "batch_norm_shared_grad",
    .doc = "x, mask, dy, weight, mean, inv_std, sums and moments of all replicas -> dx: weight * "
           "inv_std * (d - (sums[1] + h * sums[0]) / M) with d and h as in batch_norm_grad, M "
           "values a channel of all replicas",
    .input_count = 8,
    .output_count = 1,
    .attr_bytes = sizeof(tri_batch_norm_shared_attr),
    .attr_fields = shared_fields,
    .shape = shared_grad_shape,
    .cost = gradient_cost,
};

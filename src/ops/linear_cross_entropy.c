// Defines the ops that compute a linear layer and the cross-entropy of its scores together, chunk
// by chunk of rows, so that the scores of all rows are never in memory at the same time: their
// shape rules and costs. Only pass/chunk_loss.c adds them, so they need no gradient rule.
#include "ops/rules.h"

// The largest number of rows of a chunk, and the multiple to which the number of rows is rounded
// up. Without chunks, the CPU's F32 product sums the gradient of the weight over blocks of rows
// (k_block_of in device/cpu/gemm.c). These two numbers are the same there, so that gradients are
// summed in the same order with chunks as without.
enum { CHUNK_ROWS = 512, CHUNK_UNIT = 64 };

int64_t tri_loss_chunk(int64_t rows) {
    int64_t chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    if (chunks < 2) return rows;
    return ((rows + chunks - 1) / chunks + CHUNK_UNIT - 1) / CHUNK_UNIT * CHUNK_UNIT;
}

// Checks x, the weight, the labels and the bias, which is input `bias`. Sets *scores to the shape
// of the scores of all rows.
static tri_status want_inputs(const char *op, const tri_op_signature *s, int bias,
                              tri_shape *scores) {
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(ops_want_rank(op, "weight [classes, inputs]", &s->in[1], 2));
    *scores = s->in[0];
    TRI_TRY(ops_want_last_axis(op, s));
    TRI_TRY(ops_want_shape(op, "weight", &s->in[1],
                           tri_shape_of(s->in[1].dims[0], scores->dims[scores->rank - 1])));
    scores->dims[scores->rank - 1] = s->in[1].dims[0];
    TRI_TRY(ops_want_labels(op, scores, &s->in[2], s->in_type[2]));
    if (!s->present[bias]) return TRI_OK;
    TRI_TRY(ops_want_type(op, "bias", s->in_type[bias], s->in_type[0]));
    return ops_want_shape(op, "bias", &s->in[bias], tri_shape_of(s->in[1].dims[0]));
}

// Sets shape and type of output number `output`, the last one of both ops: memory for the scores of
// one chunk.
static void chunk_output(tri_op_signature *s, int output) {
    int64_t rows = tri_shape_count(&s->in[2]);
    s->out[output] = tri_shape_of(tri_loss_chunk(rows), s->in[1].dims[0]);
    s->out_type[output] = s->in_type[0];
}

static tri_status linear_cross_entropy_shape(const void *attr, tri_op_signature *s) {
    const tri_linear_cross_entropy_attr *a = attr;
    tri_shape scores;
    TRI_TRY(want_inputs("linear_cross_entropy", s, 3, &scores));
    s->out[0] = tri_shape_of(2);
    s->out[1] = tri_shape_of(a->accuracy ? 2 : 0);
    s->out_type[0] = s->out_type[1] = TRI_F64;
    chunk_output(s, 2);
    return TRI_OK;
}

static tri_status linear_cross_entropy_grad_shape(const void *attr, tri_op_signature *s) {
    tri_shape scores;
    TRI_TRY(want_inputs("linear_cross_entropy_grad", s, 4, &scores));
    TRI_TRY(ops_want_seed("linear_cross_entropy_grad", s, 3));
    s->out[0] = s->in[0];
    s->out[1] = s->in[1];
    s->out[2] = tri_shape_of(s->present[4] ? s->in[1].dims[0] : 0);
    s->out[3] = tri_shape_of(2);
    s->out_type[0] = s->in_type[0];
    s->out_type[1] = s->out_type[2] = ops_accumulator_type(s->in_type[0]);
    s->out_type[3] = TRI_F64;
    chunk_output(s, 4);
    return TRI_OK;
}

// Computes the cost: `products` matrix products, each as large as the layer's forward product, and
// `per_score` flops for each score.
static tri_cost cost_of(const tri_op_signature *s, double products, double per_score) {
    double inputs = (double)s->in[1].dims[1];
    double scores = (double)tri_shape_count(&s->in[2]) * (double)s->in[1].dims[0];
    return (tri_cost){.flops = scores * (2 * products * inputs + per_score)};
}

static tri_cost linear_cross_entropy_cost(const void *attr, const tri_op_signature *s) {
    return cost_of(s, 1, 5);
}

static tri_cost linear_cross_entropy_grad_cost(const void *attr, const tri_op_signature *s) {
    return cost_of(s, 3, 10);
}

static int64_t class_count(const void *attr, const tri_op_signature *s) { return s->in[1].dims[0]; }
static const tri_op_classes classes = {
    .count = class_count, .of_data = "labels", .of_model = "classes"};

static const tri_attr_field linear_cross_entropy_fields[] = {
    OPS_FIELD(TRI_ATTR_BOOL, tri_linear_cross_entropy_attr, accuracy),
    {0},
};

const tri_op tri_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .doc = "x [.., D], weight [K, D], labels [..], bias [K]? -> cross_entropy and accuracy of the "
           "scores x * transposed weight + bias, and memory for a chunk of the scores; accuracy is "
           "empty unless the attribute asks for it",
    .input_count = 4,
    .optional_inputs = 1,
    .output_count = 3,
    .attr_bytes = sizeof(tri_linear_cross_entropy_attr),
    .attr_fields = linear_cross_entropy_fields,
    .labels = 3,
    .classes = &classes,
    .shape = linear_cross_entropy_shape,
    .cost = linear_cross_entropy_cost,
};

const tri_op tri_op_linear_cross_entropy_grad = {
    .name = "linear_cross_entropy_grad",
    .doc = "x, weight, labels, seed, bias? -> dx, dweight, dbias, cross_entropy of the scores x * "
           "transposed weight + bias, and memory for a chunk of the scores and their gradient; "
           "dbias is empty without a bias",
    .input_count = 5,
    .optional_inputs = 1,
    .output_count = 5,
    .labels = 3,
    .classes = &classes,
    .shape = linear_cross_entropy_grad_shape,
    .cost = linear_cross_entropy_grad_cost,
};

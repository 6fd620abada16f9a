// How each op works on slices: one table. What has no row is computed by every rank as a whole.
#include "pass/tensor.h"

#include <string.h>

// Along which axes an op works on slices, each rank on its own, without an exchange.
enum { FIRST = 1, MIDDLE = 2, LAST = 4, ROWS = FIRST | MIDDLE, ANY = ROWS | LAST };

typedef struct rule rule;
struct rule {
    const tri_op *op;
    // NULL: it follows its first `streams` inputs, along the axes that it allows.
    void (*rewrite)(tensor_pass *pass, const tri_node *node, const rule *row);
    int streams;
    unsigned axes;
    // Attributes for a part along `dim` of the first input's whole shape; NULL: as they are.
    void (*edit)(const tensor_pass *pass, const tri_shape *whole, int dim, void *attr);
};

static tri_shape whole_shape(const tensor_pass *pass, tri_value value) {
    return tri_value_shape(pass->from, value);
}

static void rewrite_whole(tensor_pass *pass, const tri_node *node) {
    tri_value in[TRI_MAX_INPUTS];
    tensor_spread spread = TENSOR_IS_WHOLE;
    for (int k = 0; k < node->input_count; k++) {
        in[k] = tensor_ask(pass, node->inputs[k], TENSOR_IS_WHOLE);
        tensor_note_use(pass, node->inputs[k], false);
        spread.gathered = spread.gathered || tensor_spread_of(pass, node->inputs[k]).gathered;
    }
    tensor_emit(pass, node, in, node->attr, spread);
}

static bool allows(const rule *row, const tri_shape *shape, int dim) {
    unsigned axis = dim == 0 ? FIRST : MIDDLE;
    if (dim == shape->rank - 1) axis = dim == 0 ? FIRST | LAST : LAST;
    return (row->axes & axis) == axis;
}

static void follow(tensor_pass *pass, const tri_node *node, const rule *row) {
    tri_value in[TRI_MAX_INPUTS];
    tri_shape whole = whole_shape(pass, node->inputs[0]);
    int dim = -1;
    for (int k = 0; k < row->streams; k++) {
        tensor_spread is = tensor_spread_of(pass, node->inputs[k]);
        if (dim < 0 && is.kind == TENSOR_PART && allows(row, &whole, is.dim)) dim = is.dim;
    }
    if (dim < 0) {
        rewrite_whole(pass, node);
        return;
    }
    for (int k = 0; k < node->input_count; k++) {
        bool stream = k < row->streams;
        in[k] = tensor_ask(pass, node->inputs[k], stream ? tensor_part(dim) : TENSOR_IS_WHOLE);
        if (!stream) tensor_note_use(pass, node->inputs[k], true);
    }
    void *attr = tri_arena_alloc(pass->to->arena, node->op->attr_bytes);
    if (node->op->attr_bytes) memcpy(attr, node->attr, node->op->attr_bytes);
    if (row->edit) row->edit(pass, &whole, dim, attr);
    tensor_emit(pass, node, in, attr, tensor_part(dim));
}

// The elements of a sample that the part has, among those of the whole one.
static void edit_dropout(const tensor_pass *pass, const tri_shape *whole, int dim, void *attr) {
    tri_dropout_attr *a = attr;
    a->stride = 1;
    for (int i = dim; i < whole->rank; i++) a->stride *= whole->dims[i];
    a->run = a->stride / pass->tensor.slices;
    a->first = a->run * pass->tensor.index;
}

static void edit_rotary(const tensor_pass *pass, const tri_shape *whole, int dim, void *attr) {
    tri_rotary_attr *a = attr;
    if (dim == 1) a->first += whole->dims[1] / pass->tensor.slices * pass->tensor.index;
}

static void rewrite_linear(tensor_pass *pass, const tri_node *node, const rule *row) {
    tri_graph *g = pass->to;
    tri_split split = tensor_split_of(pass, node->inputs[1]);
    int last = whole_shape(pass, node->inputs[0]).rank - 1;
    if (split == TRI_SPLIT_NONE) {
        follow(pass, node, row);
        return;
    }
    tri_value in[3] = {{0}, pass->values[node->inputs[1].id], pass->values[node->inputs[2].id]};
    if (split == TRI_SPLIT_COLUMN) {
        in[0] = tensor_ask(pass, node->inputs[0], (tensor_spread){.kind = TENSOR_COPY});
        tensor_emit(pass, node, in, node->attr, tensor_part(last));
        return;
    }
    // Each rank's part of the sum over the features; the bias is added to the sum, once.
    tensor_spread spread;
    tri_value bias = in[2];
    TRI_ASSERT(((const tri_linear_attr *)node->attr)->axes == 1); // before fusion
    TRI_ASSERT(((const tri_linear_attr *)node->attr)->activation == TRI_ACTIVATION_NONE);
    in[0] = tensor_ask(pass, node->inputs[0], tensor_part(last));
    tri_linear_attr attr = *(const tri_linear_attr *)node->attr;
    attr.wide = true;
    tri_value y = tri_node_add(g, node->op, in, 2, &attr, node->name);
    y = tensor_sum(pass, y, &spread);
    if (tri_value_is(bias)) {
        y = tri_node_add(g, &tri_op_add_bias, (tri_value[]){y, bias}, 2, NULL, node->name);
        tensor_note_use(pass, node->inputs[2], spread.kind == TENSOR_PART);
    }
    tensor_set(pass, node->outputs[0], y, spread);
}

// Each rank looks up the ids of its part of the vocabulary.
static void rewrite_embedding(tensor_pass *pass, const tri_node *node, const rule *row) {
    if (tensor_split_of(pass, node->inputs[1]) == TRI_SPLIT_NONE) {
        rewrite_whole(pass, node);
        return;
    }
    tri_value in[2] = {tensor_ask(pass, node->inputs[0], TENSOR_IS_WHOLE),
                       pass->values[node->inputs[1].id]};
    int64_t total = whole_shape(pass, node->inputs[1]).dims[0];
    tri_embedding_attr attr = {.first = total / pass->tensor.slices * pass->tensor.index,
                               .total = total};
    tensor_spread spread;
    tri_value y = tri_node_add(pass->to, node->op, in, 2, &attr, node->name);
    tensor_set(pass, node->outputs[0], tensor_sum(pass, y, &spread), spread);
}

// The axis of `to` that the slices along axis `dim` of `from` cut too, or -1: as much must lie
// outside it, and it must divide.
static int reshaped_axis(const tri_shape *from, int dim, const tri_shape *to, int64_t slices) {
    int64_t outside = 1, here = 1;
    for (int i = 0; i < dim; i++) outside *= from->dims[i];
    for (int i = 0; i < to->rank; here *= to->dims[i++])
        if (here == outside && to->dims[i] % slices == 0) return i;
    return -1;
}

static void rewrite_reshape(tensor_pass *pass, const tri_node *node, const rule *row) {
    tensor_spread is = tensor_spread_of(pass, node->inputs[0]);
    tri_shape from = whole_shape(pass, node->inputs[0]), to = whole_shape(pass, node->outputs[0]);
    if (is.kind != TENSOR_PART) {
        rewrite_whole(pass, node);
        return;
    }
    int dim = reshaped_axis(&from, is.dim, &to, pass->tensor.slices);
    if (dim < 0) {
        rewrite_whole(pass, node);
        pass->spreads[node->outputs[0].id].gathered = true;
        return;
    }
    tri_reshape_attr attr = {.shape = to};
    attr.shape.dims[dim] /= pass->tensor.slices;
    tensor_emit(pass, node, &pass->values[node->inputs[0].id], &attr, tensor_part(dim));
}

// Keys or values for this rank's heads of the queries: its part of them, or, where there are fewer
// than ranks, the one head that its queries share with those of other ranks.
static tri_value heads_for(tensor_pass *pass, tri_value keys) {
    int64_t heads = whole_shape(pass, keys).dims[2], slices = pass->tensor.slices;
    if (heads % slices == 0) return tensor_ask(pass, keys, tensor_part(2));
    tri_collective_attr attr = pass->tensor;
    attr.dim = 2;
    attr.slices = heads;
    attr.index = pass->tensor.index * heads / slices;
    attr.partial = true;
    tri_value copy = tensor_ask(pass, keys, (tensor_spread){.kind = TENSOR_COPY});
    return tri_node_add(pass->to, &tri_op_split, &copy, 1, &attr, "");
}

static void rewrite_attention(tensor_pass *pass, const tri_node *node, const rule *row) {
    tensor_spread q = tensor_spread_of(pass, node->inputs[0]);
    int64_t heads = whole_shape(pass, node->inputs[0]).dims[2];
    int64_t keys = whole_shape(pass, node->inputs[1]).dims[2], slices = pass->tensor.slices;
    if (q.gathered || (q.kind == TENSOR_PART && q.dim == 2 && keys % slices && slices % keys)) {
        tri_graph_fail(pass->to,
                       "strategy.mesh.tensor: %lld ranks cannot share attention of %lld heads with "
                       "%lld of keys and values: it must divide the heads, and be a multiple or a "
                       "divisor of the others",
                       (long long)slices, (long long)heads, (long long)keys);
        return;
    }
    if (q.kind != TENSOR_PART || q.dim != 2) {
        follow(pass, node, row);
        return;
    }
    tri_value in[3] = {tensor_ask(pass, node->inputs[0], q), heads_for(pass, node->inputs[1]),
                       heads_for(pass, node->inputs[2])};
    tensor_emit(pass, node, in, node->attr, q);
}

// The largest score of each row, over all slices of the classes.
static tri_value max_of(tensor_pass *pass, tri_value scores) {
    if (pass->scores.id == scores.id) return pass->max;
    tri_collective_attr attr = pass->tensor;
    attr.maximum = true;
    tri_value max = tri_node_add(pass->to, &tri_op_row_max, &pass->values[scores.id], 1, NULL, "");
    pass->scores = scores;
    pass->max = tri_node_add(pass->to, &tri_op_all_reduce, &max, 1, &attr, "");
    return pass->max;
}

// Scores in slices of the classes, which the loss and the accuracy do not put together.
static bool in_classes(const tensor_pass *pass, tri_value scores, tri_classes_attr *classes) {
    tensor_spread is = tensor_spread_of(pass, scores);
    tri_shape whole = whole_shape(pass, scores);
    classes->classes = whole.dims[whole.rank - 1];
    classes->first = classes->classes / pass->tensor.slices * pass->tensor.index;
    return is.kind == TENSOR_PART && is.dim == whole.rank - 1;
}

static void rewrite_cross_entropy(tensor_pass *pass, const tri_node *node, const rule *row) {
    tri_graph *g = pass->to;
    tri_classes_attr classes;
    if (!in_classes(pass, node->inputs[0], &classes)) {
        rewrite_whole(pass, node);
        return;
    }
    tri_value in[4] = {pass->values[node->inputs[0].id],
                       tensor_ask(pass, node->inputs[1], TENSOR_IS_WHOLE),
                       max_of(pass, node->inputs[0])};
    tri_value sums = tri_node_add(g, &tri_op_vocab_parallel_softmax, in, 3, &classes, node->name);
    in[3] = tri_node_add(g, &tri_op_all_reduce, &sums, 1, &pass->tensor, node->name);
    tri_value loss =
        tri_node_add(g, &tri_op_vocab_parallel_cross_entropy, in, 4, &classes, node->name);
    tensor_set(pass, node->outputs[0], loss, TENSOR_IS_WHOLE);
}

static void rewrite_accuracy(tensor_pass *pass, const tri_node *node, const rule *row) {
    tri_graph *g = pass->to;
    tri_classes_attr classes;
    if (!in_classes(pass, node->inputs[0], &classes)) {
        rewrite_whole(pass, node);
        return;
    }
    tri_collective_attr attr = pass->tensor;
    attr.maximum = true;
    tri_value in[2] = {pass->values[node->inputs[0].id], max_of(pass, node->inputs[0])};
    in[0] = tri_node_add(g, &tri_op_vocab_parallel_argmax, in, 2, &classes, node->name);
    in[0] = tri_node_add(g, &tri_op_all_reduce, in, 1, &attr, node->name);
    in[1] = tensor_ask(pass, node->inputs[1], TENSOR_IS_WHOLE);
    tri_value made = tri_node_add(g, &tri_op_vocab_parallel_accuracy, in, 2, &classes, node->name);
    tensor_set(pass, node->outputs[0], made, TENSOR_IS_WHOLE);
}

static const rule rules[] = {
    {.op = &tri_op_linear, .rewrite = rewrite_linear, .streams = 1, .axes = ROWS},
    {.op = &tri_op_embedding, .rewrite = rewrite_embedding},
    {.op = &tri_op_reshape, .rewrite = rewrite_reshape},
    {.op = &tri_op_attention, .rewrite = rewrite_attention, .streams = 3, .axes = FIRST},
    {.op = &tri_op_cross_entropy, .rewrite = rewrite_cross_entropy},
    {.op = &tri_op_accuracy, .rewrite = rewrite_accuracy},
    {.op = &tri_op_relu, .streams = 1, .axes = ANY},
    {.op = &tri_op_leaky_relu, .streams = 1, .axes = ANY},
    {.op = &tri_op_gelu, .streams = 1, .axes = ANY},
    {.op = &tri_op_silu_mul, .streams = 2, .axes = ANY},
    {.op = &tri_op_add, .streams = 2, .axes = ANY},
    {.op = &tri_op_dropout, .streams = 1, .axes = MIDDLE | LAST, .edit = edit_dropout},
    {.op = &tri_op_rotary, .streams = 1, .axes = ROWS, .edit = edit_rotary},
    {.op = &tri_op_rms_norm, .streams = 1, .axes = ROWS},
    {.op = &tri_op_layer_norm, .streams = 1, .axes = ROWS},
};

static void share_batch_norm(tensor_pass *pass, const tri_node *node) {
    tri_value in[3];
    for (int k = 0; k < 3; k++) {
        in[k] = tensor_ask(pass, node->inputs[k], TENSOR_IS_WHOLE);
        tensor_note_use(pass, node->inputs[k], false);
    }
    tri_value y = ops_batch_norm_shared(pass->to, node, in, &pass->replicas);
    for (int k = 0; k < node->output_count; k++)
        tensor_set(pass, node->outputs[k], tri_node_output(pass->to, y, k), TENSOR_IS_WHOLE);
}

void tensor_rewrite(tensor_pass *pass, const tri_node *node) {
    for (size_t i = 0; pass->tensor.slices > 1 && i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == node->op) {
            (rules[i].rewrite ? rules[i].rewrite : follow)(pass, node, &rules[i]);
            return;
        }
    bool shared = pass->options->sync_batch_norm && pass->replicas.slices > 1;
    if (shared && node->op == &tri_op_batch_norm)
        share_batch_norm(pass, node);
    else
        rewrite_whole(pass, node);
}

int tensor_parameter_axis(const tri_op *op, int input, tri_split split) {
    static const struct {
        const tri_op *op;
        int input, axis[3]; // by tri_split
    } rows[] = {{&tri_op_linear, 1, {-1, 0, 1}},
                {&tri_op_linear, 2, {-1, 0, -1}},
                {&tri_op_embedding, 1, {-1, 0, -2}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op && rows[i].input == input) return rows[i].axis[split];
    return split == TRI_SPLIT_NONE ? -1 : -2;
}

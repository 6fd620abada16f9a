// How the tensor-parallel pass rewrites the nodes of each op: by the op's row, or by a rule of its
// own where ranks communicate. The pass makes the graph of one
// rank: a value of the new graph is all of a value of the model's graph (replicated) or one slice
// of it. A linear layer that is split by columns makes a slice of the outputs on each rank; one
// that is split by rows reads a slice of the inputs.
#include "pass/tensor_parallel.h"
#include "tensor/half.h"

#include <string.h>

static tri_shape full_shape(const parallel_pass *pass, tri_value value) {
    return tri_value_shape(pass->from, value);
}

// Whether the node's result has the elements of input k, each by itself: not if it is a sum of
// several of them, as a layer's is.
static bool keeps_elements(const parallel_pass *pass, const tri_node *node, int k) {
    if (node->output_count == 0 || !tri_value_is(node->inputs[k])) return false;
    tri_shape in = full_shape(pass, node->inputs[k]), out = full_shape(pass, node->outputs[0]);
    return node->op != &tri_op_linear && tri_shape_count(&in) == tri_shape_count(&out);
}

static void rewrite_replicated(parallel_pass *pass, const tri_node *node) {
    tri_value in[TRI_MAX_INPUTS];
    parallel_placement placement = PARALLEL_REPLICATED;
    // What is made of parameters alone, as a reshaped weight, has the uses of its result.
    bool is_use = node->output_count == 0 || !pass->of_parameters[node->outputs[0].id];
    for (int k = 0; k < node->input_count; k++) {
        in[k] = parallel_ask(pass, node->inputs[k], PARALLEL_REPLICATED);
        if (is_use) parallel_note_use(pass, node->inputs[k], false);
        if (parallel_placement_of(pass, node->inputs[k]).gathered && keeps_elements(pass, node, k))
            placement.gathered = true;
    }
    parallel_emit(pass, node, in, node->attr, placement);
}

static bool allows(const tri_op *op, const tri_shape *shape, int dim) {
    unsigned axis = dim == 0 ? TRI_AXES_FIRST : TRI_AXES_MIDDLE;
    if (dim == shape->rank - 1) axis = dim == 0 ? TRI_AXES_FIRST | TRI_AXES_LAST : TRI_AXES_LAST;
    return (op->axes & axis) == axis;
}

// Whether the node can be shared because its input k is sliced. Sets how, and the attributes of the
// slice.
static bool find_slices(const parallel_pass *pass, const tri_node *node, int k,
                        tri_op_slices *slices, void *attr) {
    parallel_placement is = parallel_placement_of(pass, node->inputs[k]);
    tri_op_signature full = tri_node_signature(pass->from, node);
    if (is.kind != TRI_PLACEMENT_SLICED || !allows(node->op, &full.in[k], is.dim)) return false;
    if (is.parts > 1 && node->op != &tri_op_map) return false;
    *slices = (tri_op_slices){.count = pass->tensor_parallel.slices,
                              .index = pass->tensor_parallel.index,
                              .out = is.dim,
                              .parts = is.parts,
                              .out_parts = is.parts};
    for (int i = 0; i < TRI_MAX_INPUTS; i++) slices->in[i] = i < node->op->streams ? is.dim : -1;
    if (node->op->attr_bytes) memcpy(attr, node->attr, node->op->attr_bytes);
    return !node->op->slice || node->op->slice(k, is.dim, &full, attr, slices);
}

// Gets the input k of a node of which the ranks have slices, and notes how it is used. One that
// every rank reads whole gets one term of its gradient from each.
static tri_value shared_input(parallel_pass *pass, const tri_node *node, int k,
                              const tri_op_slices *slices) {
    int dim = slices->in[k];
    tri_value from = node->inputs[k];
    if (!tri_value_is(from)) return from;
    // Ranks sum the gradient of an op's weights once a step. Integers have none.
    bool is_integer = !tri_dtype_is_float(tri_value_get(pass->from, from)->dtype);
    bool is_weight = k >= node->op->streams || is_integer;
    parallel_placement whole = {.kind = is_weight ? TRI_PLACEMENT_REPLICATED
                                                  : TRI_PLACEMENT_PARTIAL_GRADIENT};
    parallel_note_use(pass, from, dim < 0 && is_weight);
    return parallel_ask(pass, from, dim < 0 ? whole : parallel_sliced_parts(dim, slices->parts));
}

// Rewrites a node by its op's row: each rank computes a slice, if one of the inputs is sliced so
// that the op allows it, or else the whole.
static void follow(parallel_pass *pass, const tri_node *node) {
    tri_value in[TRI_MAX_INPUTS];
    tri_op_slices slices;
    void *attr = tri_arena_alloc(pass->to->arena, node->op->attr_bytes);
    bool found = false;
    for (int k = 0; k < node->op->streams && k < node->input_count && !found; k++)
        found = find_slices(pass, node, k, &slices, attr);
    bool whole = false;
    for (int k = node->op->streams; k < node->input_count; k++)
        whole = whole || parallel_is_whole(pass, node->inputs[k]);
    if (!found || whole) {
        rewrite_replicated(pass, node);
        return;
    }
    for (int k = 0; k < node->input_count; k++) in[k] = shared_input(pass, node, k, &slices);
    parallel_emit(pass, node, in, attr, parallel_sliced_parts(slices.out, slices.out_parts));
}

static void rewrite_linear(parallel_pass *pass, const tri_node *node) {
    tri_graph *g = pass->to;
    tri_split split = parallel_split_of(pass, node->inputs[1]);
    int last = full_shape(pass, node->inputs[0]).rank - 1;
    if (split == TRI_SPLIT_NONE) {
        follow(pass, node);
        return;
    }
    tri_value in[3] = {{0}, pass->values[node->inputs[1].id], pass->values[node->inputs[2].id]};
    if (split == TRI_SPLIT_COLUMN) {
        in[0] = parallel_ask(pass, node->inputs[0],
                             (parallel_placement){.kind = TRI_PLACEMENT_PARTIAL_GRADIENT});
        const tri_parameter_info *weight = &g->parameters[tri_value_get(g, in[1])->index];
        parallel_emit(pass, node, in, node->attr, parallel_sliced_parts(last, weight->slice.parts));
        return;
    }
    // Each rank has a slice of the features, so it computes one term of the sum over the features.
    // The bias is added once, to the sum.
    parallel_placement placement;
    tri_value bias = in[2], bias_of = node->inputs[2];
    // The fusion that changes `axes` runs after this pass.
    TRI_ASSERT(((const tri_linear_attr *)node->attr)->axes == 1);
    in[0] = parallel_ask(pass, node->inputs[0], parallel_sliced(last));
    tri_linear_attr attr = *(const tri_linear_attr *)node->attr;
    attr.wide = true;
    tri_value y = tri_node_add(g, node->op, in, 2, &attr, node->name);
    y = parallel_sum(pass, y, parallel_is_whole(pass, bias_of), &placement);
    if (tri_value_is(bias)) {
        y = tri_node_add(g, &tri_op_add_bias, (tri_value[]){y, bias}, 2, NULL, node->name);
        parallel_note_use(pass, bias_of, placement.kind == TRI_PLACEMENT_SLICED);
    }
    parallel_set(pass, node->outputs[0], y, placement);
}

// Rewrites an embedding whose vocabulary is sliced. Each rank looks up those ids that belong to its
// own slice and gives zeros for all others. So the sum over ranks is the embedding.
static void rewrite_embedding(parallel_pass *pass, const tri_node *node) {
    if (parallel_split_of(pass, node->inputs[1]) == TRI_SPLIT_NONE) {
        rewrite_replicated(pass, node);
        return;
    }
    tri_value in[2] = {parallel_ask(pass, node->inputs[0], PARALLEL_REPLICATED),
                       pass->values[node->inputs[1].id]};
    int64_t total = full_shape(pass, node->inputs[1]).dims[0];
    tri_embedding_attr attr = {.first = total / pass->tensor_parallel.slices *
                                        pass->tensor_parallel.index,
                               .total = total};
    parallel_placement placement;
    tri_value y = tri_node_add(pass->to, node->op, in, 2, &attr, node->name);
    parallel_set(pass, node->outputs[0], parallel_sum(pass, y, false, &placement), placement);
}

// Finds how slices continue through a reshape: the axis of `to` whose slices have the same elements
// as those of `from`. The axes before it must have as many elements in both shapes, and its size
// must be divisible by the number of slices; the parts of an axis may become an axis before it. The
// first axis, that of the samples, is not cut if it was not before: else the graph for one sample,
// whose first axis has the size 1, would be another than that for several. REPLICATED: there is no
// such axis.
static parallel_placement reshaped(const tri_shape *from, parallel_placement is,
                                   const tri_shape *to, int64_t slices) {
    int64_t outside = 1, here = 1;
    for (int i = 0; i < is.dim; i++) outside *= from->dims[i];
    for (int i = 0; i < to->rank; here *= to->dims[i++]) {
        if (i == 0 && is.dim > 0) continue;
        if (here == outside && to->dims[i] % (slices * is.parts) == 0)
            return parallel_sliced_parts(i, is.parts);
        if (here == outside * is.parts && to->dims[i] % slices == 0) return parallel_sliced(i);
    }
    return PARALLEL_REPLICATED;
}

static void rewrite_reshape(parallel_pass *pass, const tri_node *node) {
    parallel_placement is = parallel_placement_of(pass, node->inputs[0]);
    tri_shape from = full_shape(pass, node->inputs[0]), to = full_shape(pass, node->outputs[0]);
    if (is.kind != TRI_PLACEMENT_SLICED) {
        rewrite_replicated(pass, node);
        return;
    }
    parallel_placement out = reshaped(&from, is, &to, pass->tensor_parallel.slices);
    if (out.kind != TRI_PLACEMENT_SLICED) {
        rewrite_replicated(pass, node);
        pass->placements[node->outputs[0].id].gathered = true;
        return;
    }
    tri_reshape_attr attr = {.shape = to};
    attr.shape.dims[out.dim] /= pass->tensor_parallel.slices;
    parallel_emit(pass, node, &pass->values[node->inputs[0].id], &attr, out);
}

// Gets the heads of `keys` (keys or values) that this rank's heads of queries read. If the number
// of heads is a multiple of the number of ranks, the rank reads its slice of the heads. Otherwise
// the number of ranks is a multiple of the number of heads, and several ranks read the same head:
// with 2 heads and 4 ranks, ranks 0 and 1 read head 0.
static tri_value heads_for(parallel_pass *pass, tri_value keys) {
    int64_t heads = full_shape(pass, keys).dims[2], slices = pass->tensor_parallel.slices;
    if (heads % slices == 0) return parallel_ask(pass, keys, parallel_sliced(2));
    tri_collective_attr attr = pass->tensor_parallel;
    attr.dim = 2;
    attr.slices = heads;
    attr.index = pass->tensor_parallel.index * heads / slices;
    attr.partial = true;
    tri_value copy =
        parallel_ask(pass, keys, (parallel_placement){.kind = TRI_PLACEMENT_PARTIAL_GRADIENT});
    return tri_node_add(pass->to, &tri_op_split, &copy, 1, &attr, "");
}

static void rewrite_attention(parallel_pass *pass, const tri_node *node) {
    parallel_placement q = parallel_placement_of(pass, node->inputs[0]);
    int64_t heads = full_shape(pass, node->inputs[0]).dims[2];
    int64_t keys = full_shape(pass, node->inputs[1]).dims[2], slices = pass->tensor_parallel.slices;
    if (q.gathered ||
        (q.kind == TRI_PLACEMENT_SLICED && q.dim == 2 && keys % slices && slices % keys)) {
        tri_graph_fail(pass->to,
                       "strategy.mesh.tensor: %lld ranks cannot share attention of %lld heads with "
                       "%lld of keys and values: it must divide the heads, and be a multiple or a "
                       "divisor of the others; or set the layer's projections to none in "
                       "strategy.tensor",
                       (long long)slices, (long long)heads, (long long)keys);
        return;
    }
    if (q.kind != TRI_PLACEMENT_SLICED || q.dim != 2 || q.parts > 1) {
        follow(pass, node);
        return;
    }
    tri_value in[4] = {parallel_ask(pass, node->inputs[0], q), heads_for(pass, node->inputs[1]),
                       heads_for(pass, node->inputs[2])};
    if (node->input_count > 3) // of attention to caches: its spans
        in[3] = parallel_ask(pass, node->inputs[3], PARALLEL_REPLICATED);
    parallel_emit(pass, node, in, node->attr, q);
}

// Computes the largest score of each row over all slices of the classes. Softmax subtracts it, so
// that no exponential overflows.
static tri_value max_of(parallel_pass *pass, tri_value scores) {
    if (pass->scores.id == scores.id) return pass->max;
    tri_collective_attr attr = pass->tensor_parallel;
    attr.maximum = true;
    tri_value max = tri_node_add(pass->to, &tri_op_row_max, &pass->values[scores.id], 1, NULL, "");
    pass->scores = scores;
    pass->max = tri_node_add(pass->to, &tri_op_all_reduce, &max, 1, &attr, "");
    return pass->max;
}

// Whether the scores are sliced along the classes. Then loss and accuracy work on the slices, so
// that the scores, which are large, need not be gathered. *classes gets the number of all classes,
// and the first class of this rank's slice.
static bool in_classes(const parallel_pass *pass, tri_value scores, tri_classes_attr *classes) {
    parallel_placement is = parallel_placement_of(pass, scores);
    tri_shape full = full_shape(pass, scores);
    classes->classes = full.dims[full.rank - 1];
    classes->first = classes->classes / pass->tensor_parallel.slices * pass->tensor_parallel.index;
    return is.kind == TRI_PLACEMENT_SLICED && is.dim == full.rank - 1 && is.parts == 1;
}

static void rewrite_cross_entropy(parallel_pass *pass, const tri_node *node) {
    tri_graph *g = pass->to;
    tri_classes_attr classes;
    if (!in_classes(pass, node->inputs[0], &classes)) {
        rewrite_replicated(pass, node);
        return;
    }
    tri_value in[4] = {pass->values[node->inputs[0].id],
                       parallel_ask(pass, node->inputs[1], PARALLEL_REPLICATED),
                       max_of(pass, node->inputs[0])};
    tri_value sums = tri_node_add(g, &tri_op_vocab_parallel_softmax, in, 3, &classes, node->name);
    in[3] = tri_node_add(g, &tri_op_all_reduce, &sums, 1, &pass->tensor_parallel, node->name);
    tri_value loss =
        tri_node_add(g, &tri_op_vocab_parallel_cross_entropy, in, 4, &classes, node->name);
    parallel_set(pass, node->outputs[0], loss, PARALLEL_REPLICATED);
}

static void rewrite_accuracy(parallel_pass *pass, const tri_node *node) {
    tri_graph *g = pass->to;
    tri_classes_attr classes;
    if (!in_classes(pass, node->inputs[0], &classes)) {
        rewrite_replicated(pass, node);
        return;
    }
    tri_collective_attr attr = pass->tensor_parallel;
    attr.maximum = true;
    tri_value in[2] = {pass->values[node->inputs[0].id], max_of(pass, node->inputs[0])};
    in[0] = tri_node_add(g, &tri_op_vocab_parallel_argmax, in, 2, &classes, node->name);
    in[0] = tri_node_add(g, &tri_op_all_reduce, in, 1, &attr, node->name);
    in[1] = parallel_ask(pass, node->inputs[1], PARALLEL_REPLICATED);
    tri_value made = tri_node_add(g, &tri_op_vocab_parallel_accuracy, in, 2, &classes, node->name);
    parallel_set(pass, node->outputs[0], made, PARALLEL_REPLICATED);
}

// The ops that the ranks share by rules of their own.
static const struct rule {
    const tri_op *op;
    void (*rewrite)(parallel_pass *pass, const tri_node *node);
} rules[] = {
    {&tri_op_linear, rewrite_linear},
    {&tri_op_embedding, rewrite_embedding},
    {&tri_op_reshape, rewrite_reshape},
    {&tri_op_attention, rewrite_attention},
    {&tri_op_cached_attention, rewrite_attention},
    {&tri_op_cross_entropy, rewrite_cross_entropy},
    {&tri_op_accuracy, rewrite_accuracy},
};

static void rewrite(parallel_pass *pass, const tri_node *node) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == node->op) {
            rules[i].rewrite(pass, node);
            return;
        }
    follow(pass, node);
}

static void share_batch_norm(parallel_pass *pass, const tri_node *node) {
    tri_value in[3];
    for (int k = 0; k < 3; k++) {
        in[k] = parallel_ask(pass, node->inputs[k], PARALLEL_REPLICATED);
        parallel_note_use(pass, node->inputs[k], false);
    }
    tri_value y = ops_batch_norm_shared(pass->to, node, in, &pass->replicas);
    for (int k = 0; k < node->output_count; k++)
        parallel_set(pass, node->outputs[k], tri_node_output(pass->to, y, k), PARALLEL_REPLICATED);
}

void parallel_rewrite(parallel_pass *pass, const tri_node *node) {
    bool shared = pass->options->sync_batch_norm && pass->replicas.slices > 1;
    if (shared && node->op == &tri_op_batch_norm)
        share_batch_norm(pass, node);
    else if (pass->tensor_parallel.slices == 1)
        rewrite_replicated(pass, node);
    else
        rewrite(pass, node);
}

int parallel_parameter_axis(const tri_op *op, int input, tri_split split) {
    static const struct {
        const tri_op *op;
        // `input`: number of the op's input that is the parameter. axis[split]: the axis of the
        // parameter that is sliced with this split.
        int input, axis[3];
    } rows[] = {{&tri_op_linear, 1, {PARALLEL_NO_AXIS, 0, 1}},
                {&tri_op_linear, 2, {PARALLEL_NO_AXIS, 0, PARALLEL_NO_AXIS}},
                {&tri_op_embedding, 1, {PARALLEL_NO_AXIS, 0, PARALLEL_NO_SPLIT}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op && rows[i].input == input) return rows[i].axis[split];
    return split == TRI_SPLIT_NONE ? PARALLEL_NO_AXIS : PARALLEL_NO_SPLIT;
}

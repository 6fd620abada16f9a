// The fusions, and how the two nodes of each one change: one, called the node, reads output 0 of
// the other, called the producer. fuse.c applies the fusions.
#include "pass/fusions.h"

#include "device/map_compiled.h"
#include "ops/product_map.h"

static void *attr_of(const tri_node *node) { return (void *)(uintptr_t)node->attr; }

static bool is_relu(const tri_node *node) {
    const tri_map_attr *attr = node->attr;
    double slope;
    return !attr->expands && !attr->mask &&
           tri_compiled_find(&attr->formula, &slope) == TRI_COMPILED_relu;
}

// All kinds of batch norm merge with ReLU in the same way, because their attributes begin with
// tri_batch_norm_attr.
static bool relu_into_norm(const tri_graph *graph, tri_node *node, tri_node *producer) {
    if (!is_relu(node)) return false;
    ((tri_batch_norm_attr *)attr_of(producer))->relu = true;
    return true;
}

// Whether the network reads the index of a max pooling, which ReLU and dropout would change.
static bool is_indexed(const tri_node *pool) {
    return ((const tri_max_pool2d_attr *)pool->attr)->indexed;
}

// max(relu(x)) is relu(max(x)), so the ReLU moves into the pooling, where it is applied to fewer
// elements: with 2×2 windows, to a quarter.
static bool relu_to_pool(const tri_graph *graph, tri_node *node, tri_node *producer) {
    if (!is_relu(producer) || is_indexed(node)) return false;
    node->inputs[0] = producer->inputs[0];
    ((tri_max_pool2d_attr *)attr_of(node))->relu = true;
    return true;
}
static bool norm_relu_to_pool(const tri_graph *graph, tri_node *node, tri_node *producer) {
    tri_batch_norm_attr *attr = attr_of(producer);
    if (!attr->relu || is_indexed(node)) return false;
    attr->relu = false;
    ((tri_max_pool2d_attr *)attr_of(node))->relu = true;
    return true;
}

// The batch norm applies the pooling while it normalises, so that the large normalised tensor is
// neither written nor read. Its backward node then reads the gradient of the pooled tensor instead
// of the gradient of the normalised tensor.
static bool pool_into_norm(const tri_graph *graph, tri_node *node, tri_node *producer) {
    tri_batch_norm_attr *attr = attr_of(producer);
    const tri_max_pool2d_attr *pool = node->attr;
    // With pooling windows that overlap, an element would be normalised once for each of them.
    bool overlap = pool->stride[0] < pool->kernel[0] || pool->stride[1] < pool->kernel[1];
    if (attr->relu || attr->pool.kernel[0] != 0 || pool->dropout > 0 || pool->indexed || overlap)
        return false;
    attr->pool = *pool;
    return true;
}

static bool dropout_into_pool(const tri_graph *graph, tri_node *node, tri_node *producer) {
    tri_max_pool2d_attr *attr = attr_of(producer);
    tri_map_dropout dropout;
    // run > 0: the dropout acts on a slice of a larger tensor. The pooling cannot draw the mask of
    // a slice.
    if (!tri_map_is_dropout(graph, node, &dropout) || attr->dropout > 0 || dropout.run > 0 ||
        attr->indexed)
        return false;
    attr->dropout = dropout.p;
    attr->key = dropout.key;
    producer->inputs[1] = node->inputs[1];
    return true;
}

// linear(flatten(x)) can sum over the axes of x itself, whatever the layout of x, so that x need
// not be copied into rows.
static bool flatten_into_linear(const tri_graph *graph, tri_node *node, tri_node *producer) {
    tri_linear_attr *attr = attr_of(node);
    tri_shape from = tri_value_shape(graph, producer->inputs[0]);
    tri_shape to = tri_value_shape(graph, producer->outputs[0]);
    if (attr->axes != 1 || to.rank != 2 || from.rank < 3 || from.dims[0] != to.dims[0])
        return false;
    attr->axes = from.rank - 1;
    node->inputs[0] = producer->inputs[0];
    return true;
}

// -log_softmax(x)[label] is the cross-entropy of x, so the loss can read x itself instead of
// log_softmax(x). So can accuracy, because log_softmax keeps the order of the scores.
static bool log_softmax_into_loss(const tri_graph *graph, tri_node *node, tri_node *producer) {
    const tri_softmax_attr *softmax = producer->attr;
    if (producer->block != node->block || softmax->behind != 0) return false;
    if (node->op == &tri_op_nll_loss) node->op = &tri_op_cross_entropy;
    node->inputs[0] = producer->inputs[0];
    return true;
}

// Beside a residual connection, the gradient of a norm's input is added to another gradient. After
// the fusion the norm's backward node does this addition: it gets the other gradient as its input
// number `input`.
static bool merge_sum(tri_node *producer, int input, tri_value other) {
    if (tri_value_is(producer->inputs[input])) return false;
    producer->inputs[input] = other;
    return true;
}
static bool sum_into_rms_norm(const tri_graph *graph, tri_node *node, tri_node *producer) {
    bool first = node->inputs[0].id == producer->outputs[0].id;
    return merge_sum(producer, 4, node->inputs[first ? 1 : 0]);
}
static bool sum_into_layer_norm(const tri_graph *graph, tri_node *node, tri_node *producer) {
    bool first = node->inputs[0].id == producer->outputs[0].id;
    return merge_sum(producer, 5, node->inputs[first ? 1 : 0]);
}

// relu(a + b), behind a residual connection: the sum need not go through memory. ReLU rounds
// nothing, so the bits stay.
static bool sum_into_relu(const tri_graph *graph, tri_node *node, tri_node *producer) {
    tri_node sum = *producer;
    tri_map_attr attr = {.expands = false};
    bool same =
        tri_value_get(graph, sum.inputs[0])->dtype == tri_value_get(graph, sum.inputs[1])->dtype;
    if (!is_relu(node) || !same ||
        tri_formula_parse("a, b -> a + b", NULL, &attr.formula) != TRI_OK)
        return false;
    sum.op = &tri_op_map;
    sum.attr = &attr;
    return pass_merge_maps(graph, node, &sum);
}

// These macros make rows of the table. FORWARD: the fusion is tried before autodiff, and the
// producer makes the node's first input. BACKWARD: the fusion is tried after autodiff, and the
// producer makes the node's input number `input_`. LAST: it is tried behind all passes that know
// the nodes of single ops.
#define FORWARD(name_, op_, producer_, result_, merge_)                                            \
    {                                                                                              \
        .name = name_, .time = TRI_FUSE_BEFORE_AUTODIFF, .op = &tri_op_##op_,                      \
        .producer = &tri_op_##producer_, .result = FUSION_##result_, .merge = merge_               \
    }
#define BACKWARD(name_, op_, input_, producer_, result_, merge_)                                   \
    {                                                                                              \
        .name = name_, .time = TRI_FUSE_AFTER_AUTODIFF, .op = &tri_op_##op_, .input = input_,      \
        .producer = &tri_op_##producer_, .result = FUSION_##result_, .merge = merge_               \
    }
#define LAST(name_, op_, producer_, result_, merge_)                                               \
    {                                                                                              \
        .name = name_, .time = TRI_FUSE_LAST, .op = &tri_op_##op_,                                 \
        .producer = &tri_op_##producer_, .result = FUSION_##result_, .merge = merge_               \
    }

// clang-format off
const fusion pass_fusions[] = {
    FORWARD("ReLU into batch norm", map, batch_norm, PRODUCER_STAYS, relu_into_norm),
    FORWARD("ReLU into batch norm", map, batch_norm_inference, PRODUCER_STAYS, relu_into_norm),
    FORWARD("ReLU into batch norm", map, batch_norm_shared, PRODUCER_STAYS, relu_into_norm),
    FORWARD("ReLU behind max pooling", max_pool2d, map, BOTH_STAY, relu_to_pool),
    FORWARD("ReLU behind max pooling", max_pool2d, batch_norm, BOTH_STAY, norm_relu_to_pool),
    FORWARD("ReLU behind max pooling", max_pool2d, batch_norm_inference, BOTH_STAY,
            norm_relu_to_pool),
    FORWARD("ReLU behind max pooling", max_pool2d, batch_norm_shared, BOTH_STAY,
            norm_relu_to_pool),
    FORWARD("max pooling into batch norm", max_pool2d, batch_norm, PRODUCER_STAYS, pool_into_norm),
    FORWARD("max pooling into batch norm", max_pool2d, batch_norm_inference, PRODUCER_STAYS,
            pool_into_norm),
    FORWARD("max pooling into batch norm", max_pool2d, batch_norm_shared, PRODUCER_STAYS,
            pool_into_norm),
    FORWARD("dropout into max pooling", map, max_pool2d, PRODUCER_STAYS, dropout_into_pool),
    FORWARD("flatten into linear", linear, reshape, NODE_STAYS, flatten_into_linear),
    FORWARD("log-softmax into loss", nll_loss, log_softmax, NODE_STAYS, log_softmax_into_loss),
    FORWARD("log-softmax into accuracy", accuracy, log_softmax, NODE_STAYS,
            log_softmax_into_loss),
    FORWARD("map into map", map, map, NODE_ABSORBS, pass_merge_maps),
    BACKWARD("map into map", map, 0, map, NODE_ABSORBS, pass_merge_maps),
    BACKWARD("sum into ReLU", map, 0, add, NODE_ABSORBS, sum_into_relu),
    BACKWARD("map into reduction", reduce, 0, map, NODE_ABSORBS, pass_merge_map_into_reduce),
    BACKWARD("sum into norm", add, 0, rms_norm_grad, PRODUCER_STAYS, sum_into_rms_norm),
    BACKWARD("sum into norm", add, 1, rms_norm_grad, PRODUCER_STAYS, sum_into_rms_norm),
    BACKWARD("sum into norm", add, 0, layer_norm_grad, PRODUCER_STAYS, sum_into_layer_norm),
    BACKWARD("sum into norm", add, 1, layer_norm_grad, PRODUCER_STAYS, sum_into_layer_norm),
#define X(op, attr)                                                                                \
    LAST("map into product", map, op, PRODUCER_ABSORBS, pass_merge_map_into_product),
    TRI_PRODUCT_LIST(X)
#undef X
};
// clang-format on
const int pass_fusion_count = sizeof pass_fusions / sizeof *pass_fusions;

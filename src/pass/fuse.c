// Fusion: merges chains of nodes that kernels compute in one go.
#include "ops/ops.h"
#include "pass/pass.h"

#include <string.h>

// The graph while it is rewritten in place.
typedef struct fusion {
    tri_graph *graph;
    tri_value *instead; // by value: the one that replaced it, or itself
    int *uses;          // by value: how many nodes and metrics read it
} fusion;

static tri_value current(const fusion *f, tri_value value) {
    while (tri_value_is(value) && f->instead[value.id].id != value.id) value = f->instead[value.id];
    return value;
}

static void count_uses(fusion *f) {
    const tri_graph *g = f->graph;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) f->uses[g->nodes[i].inputs[k].id]++;
    for (int i = 0; i < g->metric_count; i++) f->uses[g->metrics[i].value.id]++;
}

// The node that makes input 0 of `node`, if it is of `op`, in the same block, and has no other
// reader. Else NULL.
static tri_node *sole_producer(fusion *f, const tri_node *node, const tri_op *op) {
    tri_value x = node->inputs[0];
    const tri_value_info *info = tri_value_get(f->graph, x);
    if (info->kind != TRI_VALUE_RESULT || info->output != 0 || f->uses[x.id] != 1) return NULL;
    tri_node *producer = &f->graph->nodes[info->node];
    return producer->op == op && producer->block == node->block ? producer : NULL;
}

// The same for any kind of batch norm; their attributes begin with tri_batch_norm_attr.
static tri_node *batch_norm_producer(fusion *f, const tri_node *node) {
    static const tri_op *const ops[] = {&tri_op_batch_norm, &tri_op_batch_norm_inference,
                                        &tri_op_batch_norm_shared};
    tri_node *found = NULL;
    for (int i = 0; i < 3 && !found; i++) found = sole_producer(f, node, ops[i]);
    return found;
}

static void *edit_attr(fusion *f, tri_node *node) {
    void *copy = tri_arena_alloc(f->graph->arena, node->op->attr_bytes);
    memcpy(copy, node->attr, node->op->attr_bytes);
    node->attr = copy;
    return copy;
}

// The node's first output becomes that of `producer`; the sweep drops the node.
static void replace_by(fusion *f, const tri_node *node, const tri_node *producer) {
    f->instead[node->outputs[0].id] = producer->outputs[0];
    f->uses[producer->outputs[0].id] = f->uses[node->outputs[0].id];
}

// relu(conv(x)) and the like: the producer applies the activation itself.
static void fuse_activation(fusion *f, tri_node *node, tri_activation activation, double slope) {
    tri_node *p = sole_producer(f, node, &tri_op_conv2d);
    if (p && ((const tri_conv2d_attr *)p->attr)->activation == TRI_ACTIVATION_NONE) {
        tri_conv2d_attr *attr = edit_attr(f, p);
        attr->activation = activation;
        attr->slope = slope;
        replace_by(f, node, p);
        return;
    }
    p = sole_producer(f, node, &tri_op_linear);
    if (p && ((const tri_linear_attr *)p->attr)->activation == TRI_ACTIVATION_NONE) {
        tri_linear_attr *attr = edit_attr(f, p);
        attr->activation = activation;
        attr->slope = slope;
        replace_by(f, node, p);
        return;
    }
    if (activation != TRI_ACTIVATION_RELU) return;
    p = batch_norm_producer(f, node);
    if (p) {
        ((tri_batch_norm_attr *)edit_attr(f, p))->relu = true;
        replace_by(f, node, p);
    }
}

// max(relu(x)) is relu(max(x)), on a quarter of the elements: the pool takes the ReLU over.
static void fuse_pool(fusion *f, tri_node *node) {
    tri_node *p = sole_producer(f, node, &tri_op_conv2d);
    if (p && ((const tri_conv2d_attr *)p->attr)->activation == TRI_ACTIVATION_RELU) {
        ((tri_conv2d_attr *)edit_attr(f, p))->activation = TRI_ACTIVATION_NONE;
        ((tri_max_pool2d_attr *)edit_attr(f, node))->relu = true;
        return;
    }
    p = batch_norm_producer(f, node);
    if (p && ((const tri_batch_norm_attr *)p->attr)->relu) {
        ((tri_batch_norm_attr *)edit_attr(f, p))->relu = false;
        ((tri_max_pool2d_attr *)edit_attr(f, node))->relu = true;
    }
}

static void fuse_dropout(fusion *f, tri_node *node) {
    tri_node *p = sole_producer(f, node, &tri_op_max_pool2d);
    if (!p || ((const tri_max_pool2d_attr *)p->attr)->dropout > 0) return;
    const tri_dropout_attr *dropout = node->attr;
    if (dropout->run > 0) return; // its tensor is a slice
    tri_max_pool2d_attr *attr = edit_attr(f, p);
    attr->dropout = dropout->p;
    attr->key = dropout->key;
    p->inputs[1] = node->inputs[1];
    replace_by(f, node, p);
}

// linear(flatten(x)) contracts the axes of x itself, whatever its layout.
static void fuse_flatten(fusion *f, tri_node *node) {
    const tri_node *p = tri_value_node(f->graph, node->inputs[0]);
    if (!p || p->op != &tri_op_reshape || ((const tri_linear_attr *)node->attr)->axes != 1) return;
    tri_shape from = tri_value_shape(f->graph, p->inputs[0]);
    tri_shape to = tri_value_shape(f->graph, p->outputs[0]);
    if (to.rank != 2 || from.rank < 3 || from.dims[0] != to.dims[0]) return;
    ((tri_linear_attr *)edit_attr(f, node))->axes = from.rank - 1;
    f->uses[node->inputs[0].id]--;
    node->inputs[0] = p->inputs[0];
    f->uses[node->inputs[0].id]++;
}

// -log_softmax(x)[label] is the cross-entropy of x; the largest score stays the largest.
static void fuse_log_softmax(fusion *f, tri_node *node, const tri_op *op) {
    const tri_node *p = tri_value_node(f->graph, node->inputs[0]);
    if (!p || p->op != &tri_op_log_softmax || p->block != node->block) return;
    node->op = op;
    node->inputs[0] = p->inputs[0];
}

static void fuse_node(fusion *f, tri_node *node) {
    if (node->op == &tri_op_relu) fuse_activation(f, node, TRI_ACTIVATION_RELU, 0);
    if (node->op == &tri_op_leaky_relu)
        fuse_activation(f, node, TRI_ACTIVATION_LEAKY_RELU,
                        ((const tri_leaky_relu_attr *)node->attr)->slope);
    if (node->op == &tri_op_max_pool2d) fuse_pool(f, node);
    if (node->op == &tri_op_dropout) fuse_dropout(f, node);
    if (node->op == &tri_op_linear) fuse_flatten(f, node);
    if (node->op == &tri_op_nll_loss) fuse_log_softmax(f, node, &tri_op_cross_entropy);
    if (node->op == &tri_op_accuracy) fuse_log_softmax(f, node, &tri_op_accuracy);
}

tri_status tri_pass_fuse(tri_graph *graph) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    fusion f = {.graph = graph,
                .instead = TRI_NEW_ARRAY(graph->arena, tri_value, graph->value_count),
                .uses = TRI_NEW_ARRAY(graph->arena, int, graph->value_count)};
    for (int i = 0; i < graph->value_count; i++) f.instead[i].id = (uint32_t)i;
    count_uses(&f);
    for (int i = 0; i < graph->node_count; i++) {
        tri_node *node = &graph->nodes[i];
        for (int k = 0; k < node->input_count; k++) node->inputs[k] = current(&f, node->inputs[k]);
        fuse_node(&f, node);
    }
    for (int i = 0; i < graph->metric_count; i++)
        graph->metrics[i].value = current(&f, graph->metrics[i].value);
    return tri_pass_sweep(graph);
}

// Lets a linear layer with many outputs (scores), and the cross-entropy of these scores, be
// computed chunk by chunk, some rows at a time. The scores of a language model are its largest
// tensor: a row for each token, with a number for each word of the vocabulary. Where nothing else
// reads them, one node takes the place of the layer, the loss and their gradients
// (ops/linear_cross_entropy.c), and only the scores of a chunk are in memory at a time. Training
// computes the loss together with the gradients, in the backward pass, because it would otherwise
// have to compute the scores twice.
#include "ops/ops.h"
#include "pass/pass.h"

#include <string.h>

// Scores of fewer bytes stay whole: it would save little memory to compute them in chunks.
enum { WHOLE_BYTES = 1 << 23 };

// The nodes around one cross-entropy that a single new node replaces, by their indices in the
// graph; -1: there is none.
typedef struct replaced_nodes {
    int linear, loss, accuracy; // nodes of the forward pass; only evaluation has an accuracy
    int loss_grad, weight_grad, x_grad; // nodes of the backward pass; -1 in evaluation
} replaced_nodes;

typedef struct chunking {
    tri_graph *graph;
    const tri_device_description *device;
    int *uses;     // uses[v]: how many nodes, metrics, outputs and gradients read value v
    bool *dropped; // dropped[i]: node i has been replaced
} chunking;

static void count_uses(chunking *c) {
    const tri_graph *g = c->graph;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) c->uses[g->nodes[i].inputs[k].id]++;
    for (int i = 0; i < g->metric_count; i++) c->uses[g->metrics[i].value.id]++;
    for (int i = 0; i < g->output_count; i++) c->uses[g->outputs[i].value.id]++;
    for (int i = 0; i < g->gradient_count; i++) c->uses[g->gradients[i].value.id]++;
}

// Finds the only node of `op` whose input number `input` is the value; -1: there is none, or there
// are several.
static int reader_of(const chunking *c, tri_value value, const tri_op *op, int input) {
    int found = -1;
    for (int i = 0; i < c->graph->node_count; i++) {
        const tri_node *node = &c->graph->nodes[i];
        if (node->op != op || node->inputs[input].id != value.id) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

// Whether two values hold the same numbers. This is so if they are one value. It is also so if a
// node of the backward pass computes `again` in the way in which a node of the forward pass has
// computed `value`: cheap ops are computed again instead of kept (TRI_OP_RECOMPUTABLE).
static bool is_same(const tri_graph *g, tri_value value, tri_value again) {
    if (value.id == again.id) return true;
    const tri_node *a = tri_value_node(g, value), *b = tri_value_node(g, again);
    if (!a || !b || a->op != b->op || a->block != b->block) return false;
    if (!(a->op->flags & TRI_OP_RECOMPUTABLE) || a->outputs[0].id != value.id ||
        b->outputs[0].id != again.id)
        return false;
    for (int k = 0; k < a->input_count; k++)
        if (a->inputs[k].id != b->inputs[k].id) return false;
    return a->op->attr_bytes == 0 || !memcmp(a->attr, b->attr, a->op->attr_bytes);
}

// Whether the op linear_cross_entropy can compute this layer, and the layer's scores are so large
// that chunks save memory.
static bool takes_layer(const tri_graph *g, const tri_node *linear) {
    const tri_linear_attr *a = linear->attr;
    tri_shape scores = tri_value_shape(g, linear->outputs[0]);
    if (a->axes != 1 || a->wide) return false;
    int64_t rows = tri_shape_count(&scores) / scores.dims[scores.rank - 1];
    return tri_value_bytes(g, linear->outputs[0]) >= WHOLE_BYTES && tri_loss_chunk(rows) < rows;
}

// Finds the backward nodes of the linear layer. False: the gradients of its weight and of its input
// x are not both computed, or further nodes read the gradient of the scores. Also false if the
// gradient of x is one rank's term of a sum over ranks: that gradient has to be F32, and the node
// that replaces these nodes would make it in x's type.
static bool find_gradients(const chunking *c, replaced_nodes *r) {
    const tri_graph *g = c->graph;
    const tri_node *linear = &g->nodes[r->linear];
    tri_value dy = g->nodes[r->loss_grad].outputs[0];
    r->weight_grad = reader_of(c, dy, &tri_op_linear_grad_weight, 1);
    r->x_grad = reader_of(c, dy, &tri_op_linear_grad_input, 0);
    if (c->uses[dy.id] != 2 || r->weight_grad < 0 || r->x_grad < 0) return false;
    const tri_node *weight_grad = &g->nodes[r->weight_grad], *x_grad = &g->nodes[r->x_grad];
    return is_same(g, linear->inputs[0], weight_grad->inputs[0]) &&
           x_grad->inputs[1].id == linear->inputs[1].id &&
           !((const tri_linear_grad_attr *)x_grad->attr)->wide;
}

// Finds the nodes around the cross-entropy `loss` that one node can replace. False: it cannot
// replace them, for example because the scores do not come from a linear layer, or because further
// nodes read the scores. There are such further nodes where tensor-parallel ranks divide the
// classes: they combine the results of all ranks (vocab_parallel_loss.c).
static bool find_replaced(const chunking *c, int loss, replaced_nodes *r) {
    const tri_graph *g = c->graph;
    const tri_node *node = &g->nodes[loss];
    const tri_node *linear = tri_value_node(g, node->inputs[0]);
    if (!linear || linear->op != &tri_op_linear || linear->block != node->block) return false;
    tri_value scores = node->inputs[0];
    *r = (replaced_nodes){
        .linear = (int)(linear - g->nodes), .loss = loss, .weight_grad = -1, .x_grad = -1};
    r->accuracy = reader_of(c, scores, &tri_op_accuracy, 0);
    r->loss_grad = reader_of(c, scores, &tri_op_cross_entropy_grad, 0);
    if (!takes_layer(g, linear)) return false;
    if (c->uses[scores.id] != 1 + (r->accuracy >= 0) + (r->loss_grad >= 0)) return false;
    int other = r->accuracy >= 0 ? r->accuracy : r->loss_grad;
    if (other >= 0 && (g->nodes[other].inputs[1].id != node->inputs[1].id ||
                       g->nodes[other].block != node->block))
        return false;
    if (r->loss_grad < 0) return true;
    return r->accuracy < 0 && find_gradients(c, r);
}

// Makes a node with these inputs. If outputs[k] is a value of the graph, it becomes the node's
// output k; if outputs[k] is the value none, output k is a new value. The node is not in the
// graph's list of nodes yet.
static tri_node make_node(const chunking *c, const tri_op *op, const tri_node *linear,
                          tri_phase phase, const void *attr, const tri_value *inputs,
                          const tri_value *outputs) {
    tri_graph *g = c->graph;
    tri_phase before = g->phase;
    int block = g->block;
    g->phase = phase;
    g->block = linear->block;
    tri_node_add(g, op, inputs, op->input_count, attr, linear->name);
    g->phase = before;
    g->block = block;
    if (g->status != TRI_OK) return (tri_node){0};
    tri_node node = g->nodes[--g->node_count];
    for (int k = 0; k < node.output_count; k++) {
        if (!tri_value_is(outputs[k])) continue;
        g->values[node.outputs[k].id] = (tri_value_info){0};
        node.outputs[k] = outputs[k];
    }
    return node;
}

static tri_node evaluation_node(const chunking *c, const replaced_nodes *r) {
    const tri_graph *g = c->graph;
    const tri_node *linear = &g->nodes[r->linear], *loss = &g->nodes[r->loss];
    tri_linear_cross_entropy_attr attr = {.accuracy = r->accuracy >= 0};
    tri_value outputs[3] = {loss->outputs[0]};
    if (attr.accuracy) outputs[1] = g->nodes[r->accuracy].outputs[0];
    return make_node(
        c, &tri_op_linear_cross_entropy, linear, TRI_PHASE_FORWARD, &attr,
        (tri_value[]){linear->inputs[0], linear->inputs[1], loss->inputs[1], linear->inputs[2]},
        outputs);
}

static tri_node training_node(const chunking *c, const replaced_nodes *r) {
    const tri_graph *g = c->graph;
    const tri_node *linear = &g->nodes[r->linear], *loss = &g->nodes[r->loss];
    const tri_node *weight_grad = &g->nodes[r->weight_grad], *x_grad = &g->nodes[r->x_grad];
    tri_value outputs[5] = {x_grad->outputs[0], weight_grad->outputs[0], weight_grad->outputs[1],
                            loss->outputs[0]};
    tri_value inputs[] = {weight_grad->inputs[0], linear->inputs[1], loss->inputs[1],
                          g->nodes[r->loss_grad].inputs[2], linear->inputs[2]};
    return make_node(c, &tri_op_linear_cross_entropy_grad, linear, TRI_PHASE_BACKWARD, NULL, inputs,
                     outputs);
}

static bool has_kernel(const chunking *c, const tri_node *node) {
    if (!c->device) return true;
    const tri_kernel_def *def = tri_device_select(c->device, c->graph, node);
    return def && def->chunks_scores;
}

// Replaces the nodes of `r` by one node, which stands where the last of them stood, because only
// then all that it reads has been computed. Does nothing if the device has no kernel for the node.
static void replace(chunking *c, const replaced_nodes *r) {
    tri_graph *g = c->graph;
    bool training = r->loss_grad >= 0;
    tri_node node = training ? training_node(c, r) : evaluation_node(c, r);
    if (g->status != TRI_OK || !has_kernel(c, &node)) return;
    const int replaced[] = {r->linear,    r->loss,        r->accuracy,
                            r->loss_grad, r->weight_grad, r->x_grad};
    int last = 0;
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        if (replaced[i] < 0) continue;
        c->dropped[replaced[i]] = true;
        if (replaced[i] > last) last = replaced[i];
    }
    g->values[g->nodes[r->linear].outputs[0].id] = (tri_value_info){0};
    if (training) g->values[g->nodes[r->loss_grad].outputs[0].id] = (tri_value_info){0};
    c->dropped[last] = false;
    g->nodes[last] = node;
}

// Removes the nodes that were replaced. The remaining nodes move up in the list, so each of their
// outputs gets the new index of its node.
static void remove_dropped(const chunking *c) {
    tri_graph *g = c->graph;
    int kept = 0;
    for (int i = 0; i < g->node_count; i++) {
        if (c->dropped[i]) continue;
        tri_node node = g->nodes[i];
        for (int k = 0; k < node.output_count; k++) {
            g->values[node.outputs[k].id].node = kept;
            g->values[node.outputs[k].id].output = k;
        }
        g->nodes[kept++] = node;
    }
    g->node_count = kept;
}

tri_status tri_pass_chunk_loss(tri_graph *graph, const tri_device_description *device) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    chunking c = {.graph = graph,
                  .device = device,
                  .uses = TRI_NEW_ARRAY(graph->arena, int, graph->value_count),
                  .dropped = TRI_NEW_ARRAY(graph->arena, bool, graph->node_count)};
    count_uses(&c);
    for (int i = 0; i < graph->node_count; i++) {
        replaced_nodes r;
        if (c.dropped[i] || graph->nodes[i].op != &tri_op_cross_entropy) continue;
        if (find_replaced(&c, i, &r)) replace(&c, &r);
    }
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    remove_dropped(&c);
    return tri_pass_sweep(graph);
}

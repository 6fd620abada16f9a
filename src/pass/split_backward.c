// Splits the backward pass: moves the nodes for which no other block waits from the phase BACKWARD
// into the phase WEIGHT. A block is a layer or a group of layers. A pipeline can run the moved
// nodes later, at times when it would otherwise wait (the order zero-bubble).
#include "ops/ops.h"
#include "pass/pass.h"

#include <string.h>

// Finds which nodes other blocks wait for. awaited[i]: another block reads node i's outputs,
// directly or through other nodes. Such a node cannot be run later.
static bool *find_awaited(const tri_graph *g) {
    bool *awaited = TRI_NEW_ARRAY(g->arena, bool, g->node_count);
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *reader = &g->nodes[i];
        if (reader->phase != TRI_PHASE_BACKWARD) continue;
        for (int k = 0; k < reader->input_count; k++) {
            const tri_value_info *info = tri_value_get(g, reader->inputs[k]);
            if (info->kind != TRI_VALUE_RESULT) continue;
            if (g->nodes[info->node].block != reader->block || awaited[i])
                awaited[info->node] = true;
        }
    }
    return awaited;
}

// Adds a copy of each parameter's gradient that an awaited node makes, and lets the copy be the
// gradient. The awaited node cannot move to the phase WEIGHT, but the copy will. So all gradients
// of a block are written in one phase, and that means by one action of the schedule. This is
// necessary, because the memory for the gradients of a block is available only during one action.
static void copy_gradients(tri_graph *g, const bool *awaited) {
    int block = g->block;
    tri_phase phase = g->phase;
    g->phase = TRI_PHASE_BACKWARD;
    for (int i = 0; i < g->gradient_count; i++) {
        tri_gradient_info *gradient = &g->gradients[i];
        const tri_node *maker = tri_value_node(g, gradient->value);
        if (maker->phase != TRI_PHASE_BACKWARD || !awaited[maker - g->nodes]) continue;
        g->block = gradient->block;
        gradient->value = tri_node_add(g, &tri_op_reorder, &gradient->value, 1, NULL, "");
    }
    g->block = block;
    g->phase = phase;
}

// Whether node i moves to the phase WEIGHT. The nodes from `before` on are the copies that
// copy_gradients has made, which move too.
static bool moves_to_weight(const tri_graph *g, int i, int before, const bool *awaited) {
    return g->nodes[i].phase == TRI_PHASE_BACKWARD && (i >= before || !awaited[i]);
}

tri_status tri_pass_split_backward(tri_graph *graph) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    int before = graph->node_count, count = 0;
    const bool *awaited = find_awaited(graph);
    copy_gradients(graph, awaited);
    tri_node *nodes = TRI_NEW_ARRAY(graph->arena, tri_node, graph->node_count);
    for (int i = 0; i < before; i++)
        if (graph->nodes[i].phase != TRI_PHASE_BACKWARD || awaited[i])
            nodes[count++] = graph->nodes[i];
    // next[b] first counts the nodes of block b that move to WEIGHT. Then it is the index in
    // `nodes` at which the next one of them is put. The nodes of the last block come first there.
    int *next = TRI_NEW_ARRAY(graph->arena, int, graph->block_count);
    for (int i = 0; i < graph->node_count; i++)
        if (moves_to_weight(graph, i, before, awaited)) next[graph->nodes[i].block]++;
    for (int block = graph->block_count - 1; block >= 0; block--) {
        int waiting = next[block];
        next[block] = count;
        count += waiting;
    }
    for (int i = 0; i < graph->node_count; i++) {
        if (!moves_to_weight(graph, i, before, awaited)) continue;
        tri_node *node = &nodes[next[graph->nodes[i].block]++];
        *node = graph->nodes[i];
        node->phase = TRI_PHASE_WEIGHT;
    }
    TRI_ASSERT(count == graph->node_count);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < nodes[i].output_count; k++)
            graph->values[nodes[i].outputs[k].id].node = i;
    if (count) memcpy(graph->nodes, nodes, (size_t)count * sizeof *nodes);
    return tri_graph_verify(graph);
}

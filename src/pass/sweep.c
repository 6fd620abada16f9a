// The sweep: removes nodes whose outputs no node, metric, output of the model or gradient reads.
// Other passes leave such nodes behind, because it is simpler to remove all of them here.
#include "pass/pass.h"

// Marks the nodes that stay: those whose outputs are read, and those that change memory.
static void mark(const tri_graph *g, bool *live) {
    for (int i = 0; i < g->metric_count; i++) live[g->metrics[i].value.id] = true;
    for (int i = 0; i < g->output_count; i++) live[g->outputs[i].value.id] = true;
    for (int i = 0; i < g->gradient_count; i++) live[g->gradients[i].value.id] = true;
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *node = &g->nodes[i];
        bool stays = node->op->flags & TRI_OP_UPDATE;
        for (int k = 0; k < node->output_count; k++) stays = stays || live[node->outputs[k].id];
        if (!stays) continue;
        for (int k = 0; k < node->input_count; k++) live[node->inputs[k].id] = true;
        for (int k = 0; k < node->output_count; k++) live[node->outputs[k].id] = true;
    }
    live[0] = false;
}

tri_status tri_pass_sweep(tri_graph *graph) {
    bool *live = TRI_NEW_ARRAY(graph->arena, bool, graph->value_count);
    mark(graph, live);
    int kept = 0;
    for (int i = 0; i < graph->node_count; i++) {
        tri_node *node = &graph->nodes[i];
        if (!(node->op->flags & TRI_OP_UPDATE) && !live[node->outputs[0].id]) {
            for (int k = 0; k < node->output_count; k++)
                graph->values[node->outputs[k].id] = (tri_value_info){0};
            continue;
        }
        for (int k = 0; k < node->output_count; k++) graph->values[node->outputs[k].id].node = kept;
        graph->nodes[kept++] = *node;
    }
    graph->node_count = kept;
    return tri_graph_verify(graph);
}

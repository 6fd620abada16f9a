// Checks the rules that every graph must keep after every pass, so that a wrong pass is found at
// once and does not first show as wrong losses.
#include "graph/graph.h"

#include <string.h>

static tri_status fail(const tri_graph *g, int index, const char *rule) {
    const tri_node *node = &g->nodes[index];
    return TRI_FAIL(TRI_INTERNAL, "graph: node %d (%s %s): %s", index, node->op->name, node->name,
                    rule);
}

static tri_status verify_inputs(const tri_graph *g, int index) {
    const tri_node *node = &g->nodes[index];
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) {
            if (i < node->op->input_count - node->op->optional_inputs)
                return fail(g, index, "a needed input is missing");
            continue;
        }
        if (node->inputs[i].id >= (uint32_t)g->value_count)
            return fail(g, index, "reads a value that does not exist");
        const tri_value_info *info = tri_value_get(g, node->inputs[i]);
        if (info->kind == TRI_VALUE_RESULT && info->node >= index)
            return fail(g, index, "reads a value before it is made");
    }
    return TRI_OK;
}

static tri_status verify_outputs(const tri_graph *g, int index) {
    const tri_node *node = &g->nodes[index];
    tri_op_signature made = tri_node_signature(g, node), ruled = made;
    memset(ruled.out, 0, sizeof ruled.out);
    tri_status status = node->op->shape(node->attr, &ruled);
    if (status != TRI_OK) return tri_status_context(status, "graph: node %d", index);
    for (int i = 0; i < node->output_count; i++) {
        const tri_value_info *info = tri_value_get(g, node->outputs[i]);
        if (info->kind != TRI_VALUE_RESULT || info->node != index || info->output != i)
            return fail(g, index, "an output belongs to another node");
        if (!tri_shape_equal(&made.out[i], &ruled.out[i]) || made.out_type[i] != ruled.out_type[i])
            return fail(g, index, "an output's shape or type is not what the rule says");
    }
    return TRI_OK;
}

tri_status tri_graph_verify(const tri_graph *graph) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        if (node->block < 0 || node->block >= graph->block_count)
            return fail(graph, i, "belongs to no block");
        TRI_TRY(verify_inputs(graph, i));
        TRI_TRY(verify_outputs(graph, i));
        if (i == 0) continue;
        const tri_node *before = &graph->nodes[i - 1];
        if (node->phase < before->phase) return fail(graph, i, "its phase has ended before");
        if (node->phase != before->phase) continue;
        if (node->phase == TRI_PHASE_FORWARD && node->block < before->block)
            return fail(graph, i, "its block has ended before");
        bool backward = node->phase == TRI_PHASE_BACKWARD || node->phase == TRI_PHASE_WEIGHT;
        if (backward && node->block > before->block)
            return fail(graph, i, "its block comes too late in the backward pass");
    }
    for (int i = 0; i < graph->gradient_count; i++) {
        const tri_parameter_info *p = &graph->parameters[graph->gradients[i].parameter];
        const tri_value_info *gradient = tri_value_get(graph, graph->gradients[i].value);
        if (!tri_shape_equal(&gradient->shape, &p->shape))
            return TRI_FAIL(TRI_INTERNAL, "graph: the gradient of %s has another shape", p->name);
        if (gradient->dtype != p->dtype)
            return TRI_FAIL(TRI_INTERNAL, "graph: the gradient of %s has another type", p->name);
    }
    return TRI_OK;
}

// The layout pass: asks the device which layout (order of elements in memory) each kernel needs,
// and adds reorders where a value has another layout. Kernels often need blocked layouts, because
// one instruction can then read a vector of neighbouring channels. The home layout of a parameter
// is the one in which it is kept between steps.
#include "ops/ops.h"
#include "pass/pass.h"

// The graph while its nodes are copied into a new list, with reorders among them.
typedef struct relayout {
    tri_graph *graph;
    const tri_device_description *device;
    tri_value *reordered; // reordered[v]: the latest reordered copy of value v, or none
    int reordered_count;
    // A linked list for each value v: the gradients in graph->gradients that are value v.
    // gradient_of[v] is the first of them, and next_gradient[i] follows gradient i. The entries of
    // both arrays are an index + 1; 0: the list ends.
    int *gradient_of, *next_gradient;
} relayout;

// Whether a node in the current phase and block can read what this one makes. A stage of a pipeline
// runs its backward pass without waiting for the forward passes of later stages.
static bool is_in_reach(const tri_graph *g, tri_value made) {
    const tri_node *maker = tri_value_node(g, made);
    return maker->phase != TRI_PHASE_FORWARD || maker->block <= g->block;
}

// Adds a node that reorders `value` to `layout`, in the current phase and block, and returns its
// output. If the latest reorder of `value` was to the same layout, returns the output of that node,
// unless a later block's forward pass has made it.
static tri_value reorder(relayout *r, tri_value value, const tri_layout *layout) {
    tri_graph *g = r->graph;
    if ((int)value.id < r->reordered_count && tri_value_is(r->reordered[value.id])) {
        tri_value made = r->reordered[value.id];
        if (tri_layout_equal(&g->values[made.id].layout, layout) && is_in_reach(g, made))
            return made;
    }
    tri_value made = tri_node_add(g, &tri_op_reorder, &value, 1, NULL, "");
    if (!tri_value_is(made)) return made;
    g->values[made.id].layout = *layout;
    if ((int)value.id < r->reordered_count) r->reordered[value.id] = made;
    return made;
}

static tri_status layout_node(relayout *r, tri_node node) {
    tri_graph *g = r->graph;
    const tri_kernel_def *def = tri_device_select(r->device, g, &node);
    if (!def && !(node.op->flags & TRI_OP_COLLECTIVE))
        return TRI_FAIL(TRI_UNSUPPORTED, "device %s has no kernel for %s '%s'",
                        r->device->backend->name, node.op->name, node.name);
    tri_layout in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
    for (int k = 0; k < node.input_count; k++) in[k] = g->values[node.inputs[k].id].layout;
    tri_kernel_layouts(def, r->device, g, &node, in, out);
    g->phase = node.phase;
    g->block = node.block;
    for (int k = 0; k < node.input_count; k++) {
        if (!tri_value_is(node.inputs[k])) continue;
        tri_value_info *info = &g->values[node.inputs[k].id];
        if (info->kind == TRI_VALUE_PARAMETER && !g->parameters[info->index].layout_chosen) {
            g->parameters[info->index].layout_chosen = true;
            g->parameters[info->index].layout = info->layout = in[k];
        }
        if (!tri_layout_equal(&info->layout, &in[k]))
            node.inputs[k] = reorder(r, node.inputs[k], &in[k]);
    }
    for (int k = 0; k < node.output_count; k++) {
        tri_value_info *info = &g->values[node.outputs[k].id];
        info->layout = out[k];
        info->node = g->node_count;
    }
    TRI_PUSH(g->arena, g->nodes, g->node_count, g->node_capacity) = node;
    return TRI_OK;
}

// Reorders the gradients that the node makes to the home layouts of their parameters. The optimizer
// reads a parameter and its gradient side by side, element by element, so both need the same
// layout.
static void layout_gradients(relayout *r, const tri_node *node) {
    tri_graph *g = r->graph;
    for (int k = 0; k < node->output_count; k++)
        for (int i = r->gradient_of[node->outputs[k].id]; i > 0; i = r->next_gradient[i - 1]) {
            tri_gradient_info *gradient = &g->gradients[i - 1];
            const tri_layout *home = &g->parameters[gradient->parameter].layout;
            if (!tri_layout_equal(&g->values[gradient->value.id].layout, home))
                gradient->value = reorder(r, gradient->value, home);
        }
}

// Reorders what the node makes of the model's outputs to plain rows, as the host reads them.
static void layout_outputs(relayout *r, const tri_node *node) {
    tri_graph *g = r->graph;
    for (int i = 0; i < g->output_count; i++)
        for (int k = 0; k < node->output_count; k++)
            if (node->outputs[k].id == g->outputs[i].value.id &&
                !tri_layout_is_plain(&g->values[node->outputs[k].id].layout)) {
                g->outputs[i].value = reorder(r, node->outputs[k], &TRI_LAYOUT_PLAIN);
                break;
            }
}

static void find_gradients(relayout *r) {
    const tri_graph *g = r->graph;
    r->gradient_of = TRI_NEW_ARRAY(g->arena, int, g->value_count);
    r->next_gradient = TRI_NEW_ARRAY(g->arena, int, g->gradient_count);
    for (int i = g->gradient_count - 1; i >= 0; i--) {
        int *first = &r->gradient_of[g->gradients[i].value.id];
        r->next_gradient[i] = *first;
        *first = i + 1;
    }
}

tri_status tri_pass_layout(tri_graph *graph, const tri_device_description *device) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    relayout r = {.graph = graph,
                  .device = device,
                  .reordered = TRI_NEW_ARRAY(graph->arena, tri_value, graph->value_count),
                  .reordered_count = graph->value_count};
    tri_phase phase = graph->phase;
    int block = graph->block, count = graph->node_count;
    tri_node *nodes = graph->nodes;
    find_gradients(&r);
    graph->nodes = NULL;
    graph->node_count = graph->node_capacity = 0;
    for (int i = 0; i < count; i++) {
        graph->pending_nodes = nodes + i + 1;
        graph->pending_node_count = count - i - 1;
        TRI_TRY(layout_node(&r, nodes[i]));
        layout_gradients(&r, &nodes[i]);
        layout_outputs(&r, &nodes[i]);
    }
    graph->pending_nodes = NULL;
    graph->phase = phase;
    graph->block = block;
    return tri_graph_verify(graph);
}

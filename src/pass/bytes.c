// Lets images arrive on the device as U8, although the model reads them as F32, so that only a
// quarter of the bytes is copied to it. Each block that reads images normalises them itself, so
// that normalised images need not be sent from block to block.
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct bytes {
    tri_graph *graph;
    const tri_pixel_scale *scale;
    tri_value images;
    const tri_node *nodes; // the nodes of the graph before the pass
    const bool *is_images; // is_images[v]: value v is the images or a view of them
    tri_value *made;       // made[v], if is_images[v]: the latest normalised copy of value v
    int *block_of;         // block_of[v]: the block that reads the normalised copy made[v]
} bytes;

// Gets the normalised copy of `value`, the images or a view of them, for the nodes of `block`. Adds
// the nodes that make it, unless the block has it already.
static tri_value normalized_copy(bytes *b, tri_value value, int block) {
    tri_graph *g = b->graph;
    if (tri_value_is(b->made[value.id]) && b->block_of[value.id] == block) return b->made[value.id];
    tri_value made;
    if (value.id == b->images.id) {
        made = tri_node_add(g, &tri_op_normalize_bytes, &value, 1, b->scale, "");
    } else {
        const tri_node *view = &b->nodes[tri_value_get(g, value)->node];
        tri_value from = normalized_copy(b, view->inputs[0], block);
        made = tri_node_add(g, view->op, &from, 1, view->attr, view->name);
    }
    b->made[value.id] = made;
    b->block_of[value.id] = block;
    return made;
}

static bool *find_views(const tri_graph *g, tri_value images) {
    bool *is_images = TRI_NEW_ARRAY(g->arena, bool, g->value_count);
    is_images[images.id] = true;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (node->op->flags & TRI_OP_VIEW && is_images[node->inputs[0].id])
            is_images[node->outputs[0].id] = true;
    }
    return is_images;
}

tri_status tri_pass_bytes(tri_graph *graph, const char *input, const tri_pixel_scale *scale) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    tri_value images = tri_input_find(graph, input);
    if (!tri_value_is(images)) return TRI_OK;
    tri_value_info *info = &graph->values[images.id];
    TRI_ASSERT(info->dtype == TRI_F32);
    info->dtype = TRI_U8;
    int count = graph->node_count, values = graph->value_count;
    bytes b = {.graph = graph,
               .scale = scale,
               .images = images,
               .nodes = graph->nodes,
               .is_images = find_views(graph, images),
               .made = TRI_NEW_ARRAY(graph->arena, tri_value, values),
               .block_of = TRI_NEW_ARRAY(graph->arena, int, values)};
    tri_phase phase = graph->phase;
    int block = graph->block;
    graph->nodes = NULL;
    graph->node_count = graph->node_capacity = 0;
    for (int i = 0; i < count; i++) {
        tri_node node = b.nodes[i];
        TRI_ASSERT(node.phase == TRI_PHASE_FORWARD);
        // Views of the images are left out here, because normalized_copy adds them again, as views
        // of normalised images, in each block that reads them.
        if (node.output_count > 0 && b.is_images[node.outputs[0].id]) continue;
        graph->phase = node.phase;
        graph->block = node.block;
        for (int k = 0; k < node.input_count; k++)
            if (b.is_images[node.inputs[k].id])
                node.inputs[k] = normalized_copy(&b, node.inputs[k], node.block);
        for (int k = 0; k < node.output_count; k++)
            graph->values[node.outputs[k].id].node = graph->node_count;
        TRI_PUSH(graph->arena, graph->nodes, graph->node_count, graph->node_capacity) = node;
    }
    // Outputs of the model that are images, as the block that ends it reads them.
    for (int i = 0; i < graph->output_count; i++)
        if (b.is_images[graph->outputs[i].value.id])
            graph->outputs[i].value = normalized_copy(&b, graph->outputs[i].value, graph->block);
    graph->phase = phase;
    graph->block = block;
    return tri_graph_verify(graph);
}

// Fusion: merges nodes that a device can compute in one kernel, by the table in fusions.c, so that
// the values between them need not go through memory. A fusion changes two nodes: one, called the
// node, reads output 0 of the other, called the producer. Before a fusion is applied, the device is
// asked whether it has kernels for the changed nodes.
#include "device/widen.h"
#include "pass/fusions.h"

#include <string.h>

// The graph while it is rewritten in place, and the tables that fusions need.
typedef struct rewrite {
    tri_graph *graph;
    const tri_device_description *device;
    fusion_facts facts;
    tri_value *instead; // instead[v]: the value that replaced value v, or v itself
} rewrite;

static tri_value current(const rewrite *w, tri_value value) {
    while (tri_value_is(value) && w->instead[value.id].id != value.id) value = w->instead[value.id];
    return value;
}

static void count_uses(rewrite *w) {
    const tri_graph *g = w->graph;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) w->facts.uses[g->nodes[i].inputs[k].id]++;
    for (int i = 0; i < g->metric_count; i++) w->facts.uses[g->metrics[i].value.id]++;
    for (int i = 0; i < g->output_count; i++) w->facts.uses[g->outputs[i].value.id]++;
    for (int i = 0; i < g->gradient_count; i++) w->facts.uses[g->gradients[i].value.id]++;
}

static void find_from_data(rewrite *w) {
    const tri_graph *g = w->graph;
    bool *from_data = w->facts.from_data;
    for (int i = 0; i < g->input_count; i++) from_data[g->inputs[i].value.id] = true;
    for (int i = 0; i < g->node_count; i++) {
        bool any = false;
        for (int k = 0; k < g->nodes[i].input_count; k++)
            any = any || from_data[g->nodes[i].inputs[k].id];
        for (int k = 0; k < g->nodes[i].output_count; k++)
            from_data[g->nodes[i].outputs[k].id] = any;
    }
}

// Finds the node that makes x, if it has the op of the fusion's producer; NULL: it has another.
static tri_node *maker_of(const rewrite *w, const fusion *f, tri_value x) {
    const tri_value_info *info = tri_value_get(w->graph, x);
    if (!tri_value_is(x) || info->kind != TRI_VALUE_RESULT) return NULL;
    tri_node *maker = &w->graph->nodes[info->node];
    return maker->op == f->producer ? maker : NULL;
}

// Finds the producer with which the fusion would merge `node`; NULL: there is none.
static tri_node *producer_of(const rewrite *w, const fusion *f, const tri_node *node) {
    tri_value x = node->inputs[f->input];
    tri_node *producer = maker_of(w, f, x);
    if (!producer || tri_value_get(w->graph, x)->output != 0) return NULL;
    if (f->result == FUSION_NODE_STAYS) return producer;
    bool near = producer->block == node->block && producer->phase == node->phase;
    for (int k = 1; f->result == FUSION_PRODUCER_STAYS && k < node->output_count; k++)
        if (w->facts.uses[node->outputs[k].id] > 0) return NULL;
    return near && w->facts.uses[x.id] == 1 ? producer : NULL;
}

static tri_node copy_of(const rewrite *w, const tri_node *node) {
    tri_node copy = *node;
    if (node->op->attr_bytes == 0) return copy;
    void *attr = tri_arena_alloc(w->graph->arena, node->op->attr_bytes);
    memcpy(attr, node->attr, node->op->attr_bytes);
    copy.attr = attr;
    return copy;
}

// Whether `copy`, the changed producer, can stand where the producer stands: everything that it
// reads must be made before.
static bool is_made_before(const rewrite *w, const tri_node *copy, const tri_node *producer) {
    for (int k = 0; k < copy->input_count; k++) {
        if (!tri_value_is(copy->inputs[k])) continue;
        const tri_value_info *info = tri_value_get(w->graph, copy->inputs[k]);
        if (info->kind == TRI_VALUE_RESULT && &w->graph->nodes[info->node] >= producer)
            return false;
    }
    return true;
}

// Gives the node's outputs the shapes and types that the op's shape rule computes. False: the rule
// rejects the node.
static bool set_outputs(const rewrite *w, const tri_node *node) {
    tri_op_signature s = tri_node_signature(w->graph, node);
    if (node->op->shape(node->attr, &s) != TRI_OK) return false;
    for (int k = 0; k < node->output_count; k++) {
        w->graph->values[node->outputs[k].id].shape = s.out[k];
        w->graph->values[node->outputs[k].id].dtype = s.out_type[k];
    }
    return true;
}

static bool is_reference(const tri_kernel_def *def) { return def && !strcmp(def->name, "ref"); }

// Whether the device has a kernel for the node, which was `before`. One that works in the host's
// memory (uses_host) does not count, nor does the reference in plain C where there was another:
// they are slower than the two kernels of the device without the fusion.
static bool has_kernel(const rewrite *w, const tri_node *node, const tri_node *before) {
    if (!w->device) return true;
    const tri_kernel_def *def = tri_device_select(w->device, w->graph, node);
    if (!def || def->uses_host) return false;
    return !is_reference(def) || is_reference(tri_device_select(w->device, w->graph, before));
}

static void replace_node(rewrite *w, tri_node *node, const tri_node *copy) {
    for (int k = 0; k < node->input_count; k++) w->facts.uses[node->inputs[k].id]--;
    for (int k = 0; k < copy->input_count; k++) w->facts.uses[copy->inputs[k].id]++;
    *node = *copy;
}

// Tries the fusion on the node. True: the producer now does the work of both, and nothing reads the
// node any more. False: the fusion was not applied, or the node stays in a changed form.
static bool apply(rewrite *w, const fusion *f, tri_node *node) {
    tri_node *producer = producer_of(w, f, node);
    if (!producer) return false;
    tri_node new_node = copy_of(w, node), new_producer = copy_of(w, producer);
    if (!f->merge(w->graph, &new_node, &new_producer)) return false;
    bool node_stays = f->result != FUSION_PRODUCER_STAYS;
    bool producer_changes = f->result != FUSION_NODE_STAYS;
    if (node_stays && !has_kernel(w, &new_node, node)) return false;
    if (producer_changes &&
        !(is_made_before(w, &new_producer, producer) && set_outputs(w, &new_producer) &&
          has_kernel(w, &new_producer, producer))) {
        set_outputs(w, producer);
        return false;
    }
    if (producer_changes) replace_node(w, producer, &new_producer);
    if (node_stays) {
        replace_node(w, node, &new_node);
        return false;
    }
    for (int k = 0; k < node->input_count; k++) w->facts.uses[node->inputs[k].id]--;
    w->facts.removed[node - w->graph->nodes] = true;
    w->instead[node->outputs[0].id] = producer->outputs[0];
    w->facts.uses[producer->outputs[0].id] = w->facts.uses[node->outputs[0].id];
    return true;
}

// Whether the kernel of the merged node rounds what lies between as the kernels of two nodes do.
static bool rounds_between(const rewrite *w, const tri_node *node) {
    return !w->device || tri_device_select(w->device, w->graph, node) != &tri_kernel_widened;
}

// Merges the node into the producer of its input k, if there is one. True: it did.
static bool hand_over_input(rewrite *w, const fusion *f, tri_node *node, int k) {
    tri_value y = node->inputs[k];
    tri_node *producer = maker_of(w, f, y);
    if (!producer || producer->block != node->block || producer->phase != node->phase) return false;
    tri_node merged = copy_of(w, producer);
    if (w->facts.uses[y.id] != 1 || tri_value_get(w->graph, y)->output != 0 ||
        !f->merge(w->graph, node, &merged) || !is_made_before(w, &merged, producer))
        return false;
    if (!has_kernel(w, &merged, producer) || !rounds_between(w, &merged)) return false;
    replace_node(w, producer, &merged);
    for (int i = 0; i < node->input_count; i++) w->facts.uses[node->inputs[i].id]--;
    for (int i = 0; i < merged.output_count; i++) {
        tri_value_info *info = &w->graph->values[merged.outputs[i].id];
        info->node = (int)(producer - w->graph->nodes);
        info->output = i;
        if (i < node->output_count && node->outputs[i].id == merged.outputs[i].id)
            node->outputs[i] = (tri_value){0};
    }
    w->facts.removed[node - w->graph->nodes] = true;
    return true;
}

static bool hand_over(rewrite *w, const fusion *f, tri_node *node) {
    for (int k = 0; k < node->input_count; k++)
        if (hand_over_input(w, f, node, k)) return true;
    return false;
}

// Has nothing read the inputs of a node whose outputs nothing reads.
static void remove_unread(rewrite *w, const tri_node *node) {
    for (int k = 0; k < node->output_count; k++)
        if (w->facts.uses[node->outputs[k].id] > 0) return;
    for (int k = 0; k < node->input_count; k++) w->facts.uses[node->inputs[k].id]--;
    w->facts.removed[node - w->graph->nodes] = true;
}

// Merges the producer of the node's input k into the node, if there is one. True: it did.
static bool absorb_input(rewrite *w, const fusion *f, tri_node *node, int k) {
    tri_node *producer = maker_of(w, f, node->inputs[k]);
    if (!producer || producer->block != node->block || producer->phase != node->phase) return false;
    tri_node merged = copy_of(w, node);
    if (!f->merge(w->graph, &merged, producer) || !set_outputs(w, &merged) ||
        !has_kernel(w, &merged, node) || !pass_gains(w->graph, &w->facts, node, producer, &merged))
        return false;
    replace_node(w, node, &merged);
    remove_unread(w, producer);
    return true;
}

static void absorb(rewrite *w, const fusion *f, tri_node *node) {
    for (int k = 0; k < node->input_count;)
        k = absorb_input(w, f, node, k) ? 0 : k + 1; // its inputs are now others
}

static void fuse_node(rewrite *w, tri_node *node) {
    for (int i = 0; i < pass_fusion_count; i++) {
        const fusion *f = &pass_fusions[i];
        if (f->time != w->facts.time || f->op != node->op) continue;
        if (f->result == FUSION_NODE_ABSORBS)
            absorb(w, f, node);
        else if (f->result == FUSION_PRODUCER_ABSORBS ? hand_over(w, f, node) : apply(w, f, node))
            return;
    }
}

tri_status tri_pass_fuse(tri_graph *graph, const tri_device_description *device,
                         tri_fusion_time time) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    rewrite w = {.graph = graph,
                 .device = device,
                 .facts = {.time = time,
                           .uses = TRI_NEW_ARRAY(graph->arena, int, graph->value_count),
                           .removed = TRI_NEW_ARRAY(graph->arena, bool, graph->node_count),
                           .from_data = TRI_NEW_ARRAY(graph->arena, bool, graph->value_count),
                           .wanted = pass_find_wanted(graph),
                           .of_integers = pass_find_of_integers(graph)},
                 .instead = TRI_NEW_ARRAY(graph->arena, tri_value, graph->value_count)};
    for (int i = 0; i < graph->value_count; i++) w.instead[i].id = (uint32_t)i;
    count_uses(&w);
    find_from_data(&w);
    for (int i = 0; i < graph->node_count; i++) {
        tri_node *node = &graph->nodes[i];
        for (int k = 0; k < node->input_count; k++) node->inputs[k] = current(&w, node->inputs[k]);
        fuse_node(&w, node);
    }
    for (int i = 0; i < graph->metric_count; i++)
        graph->metrics[i].value = current(&w, graph->metrics[i].value);
    for (int i = 0; i < graph->output_count; i++)
        graph->outputs[i].value = current(&w, graph->outputs[i].value);
    for (int i = 0; i < graph->gradient_count; i++)
        graph->gradients[i].value = current(&w, graph->gradients[i].value);
    return tri_pass_sweep(graph);
}

// The tensor-parallel pass: rewrites a model's graph into the graph of one rank. This file decides
// which parameters are sliced, and copies inputs, parameters and results into the new graph.
// tensor_parallel_rules.c has the rules for each op.
#include "pass/tensor_parallel.h"

#include "graph/loss.h"

#include <fnmatch.h>
#include <string.h>

// Sets the split of every parameter: that of its layer, unless a pattern of the recipe matches the
// layer. Patterns are applied in the recipe's order, so the last one that matches decides.
static tri_status choose_splits(parallel_pass *pass) {
    static const char *const names[] = {"none", "column", "row"};
    const tri_graph *g = pass->from;
    const tri_tree *layers = pass->options->layers;
    for (int i = 0; i < g->parameter_count; i++) pass->splits[i] = g->parameters[i].split;
    if (layers && layers->kind != TRI_TREE_MAP)
        return tri_tree_fail(layers, "strategy.tensor: must map layers to none, column or row");
    for (int k = 0; layers && k < layers->count; k++) {
        const tri_tree *entry = layers->items[k];
        int split = 0, matches = 0;
        while (split < 3 && (entry->kind != TRI_TREE_SCALAR || strcmp(entry->text, names[split])))
            split++;
        if (split == 3)
            return tri_tree_fail(entry, "strategy.tensor: '%s' is none, column or row", entry->key);
        for (int i = 0; i < g->parameter_count; i++) {
            const char *name = g->parameters[i].name;
            size_t length = tri_parameter_layer(name);
            const char *layer = tri_arena_printf(g->arena, "%.*s", (int)length, name);
            if (fnmatch(entry->key, layer, 0) != 0) continue;
            pass->splits[i] = (tri_split)split;
            matches++;
        }
        if (!matches)
            return tri_tree_fail(entry, "strategy.tensor: '%s' matches no layer", entry->key);
    }
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        tri_split of_weight = p->adapts ? pass->splits[p->adapts - 1] : TRI_SPLIT_NONE;
        if (p->adapts) pass->splits[i] = of_weight == p->follows ? of_weight : TRI_SPLIT_NONE;
    }
    return TRI_OK;
}

// A place where a parameter is read, as an entry of that parameter's list of uses.
typedef struct parameter_use {
    // The node that reads the parameter, as its input number `input`; and the index of the list's
    // next entry, plus 1 (0: this entry is the last).
    int node, input, next;
} parameter_use;

typedef struct parameter_uses {
    int *first; // first[p]: the first use of parameter p as index + 1; 0: there is none
    parameter_use *items;
    int count, capacity;
} parameter_uses;

static parameter_uses find_uses(tri_arena *arena, const tri_graph *g) {
    parameter_uses uses = {.first = TRI_NEW_ARRAY(arena, int, g->parameter_count)};
    // The loop goes backwards, because each use is put at the front of its list.
    for (int i = g->node_count - 1; i >= 0; i--)
        for (int k = g->nodes[i].input_count - 1; k >= 0; k--) {
            const tri_value_info *info = tri_value_get(g, g->nodes[i].inputs[k]);
            if (info->kind != TRI_VALUE_PARAMETER) continue;
            TRI_PUSH(arena, uses.items, uses.count, uses.capacity) =
                (parameter_use){.node = i, .input = k, .next = uses.first[info->index]};
            uses.first[info->index] = uses.count;
        }
    return uses;
}

// Of how many equal parts the axis consists along which a parameter is sliced.
static int64_t parts_of(const parallel_pass *pass, int parameter) {
    const tri_parameter_info *p = &pass->from->parameters[parameter];
    int parts = p->adapts ? pass->from->parameters[p->adapts - 1].split_parts : p->split_parts;
    return pass->splits[parameter] == TRI_SPLIT_COLUMN && parts > 1 ? parts : 1;
}

// Finds the axis along which parameter `index` is sliced. All its uses must agree on it.
// PARALLEL_NO_AXIS: it is not sliced.
static tri_status find_axis(const parallel_pass *pass, const parameter_uses *uses, int index,
                            int *axis) {
    const tri_graph *g = pass->from;
    const tri_parameter_info *p = &g->parameters[index];
    const char *how = pass->splits[index] == TRI_SPLIT_ROW ? "row" : "column";
    int64_t parts = parts_of(pass, index);
    bool used = false;
    *axis = PARALLEL_NO_AXIS;
    if (pass->splits[index] == TRI_SPLIT_NONE) return TRI_OK;
    for (int i = uses->first[index]; i > 0; i = uses->items[i - 1].next) {
        const tri_node *node = &g->nodes[uses->items[i - 1].node];
        int found =
            parallel_parameter_axis(node->op, uses->items[i - 1].input, pass->splits[index]);
        if (parts > 1 && node->op != &tri_op_linear) found = PARALLEL_NO_SPLIT;
        if (found == PARALLEL_NO_SPLIT || (used && found != *axis))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "strategy.tensor: %s is a parameter of %s, which has no %s split%s",
                            p->name, node->op->name, how,
                            found == PARALLEL_NO_SPLIT ? "" : " that fits its other uses");
        *axis = found;
        used = true;
    }
    if (*axis < 0 || p->shape.dims[*axis] % (pass->tensor_parallel.slices * parts) == 0)
        return TRI_OK;
    char text[128], each[64] = "";
    tri_parameter_info stored = tri_parameter_stored(p);
    if (parts > 1) snprintf(each, sizeof each, " of each of %lld parts", (long long)parts);
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "strategy.mesh.tensor: parameter %s %s does not divide into %lld equal slices%s along its "
        "axis %d; set another size, or its layer to none in strategy.tensor",
        p->name, tri_shape_text(&stored.shape, text, sizeof text),
        (long long)pass->tensor_parallel.slices, each, p->stored_transposed ? 1 - *axis : *axis);
}

// Copies inputs, parameters and blocks into the new graph. They keep their numbers, so that plans
// and checkpoints find them.
static tri_status copy_sources(parallel_pass *pass) {
    const tri_graph *from = pass->from;
    tri_graph *to = pass->to;
    bool any = false;
    parameter_uses uses = find_uses(to->arena, from);
    for (int i = 0; i < from->block_count; i++) tri_block(to, from->blocks[i]);
    for (int i = 0; i < from->input_count; i++) {
        const tri_value_info *info = tri_value_get(from, from->inputs[i].value);
        tri_value made = tri_input(to, from->inputs[i].name, info->dtype, info->shape);
        to->inputs[i].is_measured = from->inputs[i].is_measured;
        parallel_set(pass, from->inputs[i].value, made, PARALLEL_REPLICATED);
    }
    for (int i = 0; i < TRI_SCALAR_KIND_COUNT; i++)
        if (tri_value_is(from->scalars[i]))
            parallel_set(pass, from->scalars[i], tri_scalar(to, (tri_scalar_kind)i),
                         PARALLEL_REPLICATED);
    for (int i = 0; i < from->parameter_count; i++) {
        tri_parameter_info p = from->parameters[i];
        int axis;
        TRI_TRY(find_axis(pass, &uses, i, &axis));
        if (axis >= 0 && pass->tensor_parallel.slices > 1) {
            p.slice = (tri_parameter_slice){.axis = axis,
                                            .count = (int)pass->tensor_parallel.slices,
                                            .index = (int)pass->tensor_parallel.index,
                                            .parts = (int)parts_of(pass, i),
                                            .full = p.shape};
            p.shape.dims[axis] /= pass->tensor_parallel.slices;
            any = true;
        }
        to->block = p.block;
        p.init = tri_init_copy(to->arena, &p.init, &from->parameters[i].shape);
        p.value = tri_parameter_of_role(to, p.name, p.dtype, p.shape, p.init, p.role, p.momentum);
        if (to->status != TRI_OK) break;
        to->parameters[i] = p;
        parallel_set(pass, from->parameters[i].value, p.value, PARALLEL_REPLICATED);
    }
    if (any || pass->tensor_parallel.slices == 1) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "strategy.mesh.tensor: %lld ranks, but no layer of the model is divided: name "
                    "some in strategy.tensor, as '{fc1: column, fc2: row}', or have the model call "
                    "tri_split_layer",
                    (long long)pass->tensor_parallel.slices);
}

// Gets the new graph's value for a loss, metric or statistic of the old graph, which every rank has
// whole.
static tri_value replicated_value(parallel_pass *pass, tri_value from) {
    return parallel_ask(pass, from, PARALLEL_REPLICATED);
}

// Gathers what the node makes of the model's outputs, so that each rank has whole rows.
static void gather_outputs(parallel_pass *pass, const tri_node *node) {
    for (int i = 0; i < pass->from->output_count; i++)
        for (int k = 0; k < node->output_count; k++)
            if (node->outputs[k].id == pass->from->outputs[i].value.id)
                tri_output_add(pass->to, pass->from->outputs[i].name,
                               parallel_ask(pass, node->outputs[k], PARALLEL_REPLICATED));
}

static tri_status finish(parallel_pass *pass) {
    const tri_graph *from = pass->from;
    tri_graph *to = pass->to;
    for (int i = 0; i < from->gradient_count; i++) {
        const tri_gradient_info *gradient = &from->gradients[i];
        to->block = gradient->block;
        tri_gradient_add(to, gradient->parameter, replicated_value(pass, gradient->value));
    }
    for (int i = 0; i < from->metric_count; i++)
        tri_metric_copy(to, &from->metrics[i], replicated_value(pass, from->metrics[i].value));
    to->first_term = from->first_term;
    to->term_count = from->term_count;
    to->counting = from->counting;
    for (int i = 0; i < from->parameter_count; i++)
        to->parameters[i].has_partial_gradient = pass->partial[i];
    to->block = from->block;
    return tri_graph_verify(to);
}

static bool *find_made_of_parameters(tri_arena *arena, const tri_graph *g) {
    bool *found = TRI_NEW_ARRAY(arena, bool, g->value_count);
    for (int i = 0; i < g->parameter_count; i++)
        if (tri_value_is(g->parameters[i].value)) found[g->parameters[i].value.id] = true;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        bool is_made = node->input_count > 0;
        for (int k = 0; k < node->input_count; k++)
            is_made = is_made && (!tri_value_is(node->inputs[k]) || found[node->inputs[k].id]);
        for (int k = 0; k < node->output_count; k++) found[node->outputs[k].id] = is_made;
    }
    return found;
}

// Sets whole[p] for each parameter p of which one node has computed one term of its gradient and
// another all of it. Returns whether there is one.
static bool find_whole(const parallel_pass *pass, bool *whole) {
    bool found = false;
    for (int i = 0; i < pass->from->parameter_count; i++) {
        if (!pass->partial[i] || !pass->complete[i]) continue;
        TRI_ASSERT(!whole[i]);
        found = whole[i] = true;
    }
    return found;
}

// Makes one rank's graph. *again: the gradients of some parameters would be terms at one reader and
// complete at another. These parameters are then noted in `whole`, and nothing is made.
static tri_status rewrite(tri_arena *arena, const tri_graph *graph, const tri_mesh *mesh, int rank,
                          const tri_tensor_parallel_options *options, bool *whole, bool *again,
                          tri_graph **out) {
    tri_graph *to = tri_graph_create(arena, &graph->options);
    parallel_pass pass = {
        .from = graph,
        .to = to,
        .options = options,
        .tensor_parallel = {.group = TRI_GROUP_TENSOR_PARALLEL,
                            .slices = mesh->size[TRI_AXIS_TENSOR_PARALLEL],
                            .index = tri_mesh_coordinate(mesh, rank, TRI_AXIS_TENSOR_PARALLEL)},
        .replicas = {.group = TRI_GROUP_REPLICAS,
                     .slices = tri_mesh_replicas(mesh),
                     .index = tri_mesh_replica(mesh, rank)},
        .values = TRI_NEW_ARRAY(to->arena, tri_value, graph->value_count),
        .placements = TRI_NEW_ARRAY(to->arena, parallel_placement, graph->value_count),
        .splits = TRI_NEW_ARRAY(to->arena, tri_split, graph->parameter_count),
        .partial = TRI_NEW_ARRAY(to->arena, bool, graph->parameter_count),
        .complete = TRI_NEW_ARRAY(to->arena, bool, graph->parameter_count),
        .whole = whole,
        .of_parameters = find_made_of_parameters(to->arena, graph),
    };
    TRI_TRY(choose_splits(&pass));
    TRI_TRY(copy_sources(&pass));
    for (int i = 0; i < graph->node_count; i++) {
        to->block = graph->nodes[i].block;
        to->phase = graph->nodes[i].phase;
        parallel_rewrite(&pass, &graph->nodes[i]);
        gather_outputs(&pass, &graph->nodes[i]);
    }
    if (to->status != TRI_OK) return TRI_FAIL(to->status, "%s", to->message);
    *again = find_whole(&pass, whole);
    if (*again) {
        tri_graph_destroy(to);
        return TRI_OK;
    }
    TRI_TRY(finish(&pass));
    *out = to;
    return TRI_OK;
}

tri_status tri_pass_tensor_parallel(tri_arena *arena, const tri_graph *graph, const tri_mesh *mesh,
                                    int rank, const tri_tensor_parallel_options *options,
                                    tri_graph **out) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    bool *whole = TRI_NEW_ARRAY(graph->arena, bool, graph->parameter_count), again = true;
    while (again) TRI_TRY(rewrite(arena, graph, mesh, rank, options, whole, &again, out));
    return TRI_OK;
}

#include "pass/tensor_parallel.h"

#include "graph/loss.h"

#include <fnmatch.h>
#include <string.h>

static bool same(parallel_placement a, parallel_placement b) {
    return a.kind == b.kind && (a.kind != TRI_PLACEMENT_SLICED || a.dim == b.dim);
}

parallel_placement parallel_placement_of(const parallel_pass *pass, tri_value from) {
    return pass->placements[from.id];
}

void parallel_set(parallel_pass *pass, tri_value from, tri_value value,
                  parallel_placement placement) {
    pass->values[from.id] = value;
    pass->placements[from.id] = placement;
}

static tri_value convert(parallel_pass *pass, tri_value value, parallel_placement is,
                         parallel_placement asked) {
    tri_collective_attr attr = pass->tensor_parallel;
    if (is.kind == TRI_PLACEMENT_SLICED) {
        attr.dim = is.dim;
        attr.partial = asked.kind == TRI_PLACEMENT_PARTIAL_GRADIENT;
        value = ops_all_gather(pass->to, value, &attr);
    } else if (asked.kind == TRI_PLACEMENT_PARTIAL_GRADIENT) {
        value = tri_node_add(pass->to, &tri_op_copy_to, &value, 1, &attr, "");
    }
    if (asked.kind != TRI_PLACEMENT_SLICED) return value;
    attr.dim = asked.dim;
    attr.partial = false;
    return tri_node_add(pass->to, &tri_op_split, &value, 1, &attr, "");
}

tri_value parallel_ask(parallel_pass *pass, tri_value from, parallel_placement asked) {
    tri_value value = pass->values[from.id];
    parallel_placement is = parallel_placement_of(pass, from);
    if (!tri_value_is(value) || same(is, asked) || pass->tensor_parallel.slices == 1) return value;
    for (int i = pass->conversion_count - 1; i >= 0; i--) {
        const parallel_conversion *c = &pass->conversions[i];
        if (c->block != pass->to->block) break; // those of one block follow one another
        if (c->from == from.id && same(c->placement, asked)) return c->value;
    }
    tri_value made = convert(pass, value, is, asked);
    TRI_PUSH(pass->to->arena, pass->conversions, pass->conversion_count,
             pass->conversion_capacity) =
        (parallel_conversion){from.id, pass->to->block, asked, made};
    return made;
}

void parallel_emit(parallel_pass *pass, const tri_node *node, const tri_value *inputs,
                   const void *attr, parallel_placement placement) {
    tri_value made = tri_node_add(pass->to, node->op, inputs, node->input_count, attr, node->name);
    for (int k = 0; k < node->output_count; k++)
        parallel_set(pass, node->outputs[k], tri_node_output(pass->to, made, k), placement);
}

tri_value parallel_sum(parallel_pass *pass, tri_value partial, parallel_placement *placement) {
    tri_graph *g = pass->to;
    tri_collective_attr attr = pass->tensor_parallel;
    tri_shape shape = tri_value_shape(g, partial);
    *placement = PARALLEL_REPLICATED;
    // [N, T, …]: along the sequence.
    if (!pass->options->sequence_parallel || shape.rank < 3)
        return tri_node_add(g, &tri_op_all_reduce, &partial, 1, &attr, "");
    if (shape.dims[1] % attr.slices)
        tri_graph_fail(g,
                       "strategy.sequence_parallel: sequences of %lld tokens do not divide over "
                       "strategy.mesh.tensor: %lld",
                       (long long)shape.dims[1], (long long)attr.slices);
    *placement = parallel_sliced(1);
    attr.dim = 1;
    return ops_reduce_scatter(g, partial, &attr);
}

void parallel_note_use(parallel_pass *pass, tri_value from, bool partial) {
    const tri_value_info *info = tri_value_get(pass->from, from);
    if (info->kind == TRI_VALUE_PARAMETER)
        (partial ? pass->partial : pass->complete)[info->index] = true;
}

tri_split parallel_split_of(const parallel_pass *pass, tri_value parameter) {
    const tri_value_info *info = tri_value_get(pass->from, parameter);
    return info->kind == TRI_VALUE_PARAMETER ? pass->splits[info->index] : TRI_SPLIT_NONE;
}

// The recipe's own choices, in their order: the last one that matches a layer's name holds.
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
    return TRI_OK;
}

// The axis along which parameter `index` is cut, from all its uses; -1: it stays whole.
static tri_status find_axis(const parallel_pass *pass, int index, int *axis) {
    const tri_graph *g = pass->from;
    const tri_parameter_info *p = &g->parameters[index];
    const char *how = pass->splits[index] == TRI_SPLIT_ROW ? "row" : "column";
    bool used = false;
    *axis = -1;
    if (pass->splits[index] == TRI_SPLIT_NONE) return TRI_OK;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) {
            if (g->nodes[i].inputs[k].id != p->value.id) continue;
            int found = parallel_parameter_axis(g->nodes[i].op, k, pass->splits[index]);
            if (found == -2 || (used && found != *axis))
                return TRI_FAIL(TRI_BAD_INPUT,
                                "strategy.tensor: %s is a parameter of %s, which has no %s split%s",
                                p->name, g->nodes[i].op->name, how,
                                found == -2 ? "" : " that fits its other uses");
            *axis = found;
            used = true;
        }
    if (*axis < 0 || p->shape.dims[*axis] % pass->tensor_parallel.slices == 0) return TRI_OK;
    char shape[128];
    return TRI_FAIL(TRI_BAD_INPUT,
                    "strategy.mesh.tensor: parameter %s %s does not divide into %lld equal slices "
                    "along its axis %d; set another size, or its layer to none in strategy.tensor",
                    p->name, tri_shape_text(&p->shape, shape, sizeof shape),
                    (long long)pass->tensor_parallel.slices, *axis);
}

// Inputs, parameters and blocks keep their numbers.
static tri_status copy_sources(parallel_pass *pass) {
    const tri_graph *from = pass->from;
    tri_graph *to = pass->to;
    bool any = false;
    for (int i = 0; i < from->block_count; i++) tri_block(to, from->blocks[i]);
    for (int i = 0; i < from->input_count; i++) {
        const tri_value_info *info = tri_value_get(from, from->inputs[i].value);
        tri_value made = tri_input(to, from->inputs[i].name, info->dtype, info->shape);
        parallel_set(pass, from->inputs[i].value, made, PARALLEL_REPLICATED);
    }
    for (int i = 0; i < TRI_SCALAR_KIND_COUNT; i++)
        if (tri_value_is(from->scalars[i]))
            parallel_set(pass, from->scalars[i], tri_scalar(to, (tri_scalar_kind)i),
                         PARALLEL_REPLICATED);
    for (int i = 0; i < from->parameter_count; i++) {
        tri_parameter_info p = from->parameters[i];
        int axis;
        TRI_TRY(find_axis(pass, i, &axis));
        if (axis >= 0 && pass->tensor_parallel.slices > 1) {
            p.slice = (tri_parameter_slice){.axis = axis,
                                            .count = (int)pass->tensor_parallel.slices,
                                            .index = (int)pass->tensor_parallel.index,
                                            .full = p.shape};
            p.shape.dims[axis] /= pass->tensor_parallel.slices;
            any = true;
        }
        to->block = p.block;
        p.value = tri_parameter_of_role(to, p.name, p.dtype, p.shape, p.init, p.role, p.momentum);
        if (to->status != TRI_OK) break;
        to->parameters[i] = p;
        parallel_set(pass, from->parameters[i].value, p.value, PARALLEL_REPLICATED);
    }
    if (any || pass->tensor_parallel.slices == 1) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "strategy.mesh.tensor: %lld ranks, but no layer of the model is divided: name "
                    "some in strategy.tensor, as '{fc1: column, fc2: row}'",
                    (long long)pass->tensor_parallel.slices);
}

// Of losses, metrics and statistics, which no rule leaves in slices.
static tri_value replicated_value(const parallel_pass *pass, tri_value from) {
    TRI_ASSERT(parallel_placement_of(pass, from).kind == TRI_PLACEMENT_REPLICATED);
    return pass->values[from.id];
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
    for (int i = 0; i < from->parameter_count; i++) {
        if (pass->partial[i] && pass->complete[i])
            return TRI_FAIL(TRI_UNSUPPORTED,
                            "strategy.mesh.tensor: parameter %s is used both by a layer that the "
                            "ranks divide and by one that they do not",
                            from->parameters[i].name);
        to->parameters[i].has_partial_gradient = pass->partial[i];
    }
    to->block = from->block;
    return tri_graph_verify(to);
}

tri_status tri_pass_tensor_parallel(tri_arena *arena, const tri_graph *graph, const tri_mesh *mesh,
                                    int rank, const tri_tensor_parallel_options *options,
                                    tri_graph **out) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
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
    };
    TRI_TRY(choose_splits(&pass));
    TRI_TRY(copy_sources(&pass));
    for (int i = 0; i < graph->node_count; i++) {
        to->block = graph->nodes[i].block;
        to->phase = graph->nodes[i].phase;
        parallel_rewrite(&pass, &graph->nodes[i]);
    }
    if (to->status != TRI_OK) return TRI_FAIL(to->status, "%s", to->message);
    TRI_TRY(finish(&pass));
    *out = to;
    return TRI_OK;
}

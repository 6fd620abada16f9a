// The values of the tensor-parallel pass: converts them from one placement into another, and
// records which new value stands for each old one.
#include "pass/tensor_parallel.h"

static bool same(parallel_placement a, parallel_placement b) {
    return a.kind == b.kind &&
           (a.kind != TRI_PLACEMENT_SLICED || (a.dim == b.dim && a.parts == b.parts));
}

parallel_placement parallel_placement_of(const parallel_pass *pass, tri_value from) {
    return pass->placements[from.id];
}

void parallel_set(parallel_pass *pass, tri_value from, tri_value value,
                  parallel_placement placement) {
    pass->values[from.id] = value;
    pass->placements[from.id] = placement;
}

// Gathers the ranks' slices along attr->dim, or takes this rank's.
static tri_value gather_or_split(parallel_pass *pass, tri_value value, bool gathers,
                                 const tri_collective_attr *attr) {
    return gathers ? ops_all_gather(pass->to, value, attr)
                   : tri_node_add(pass->to, &tri_op_split, &value, 1, attr, "");
}

// The same along an axis that may consist of several parts: each part by itself, as if the parts
// were an axis of their own.
static tri_value by_parts(parallel_pass *pass, tri_value value, int64_t parts, bool gathers,
                          tri_collective_attr attr) {
    tri_shape shape = tri_value_shape(pass->to, value);
    int64_t outside = parts, inside = 1, dim = attr.dim;
    if (parts <= 1) return gather_or_split(pass, value, gathers, &attr);
    for (int64_t i = 0; i < dim; i++) outside *= shape.dims[i];
    for (int64_t i = dim + 1; i < shape.rank; i++) inside *= shape.dims[i];
    attr.dim = 1;
    tri_reshape_attr apart = {tri_shape_of(outside, shape.dims[dim] / parts, inside)};
    value = tri_node_add(pass->to, &tri_op_reshape, &value, 1, &apart, "");
    value = gather_or_split(pass, value, gathers, &attr);
    if (gathers)
        shape.dims[dim] *= attr.slices;
    else
        shape.dims[dim] /= attr.slices;
    return tri_node_add(pass->to, &tri_op_reshape, &value, 1, &(tri_reshape_attr){shape}, "");
}

// Adds the ops that convert a value from one placement into another, and returns the result.
static tri_value convert(parallel_pass *pass, tri_value value, parallel_placement is,
                         parallel_placement asked) {
    tri_collective_attr attr = pass->tensor_parallel;
    if (is.kind == TRI_PLACEMENT_SLICED) {
        attr.dim = is.dim;
        attr.partial = asked.kind == TRI_PLACEMENT_PARTIAL_GRADIENT;
        value = by_parts(pass, value, is.parts, true, attr);
    } else if (asked.kind == TRI_PLACEMENT_PARTIAL_GRADIENT) {
        value = tri_node_add(pass->to, &tri_op_copy_to, &value, 1, &attr, "");
    }
    if (asked.kind != TRI_PLACEMENT_SLICED) return value;
    attr.dim = asked.dim;
    attr.partial = false;
    return by_parts(pass, value, asked.parts, false, attr);
}

tri_value parallel_ask(parallel_pass *pass, tri_value from, parallel_placement asked) {
    tri_value value = pass->values[from.id];
    parallel_placement is = parallel_placement_of(pass, from);
    if (!tri_value_is(value) || same(is, asked) || pass->tensor_parallel.slices == 1) return value;
    for (int i = pass->conversion_count - 1; i >= 0; i--) {
        const parallel_conversion *c = &pass->conversions[i];
        // The conversions of one block are consecutive, and the loop goes backwards: this one and
        // all before it belong to other blocks.
        if (c->block != pass->to->block) break;
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

tri_value parallel_sum(parallel_pass *pass, tri_value partial, bool whole,
                       parallel_placement *placement) {
    tri_graph *g = pass->to;
    tri_collective_attr attr = pass->tensor_parallel;
    tri_shape shape = tri_value_shape(g, partial);
    *placement = PARALLEL_REPLICATED;
    // Only values of shape [N, T, …] have a sequence, of T tokens, along which ranks can slice
    // them.
    if (!pass->options->sequence_parallel || whole || shape.rank < 3)
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
    if (!pass->of_parameters[from.id]) return;
    const tri_value_info *info = tri_value_get(pass->from, from);
    if (info->kind == TRI_VALUE_PARAMETER) {
        (partial ? pass->partial : pass->complete)[info->index] = true;
        return;
    }
    const tri_node *node = tri_value_node(pass->from, from);
    for (int k = 0; k < node->input_count; k++) parallel_note_use(pass, node->inputs[k], partial);
}

bool parallel_is_whole(const parallel_pass *pass, tri_value from) {
    if (!pass->of_parameters[from.id]) return false;
    const tri_value_info *info = tri_value_get(pass->from, from);
    if (info->kind == TRI_VALUE_PARAMETER) return pass->whole[info->index];
    const tri_node *node = tri_value_node(pass->from, from);
    bool is_whole = false;
    for (int k = 0; k < node->input_count; k++)
        is_whole = is_whole || parallel_is_whole(pass, node->inputs[k]);
    return is_whole;
}

tri_split parallel_split_of(const parallel_pass *pass, tri_value parameter) {
    const tri_value_info *info = tri_value_get(pass->from, parameter);
    return info->kind == TRI_VALUE_PARAMETER ? pass->splits[info->index] : TRI_SPLIT_NONE;
}

// The precision pass: decides which values of a graph are of a half type (BF16 or F16), and inserts
// casts. The class of an op, in its row, says in which types the op reads and writes.
#include "ops/ops.h"
#include "pass/pass.h"
#include "tensor/half.h"

#include <string.h>

static const struct {
    tri_dtype half; // 0: nothing is computed in a half type
    bool all;       // all activations are half, not only those whose readers need that
} modes[] = {
    [TRI_PRECISION_32_TRUE] = {0, false},
    [TRI_PRECISION_BF16_MIXED] = {TRI_BF16, false},
    [TRI_PRECISION_16_MIXED] = {TRI_F16, false},
    [TRI_PRECISION_BF16_TRUE] = {TRI_BF16, true},
};

// What is known of a value, to decide between which nodes casts are inserted. A cast converts F32
// to the half type or back.
typedef struct precision_value {
    // All readers of the value need it in the half type, directly or through values that they make
    // from it.
    bool narrows;
    // An integer, perhaps an index, or a running statistic is made from the value: it is computed
    // as exactly as it was given.
    bool is_counted;
    // The value is made of integers alone (pass_find_of_integers), as positions are: it is F32
    // until it meets a value that is not, so that comparisons of it are exact.
    bool is_of_integers;
    bool wide;    // the value is half, but readers that accept both types read it as F32
    bool is_term; // the value is a term of a sum over ranks, and stays F32 until it is summed
    // The value is a sum over ranks, perhaps with a bias added. Readers that accept both types get
    // it rounded to the half type, because one rank alone would have computed it in that type.
    bool is_sum;
    // True: the value is cast right after the node that computes it; false: before its first
    // reader.
    bool at_maker;
    tri_value cast;
} precision_value;

typedef struct precision {
    tri_graph *graph;
    tri_dtype half;
    bool all;
    precision_value *values;
} precision;

// Whether `node` computes with its inputs in the half type, even where they are given as F32.
static bool reads_half(const precision *p, const tri_node *node) {
    switch (node->op->precision) {
    case TRI_PRECISION_HALF:
        return true;
    case TRI_PRECISION_FOLLOW:
    case TRI_PRECISION_CARRY:
        return p->values[node->outputs[0].id].narrows;
    default:
        return false;
    }
}

static void find_narrowing(precision *p) {
    const tri_graph *g = p->graph;
    bool *read = TRI_NEW_ARRAY(g->arena, bool, g->value_count);
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *node = &g->nodes[i];
        bool half = reads_half(p, node);
        for (int k = 0; k < node->input_count; k++) {
            precision_value *value = &p->values[node->inputs[k].id];
            bool is_float = tri_dtype_is_float(tri_value_get(g, node->inputs[k])->dtype);
            value->narrows = half && is_float && (value->narrows || !read[node->inputs[k].id]);
            read[node->inputs[k].id] = true;
        }
    }
}

// Finds the values from which an integer or a statistic is made, directly or through ops that may
// compute in F32. Before autodiff, the graph's gradients are statistics.
static void find_counted(precision *p) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->gradient_count; i++)
        p->values[g->gradients[i].value.id].is_counted = true;
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *node = &g->nodes[i];
        if (node->output_count == 0 || node->op->precision == TRI_PRECISION_HALF) continue;
        for (int k = 1; k < node->output_count && node->op == &tri_op_map; k++) // of one type
            if (p->values[node->outputs[k].id].is_counted)
                p->values[node->outputs[0].id].is_counted = true;
        bool counted = p->values[node->outputs[0].id].is_counted;
        bool is_integer = !tri_dtype_is_float(tri_value_get(g, node->outputs[0])->dtype);
        if (node->op == &tri_op_cast || (node->op == &tri_op_map && is_integer))
            counted = is_integer;
        for (int k = 0; k < node->input_count && counted; k++)
            if (tri_value_is(node->inputs[k]) &&
                tri_dtype_is_float(tri_value_get(g, node->inputs[k])->dtype))
                p->values[node->inputs[k].id].is_counted = true;
    }
}

// Whether the node's output has random numbers.
static bool draws_numbers(const tri_node *node) {
    return node->op == &tri_op_map && ((const tri_map_attr *)node->attr)->drawn;
}

bool *pass_find_of_integers(const tri_graph *g) {
    bool *found = TRI_NEW_ARRAY(g->arena, bool, g->value_count);
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        tri_precision_class class = node->op->precision;
        bool keeps = class == TRI_PRECISION_FULL || class == TRI_PRECISION_FOLLOW ||
                     class == TRI_PRECISION_ANY || class == TRI_PRECISION_CARRY;
        bool reads = false;
        // Images that arrive as bytes are no numbers that count something, nor are random ones.
        if (node->op == &tri_op_normalize_bytes || draws_numbers(node)) keeps = false;
        for (int k = 0; k < node->input_count && keeps; k++) {
            if (!tri_value_is(node->inputs[k])) continue;
            reads = true;
            keeps = found[node->inputs[k].id] ||
                    !tri_dtype_is_float(tri_value_get(g, node->inputs[k])->dtype);
        }
        for (int k = 0; k < node->output_count; k++) found[node->outputs[k].id] = keeps && reads;
    }
    return found;
}

// Sets the types of parameters. A trained parameter gets the half type if an op of class HALF or
// BIAS reads it, or GATHER if the weights are of that type already. With the precision BF16_TRUE
// every trained parameter gets it.
static void type_parameters(precision *p) {
    tri_graph *g = p->graph;
    for (int i = 0; i < g->parameter_count; i++)
        if (p->all && g->parameters[i].role == TRI_ROLE_TRAINED)
            g->values[g->parameters[i].value.id].dtype = p->half;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        tri_precision_class class = node->op->precision;
        bool gathers = class == TRI_PRECISION_GATHER && g->options.half_weights;
        if (class != TRI_PRECISION_HALF && class != TRI_PRECISION_BIAS && !gathers) continue;
        for (int k = 0; k < node->input_count; k++) {
            tri_value_info *info = &g->values[node->inputs[k].id];
            if (info->kind != TRI_VALUE_PARAMETER || info->dtype != TRI_F32) continue;
            if (gathers && info->shape.rank < 2) continue;
            if (g->parameters[info->index].role == TRI_ROLE_TRAINED) info->dtype = p->half;
        }
    }
}

// Whether the value has random numbers as they were drawn. In a half type they would reach 1, which
// no reader expects of numbers below 1.
static bool is_drawn(const precision *p, tri_value value) {
    const tri_node *maker = tri_value_node(p->graph, value);
    while (maker && maker->op == &tri_op_reshape)
        maker = tri_value_node(p->graph, maker->inputs[0]);
    return maker && draws_numbers(maker) &&
           ((const tri_map_attr *)maker->attr)->draws[0].kind == TRI_DRAW_UNIFORM;
}

static bool reads_drawn(const precision *p, const tri_node *node) {
    for (int k = 0; k < node->input_count; k++)
        if (tri_value_is(node->inputs[k]) && is_drawn(p, node->inputs[k])) return true;
    return false;
}

static tri_dtype type_of(const precision *p, tri_value value) {
    if (p->values[value.id].is_sum) return p->half;
    return p->values[value.id].wide ? TRI_F32 : tri_value_get(p->graph, value)->dtype;
}

// Finds the type in which the node has to read its input k: F32 or the half type.
static tri_dtype wanted_type(const precision *p, const tri_node *node, int k) {
    tri_dtype there = type_of(p, node->inputs[k]);
    const tri_node *maker = tri_value_node(p->graph, node->inputs[k]);
    bool data = tri_value_get(p->graph, node->inputs[k])->kind == TRI_VALUE_INPUT ||
                (maker && maker->op == &tri_op_normalize_bytes);
    const precision_value *made = node->output_count ? &p->values[node->outputs[0].id] : NULL;
    bool exact = made && (made->is_counted || made->is_of_integers);
    exact = exact || reads_drawn(p, node);
    data = data || p->values[node->inputs[k].id].is_of_integers;
    switch (node->op->precision) {
    case TRI_PRECISION_FULL:
        return TRI_F32;
    case TRI_PRECISION_HALF:
        return p->half;
    case TRI_PRECISION_NORM:
        return k > 0 ? TRI_F32 : p->all ? p->half : there;
    case TRI_PRECISION_FOLLOW:
        for (int i = 0; i < node->input_count && (!p->all || exact); i++)
            if (tri_value_is(node->inputs[i]) && type_of(p, node->inputs[i]) == TRI_F32)
                return TRI_F32;
        return p->half;
    case TRI_PRECISION_CARRY:
        return there;
    case TRI_PRECISION_BIAS:
        return tri_value_get(p->graph, node->inputs[0])->dtype;
    case TRI_PRECISION_ANY:
    case TRI_PRECISION_GATHER:
        break;
    }
    return p->all && data && !exact ? p->half : there;
}

static bool is_cast(const precision *p, const tri_node *node, int k) {
    tri_dtype dtype = tri_value_get(p->graph, node->inputs[k])->dtype;
    bool takes_part = tri_value_is(node->inputs[k]) && (dtype == TRI_F32 || dtype == p->half);
    return takes_part && wanted_type(p, node, k) != dtype;
}

static void set_narrow(precision *p, tri_node *node, size_t offset) {
    char *attr = tri_arena_alloc(p->graph->arena, node->op->attr_bytes);
    memcpy(attr, node->attr, node->op->attr_bytes);
    *(int64_t *)(attr + offset) = p->half;
    node->attr = attr;
}

// Marks the values that are terms of a sum over ranks: from the linear layer that makes them (each
// rank has a slice of its inputs) up to the op that sums them. Also marks the sum. The terms stay
// F32 until they are summed, so that the sum is rounded to the half type only once, as on one rank.
static void mark_sums(precision *p, const tri_node *node) {
    precision_value *y = &p->values[node->outputs[0].id];
    const precision_value *x = &p->values[node->inputs[0].id];
    bool sums = node->op == &tri_op_all_reduce || node->op == &tri_op_reduce_scatter;
    if (node->op == &tri_op_linear) y->is_term = ((const tri_linear_attr *)node->attr)->wide;
    if (node->op->precision == TRI_PRECISION_CARRY) y->is_term = x->is_term && !sums;
    y->is_sum = (x->is_term && sums) || (x->is_sum && node->op == &tri_op_add_bias);
}

// Sets the types of the node's outputs. They follow from the types in which it reads its inputs.
static tri_status type_node(precision *p, tri_node *node) {
    tri_graph *g = p->graph;
    tri_op_signature s = tri_node_signature(g, node);
    for (int k = 0; k < node->input_count; k++)
        if (is_cast(p, node, k)) s.in_type[k] = wanted_type(p, node, k);
    if (node->op->precision == TRI_PRECISION_NORM && s.in_type[0] == TRI_F32 &&
        p->values[node->outputs[0].id].narrows)
        set_narrow(p, node, node->op->narrow);
    mark_sums(p, node);
    TRI_TRY(node->op->shape(node->attr, &s));
    for (int k = 0; k < node->output_count; k++)
        g->values[node->outputs[k].id].dtype = s.out_type[k];
    if (node->op->precision == TRI_PRECISION_GATHER && !p->all && s.out_type[0] == p->half)
        p->values[node->outputs[0].id].wide = true;
    return TRI_OK;
}

// Decides for each value whether it is cast in the block that makes it or in the first block that
// reads it. If other blocks read it only in the half type, it is cast where it is made, so that
// fewer bytes are sent between stages and kept in memory.
static void choose_cast_sides(precision *p) {
    const tri_graph *g = p->graph;
    // plain[v]: another block reads value v without a cast.
    bool *plain = TRI_NEW_ARRAY(g->arena, bool, g->value_count);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) {
            tri_value value = g->nodes[i].inputs[k];
            const tri_node *maker = tri_value_node(g, value);
            if (!maker || maker->block == g->nodes[i].block) continue;
            if (is_cast(p, &g->nodes[i], k))
                p->values[value.id].at_maker = tri_value_get(g, value)->dtype == TRI_F32;
            else
                plain[value.id] = true;
        }
    for (int i = 0; i < g->value_count; i++)
        p->values[i].at_maker = p->values[i].at_maker && !plain[i];
}

static tri_value cast_of(precision *p, tri_value value) {
    precision_value *info = &p->values[value.id];
    if (tri_value_is(info->cast)) return info->cast;
    bool half = tri_value_get(p->graph, value)->dtype == p->half;
    tri_cast_attr attr = {.dtype = half ? TRI_F32 : p->half};
    tri_value made = tri_node_add(p->graph, &tri_op_cast, &value, 1, &attr, "");
    p->values[value.id].cast = made;
    return made;
}

// Copies the nodes into a new list and adds the casts in between.
static void insert_casts(precision *p) {
    tri_graph *g = p->graph;
    tri_phase phase = g->phase;
    int block = g->block, count = g->node_count;
    tri_node *nodes = g->nodes;
    bool(*casts)[TRI_MAX_INPUTS] = tri_arena_alloc(g->arena, (size_t)count * sizeof *casts);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < nodes[i].input_count; k++) casts[i][k] = is_cast(p, &nodes[i], k);
    g->nodes = NULL;
    g->node_count = g->node_capacity = 0;
    for (int i = 0; i < count; i++) {
        tri_node node = nodes[i];
        g->phase = node.phase;
        g->block = node.block;
        for (int k = 0; k < node.input_count; k++)
            if (casts[i][k]) node.inputs[k] = cast_of(p, node.inputs[k]);
        for (int k = 0; k < node.output_count; k++)
            g->values[node.outputs[k].id].node = g->node_count;
        TRI_PUSH(g->arena, g->nodes, g->node_count, g->node_capacity) = node;
        for (int k = 0; k < node.output_count; k++)
            if (p->values[node.outputs[k].id].at_maker) cast_of(p, node.outputs[k]);
    }
    g->phase = phase;
    g->block = block;
}

tri_status tri_pass_precision(tri_graph *graph, tri_precision precision_mode) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    precision p = {.graph = graph,
                   .half = modes[precision_mode].half,
                   .all = modes[precision_mode].all,
                   .values = TRI_NEW_ARRAY(graph->arena, precision_value, graph->value_count)};
    if (precision_mode == TRI_PRECISION_32_TRUE) return TRI_OK;
    TRI_ASSERT(graph->options.dtype == TRI_F32);
    find_narrowing(&p);
    find_counted(&p);
    const bool *of_integers = pass_find_of_integers(graph);
    for (int i = 0; i < graph->value_count; i++) p.values[i].is_of_integers = of_integers[i];
    type_parameters(&p);
    for (int i = 0; i < graph->node_count; i++) TRI_TRY(type_node(&p, &graph->nodes[i]));
    choose_cast_sides(&p);
    insert_casts(&p);
    return tri_graph_verify(graph);
}

// Whether it is of use that two maps become one. It saves that a value is written and read again.
// It costs where a value is computed several times, where the inputs of the first map have to stay
// in memory until the second one runs, and where the backward pass reads more values.
#include "ops/ops.h"
#include "pass/fusions.h"
#include "tensor/half.h"

// A value that costs at most so many operations per element is cheap to compute twice.
enum { CHEAP = 4, MOST_KEPT = 2 * (TRI_FORMULA_INPUTS + TRI_FORMULA_OUTPUTS) };

typedef struct gain {
    const tri_graph *graph;
    const fusion_facts *facts;
    const tri_node *node, *producer, *merged;
} gain;

static int64_t elements(const tri_graph *graph, tri_value value) {
    return tri_shape_count(&tri_value_get(graph, value)->shape);
}

static int count_reads(const tri_node *node, tri_value value) {
    int count = 0;
    for (int k = 0; k < node->input_count; k++) count += node->inputs[k].id == value.id;
    return count;
}

static bool is_cheap(const gain *g) {
    double of_one = tri_node_cost(g->graph, g->producer).flops;
    return of_one <= CHEAP * (double)elements(g->graph, g->producer->outputs[0]);
}

// Whether all that reads the value are maps beside the node, each of which may compute it itself.
static bool only_maps_read(const gain *g, tri_value value) {
    int reads = 0;
    for (int i = 0; i < g->graph->node_count; i++) {
        const tri_node *reader = &g->graph->nodes[i];
        if (reader->op == &tri_op_map && reader->block == g->node->block &&
            reader->phase == g->node->phase && !g->facts->removed[i])
            reads += count_reads(reader, value);
    }
    return reads == g->facts->uses[value.id];
}

static bool reads_alone(const gain *g) {
    for (int k = 0; k < g->producer->output_count; k++) {
        tri_value value = g->producer->outputs[k];
        if (g->facts->uses[value.id] != count_reads(g->node, value)) return false;
    }
    return true;
}

// Whether the formula compares a number that depends on the input, or decides by it.
static bool decides_by(const tri_map_attr *map, int input) {
    const tri_formula *f = &map->formula;
    bool decides[UINT8_MAX + 1] = {false};
    for (int k = 0; k < f->output_count; k++) decides[f->outputs[k]] = map->mask;
    for (int t = f->step_count - 1; t >= 0; t--) {
        const tri_formula_step *s = &f->steps[t];
        bool by_a = s->kind == TRI_STEP_less || s->kind == TRI_STEP_less_equal ||
                    s->kind == TRI_STEP_equal || s->kind == TRI_STEP_not ||
                    s->kind == TRI_STEP_sign || s->kind == TRI_STEP_select;
        bool by_b = by_a && s->kind != TRI_STEP_select;
        int arity = tri_step_arity((tri_step_kind)s->kind);
        decides[s->a] = decides[s->a] || by_a || decides[t];
        if (arity > 1) decides[s->b] = decides[s->b] || by_b || decides[t];
        if (arity > 2) decides[s->c] = decides[s->c] || decides[t];
    }
    return decides[TRI_OPERAND_INPUT + input];
}

// Marks the values by which maps decide, themselves or after other maps.
static bool *find_decided(const tri_graph *graph, const bool *removed) {
    bool *decided = TRI_NEW_ARRAY(graph->arena, bool, graph->value_count);
    for (int i = graph->node_count - 1; i >= 0; i--) {
        const tri_node *node = &graph->nodes[i];
        bool is_behind = false;
        if (node->op != &tri_op_map || removed[i]) continue;
        for (int k = 0; k < node->output_count; k++)
            is_behind = is_behind || decided[node->outputs[k].id];
        for (int k = 0; k < node->input_count && tri_value_is(node->inputs[k]); k++)
            if (is_behind || decides_by(node->attr, k)) decided[node->inputs[k].id] = true;
    }
    return decided;
}

// Whether maps would decide by numbers that exist a second time: stored, and so rounded, or
// computed by another kernel. One that is equal to another need not be equal to that one's copy.
// The backward pass computes again what the forward pass has made.
static bool decides_by_copies(const gain *g) {
    if (g->node->op != &tri_op_map) return false;
    if (g->node->phase == TRI_PHASE_FORWARD) {
        if (reads_alone(g)) return false;
        const bool *decided = find_decided(g->graph, g->facts->removed);
        for (int o = 0; o < g->producer->output_count; o++)
            if (decided[g->producer->outputs[o].id]) return true;
        return false;
    }
    for (int k = 0; k < g->node->input_count && tri_value_is(g->node->inputs[k]); k++)
        for (int o = 0; o < g->producer->output_count; o++)
            if (g->node->inputs[k].id == g->producer->outputs[o].id && decides_by(g->node->attr, k))
                return true;
    return false;
}

// Whether the producer's outputs need not be in memory any more.
static bool vanishes(const gain *g) {
    bool alone = reads_alone(g);
    for (int k = 0; !alone && k < g->producer->output_count; k++)
        if (!only_maps_read(g, g->producer->outputs[k])) return false;
    return alone || is_cheap(g);
}

// Whether the node reads the elements of a smaller value again and again, which would now be
// computed again and again. How much smaller a value that no sample changes is depends on how many
// samples there are.
static bool repeats(const gain *g) {
    tri_value from = g->producer->outputs[0], to = g->node->outputs[0];
    bool grows = g->facts->from_data[from.id] != g->facts->from_data[to.id] ||
                 elements(g->graph, from) < elements(g->graph, to);
    return grows && !is_cheap(g);
}

// Whether something behind the node reads the value.
static bool is_read_later(const gain *g, tri_value value) {
    int reads = 0;
    for (int i = 0; g->graph->nodes + i <= g->node; i++)
        if (!g->facts->removed[i]) reads += count_reads(&g->graph->nodes[i], value);
    return reads < g->facts->uses[value.id];
}

static bool is_result(const gain *g, tri_value value) {
    return tri_value_is(value) && tri_value_get(g->graph, value)->kind == TRI_VALUE_RESULT;
}

// Whether values take more memory between the two nodes than before: inputs of the producer that
// nothing else needs until then, instead of its outputs.
static bool lives_longer(const gain *g) {
    int64_t more = 0;
    bool beside = true;
    for (const tri_node *n = g->producer + 1; n < g->node; n++)
        beside = beside && (n->op == &tri_op_map || n->op->flags & TRI_OP_VIEW);
    for (int k = 0; k < g->producer->input_count; k++) {
        tri_value x = g->producer->inputs[k];
        if (is_result(g, x) && count_reads(g->node, x) == 0 && !is_read_later(g, x))
            more += elements(g->graph, x);
    }
    for (int k = 0; k < g->producer->output_count; k++)
        if (g->facts->uses[g->producer->outputs[k].id] > 0)
            more -= elements(g->graph, g->producer->outputs[k]);
    return !beside && more > 0;
}

// Appends to `kept` the values that the gradient of a map reads. False: the gradient is too long
// for a formula.
static bool add_kept(const gain *g, const tri_node *node, tri_value *kept, int *count) {
    const tri_formula *f = &((const tri_map_attr *)node->attr)->formula;
    bool has_gradient[TRI_FORMULA_OUTPUTS] = {true, true, true, true};
    if (f->input_count == TRI_FORMULA_INPUTS) return false; // its gradient would be two maps
    for (int first = 0; first < f->input_count; first += TRI_FORMULA_OUTPUTS) {
        bool wanted[TRI_FORMULA_INPUTS] = {false}, differs[TRI_FORMULA_INPUTS], any = false;
        int uses[TRI_FORMULA_INPUTS];
        tri_formula derived;
        for (int k = first; k < f->input_count && k < first + TRI_FORMULA_OUTPUTS; k++) {
            wanted[k] = g->facts->wanted[node->inputs[k].id];
            any = any || wanted[k];
        }
        if (!any) continue;
        if (tri_formula_derive(f, has_gradient, wanted, &derived, uses, differs) != TRI_OK)
            return false;
        for (int i = 0; i < derived.input_count; i++) {
            int of_output = uses[i] - f->input_count;
            tri_value value = of_output < 0                 ? node->inputs[uses[i]]
                              : of_output < f->output_count ? node->outputs[of_output]
                                                            : (tri_value){0};
            bool there = false;
            for (int k = 0; k < *count; k++) there = there || kept[k].id == value.id;
            if (!there && is_result(g, value)) kept[(*count)++] = value;
        }
    }
    return true;
}

static int64_t kept_elements(const gain *g, const tri_value *kept, int count) {
    int64_t sum = 0;
    for (int k = 0; k < count; k++)
        if (g->facts->from_data[kept[k].id]) sum += elements(g->graph, kept[k]);
    return sum;
}

// Whether the backward pass would need more memory for what the forward pass has made, or would
// have no formula.
static bool keeps_more(const gain *g) {
    tri_value before[MOST_KEPT], after[MOST_KEPT];
    int count_before = 0, count_after = 0;
    if (!g->graph->options.training || g->facts->time != TRI_FUSE_BEFORE_AUTODIFF) return false;
    if (!tri_dtype_is_float(tri_value_get(g->graph, g->node->outputs[0])->dtype)) return false;
    return !add_kept(g, g->node, before, &count_before) ||
           !add_kept(g, g->producer, before, &count_before) ||
           !add_kept(g, g->merged, after, &count_after) ||
           kept_elements(g, after, count_after) > kept_elements(g, before, count_before);
}

// Whether the merged map would read integers in a half type, which rounds them. Apart from the
// others, a value that is made of them is computed in F32 (pass/precision.c).
static bool rounds(const gain *g) {
    const bool *of_integers = g->facts->of_integers;
    return g->graph->options.precision == TRI_PRECISION_BF16_TRUE &&
           of_integers[g->producer->outputs[0].id] && !of_integers[g->node->outputs[0].id];
}

bool pass_gains(const tri_graph *graph, const fusion_facts *facts, const tri_node *node,
                const tri_node *producer, const tri_node *merged) {
    gain g = {graph, facts, node, producer, merged};
    return !rounds(&g) && !decides_by_copies(&g) && vanishes(&g) && !repeats(&g) &&
           !lives_longer(&g) && !keeps_more(&g);
}

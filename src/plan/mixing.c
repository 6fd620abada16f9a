// Finds ops that mix the samples of a micro-batch, and numbers that depend on how many there are.
// Such a result depends on how a step is divided into micro-batches, and so on the number of ranks
// if that decides it.
#include "plan/mixing.h"

#include "ops/ops.h"
#include "ops/own.h"
#include "ops/product_map.h"

#include <string.h>

// Where the samples of a value lie: the number of their axis, and RUNS times how often the axis
// counts them. It counts them once, or several times one behind the other, as where [T, N] has
// become one axis; a sample may have several rows in it, as where [N, H] has.
typedef int64_t location;
enum {
    NO_SAMPLES = -1, // the value does not depend on them
    MIXED = -2,      // elements of different samples have been computed together
    RUNS = 16,
    FIRST = RUNS, // the first axis, once
};

static location location_of(int axis, int64_t runs) { return runs * RUNS + axis; }
static int axis_at(location at) { return (int)(at % RUNS); }
static int64_t runs_at(location at) { return at / RUNS; }

typedef struct mixing {
    const tri_graph *graph;
    const tri_graph *other; // of another number of samples; NULL: it is not known
    int64_t samples;
    location *at; // of each value
} mixing;

static const tri_shape *shape_of(const mixing *m, tri_value value) {
    return &tri_value_get(m->graph, value)->shape;
}

static bool is_from_data(const mixing *m, tri_value value) { return m->at[value.id] >= 0; }

// Where the samples lie if one input says `a` and another one `b`.
static location both(location a, location b) {
    if (a == NO_SAMPLES || a == b) return b;
    return b == NO_SAMPLES ? a : MIXED;
}

// Where map puts the samples of input k, by the view with which it reads it.
static location place_by_view(const mixing *m, const tri_node *node, int k) {
    const tri_map_attr *attr = node->attr;
    const tri_shape *x = tri_map_read_shape(attr, k, shape_of(m, node->inputs[k]));
    const tri_shape *out = attr->expands ? &attr->shape : shape_of(m, node->outputs[0]);
    tri_map_view view = tri_map_view_of(attr, k, x, out);
    if (x->rank == 0) return NO_SAMPLES; // made by an op that has mixed them before
    // Random numbers are drawn for samples, which their first axis counts.
    bool is_drawn = attr->drawn >> k & 1;
    location at = is_drawn ? FIRST : m->at[node->inputs[k].id];
    int from = axis_at(at), to = view.axis[from];
    if (x->dims[from] == 1) return to >= 0 && out->dims[to] == 1 ? location_of(to, 1) : NO_SAMPLES;
    bool is_whole =
        to >= 0 && view.sign[from] == 1 && view.start[from] == 0 && x->dims[from] == out->dims[to];
    return is_whole && !(is_drawn && to != 0) ? location_of(to, runs_at(at)) : MIXED;
}

// The same of map_reduce, which may not reduce that axis.
static location place_by_reduced_view(const mixing *m, const tri_node *node, int k) {
    const tri_map_reduce_attr *attr = node->attr;
    location at = place_by_view(m, node, k);
    return at >= 0 && attr->reduce.axes >> axis_at(at) & 1 ? MIXED : at;
}

// The same of operand k of a matmul, which may not sum over it.
static location place_in_product(const mixing *m, const tri_node *node, int k) {
    const tri_matmul_attr *attr = node->attr;
    const tri_shape *x = shape_of(m, node->inputs[k]), *y = shape_of(m, node->outputs[0]);
    location at = m->at[node->inputs[k].id];
    int from = axis_at(at), summed = k == TRI_MATMUL_A ? x->rank - 1 : x->rank - 2, axis = 0;
    if (x->dims[from] == 1) return NO_SAMPLES;
    while (tri_matmul_axis(attr, k, axis) != from) axis++;
    if (axis == summed) return MIXED;
    return location_of(tri_matmul_axis(attr, TRI_MATMUL_Y, axis + y->rank - x->rank), runs_at(at));
}

// The first axis that softmax takes together with others.
static int softmax_axis(const mixing *m, const tri_node *node) {
    const tri_shape *x = shape_of(m, node->inputs[0]);
    return x->rank - 1 - (int)((const tri_softmax_attr *)node->attr)->behind;
}

// How many of the last axes the op computes with as a whole; 0: it is none of these ops.
static int last_axes_of(const tri_node *node) {
    if (node->op == &tri_op_layer_norm || node->op == &tri_op_rms_norm) return 1;
    if (node->op == &tri_op_linear) return (int)((const tri_linear_attr *)node->attr)->axes;
    return 0;
}

// Where the samples lie behind an op of the last axes.
static location place_before_last(const mixing *m, const tri_node *node) {
    location at = m->at[node->inputs[0].id];
    int rank = shape_of(m, node->inputs[0])->rank;
    for (int k = 1; k < node->input_count; k++)
        if (node->inputs[k].id && is_from_data(m, node->inputs[k])) return MIXED;
    return at < 0 || axis_at(at) < rank - last_axes_of(node) ? at : MIXED;
}

// The number of elements of the axes before `axis`.
static int64_t rows_before(const tri_shape *shape, int axis) {
    int64_t rows = 1;
    for (int i = 0; i < axis; i++) rows *= shape->dims[i];
    return rows;
}

// The axis of a reshaped value that counts the samples, as many elements before them as before.
static location place_reshaped(const mixing *m, const tri_node *node) {
    const tri_shape *x = shape_of(m, node->inputs[0]), *y = shape_of(m, node->outputs[0]);
    location at = m->at[node->inputs[0].id];
    int64_t before = rows_before(x, axis_at(at)) * runs_at(at);
    for (int to = 0; to < y->rank; to++) {
        int64_t rows = rows_before(y, to),
                runs = rows > 0 && before % rows == 0 ? before / rows : 0;
        if (runs > 0 && y->dims[to] % (runs * m->samples) == 0) return location_of(to, runs);
    }
    return MIXED;
}

// The index and x: where x is a parameter, the samples' indices name its rows, and nothing is
// mixed.
static location place_gathered(const mixing *m, const tri_node *node) {
    location index = m->at[node->inputs[0].id], at = m->at[node->inputs[1].id];
    const tri_shape *x = shape_of(m, node->inputs[1]), *i = shape_of(m, node->inputs[0]);
    if (at >= 0 && ((const tri_gather_attr *)node->attr)->axis == axis_at(at) &&
        x->dims[axis_at(at)] != 1)
        return MIXED;
    bool is_one = index >= 0 && i->dims[axis_at(index)] == 1 && m->samples != 1;
    return both(at, is_one ? NO_SAMPLES : index);
}

// The axis along which the op computes with all elements together; -1: it is none of these ops.
static int64_t axis_of(const tri_node *node) {
    if (node->op == &tri_op_concat) return ((const tri_concat_attr *)node->attr)->dim;
    if (node->op == &tri_op_scatter) return ((const tri_scatter_attr *)node->attr)->axis;
    if (node->op == &tri_op_argmax) return ((const tri_argmax_attr *)node->attr)->axis;
    if (node->op == &tri_op_sort) return ((const tri_sort_attr *)node->attr)->axis;
    if (node->op == &tri_op_scan) return ((const tri_scan_attr *)node->attr)->axis;
    return -1;
}

// Where the samples of all inputs lie, which is the same axis.
static location place_of_all(const mixing *m, const tri_node *node) {
    location at = NO_SAMPLES;
    for (int k = 0; k < node->input_count; k++)
        if (node->inputs[k].id) at = both(at, m->at[node->inputs[k].id]);
    return at;
}

// Whether all inputs and the output have one shape, and the op computes on each element alone.
static bool is_of_elements(const mixing *m, const tri_node *node) {
    bool alike = node->op->axes == TRI_AXES_ANY && node->output_count == 1;
    for (int k = 0; alike && k < node->input_count; k++)
        alike = node->inputs[k].id &&
                tri_shape_equal(shape_of(m, node->inputs[k]), shape_of(m, node->outputs[0]));
    return alike;
}

// A recurrent op has them along the first or the second axis of its steps, and those of its states
// along the first.
static location place_in_steps(const mixing *m, const tri_node *node) {
    location first = location_of(((const tri_recurrent_attr *)node->attr)->time_first ? 1 : 0, 1);
    for (int k = 0; k < node->input_count; k++)
        if (node->inputs[k].id && is_from_data(m, node->inputs[k]) &&
            m->at[node->inputs[k].id] != (k == 0 ? first : FIRST))
            return MIXED;
    return first;
}

typedef location place_input(const mixing *, const tri_node *, int);

// Where the samples of the node's first output lie; of others they may be along the first axis.
static location place(const mixing *m, const tri_node *node) {
    if (node->op == &tri_op_reshape) return place_reshaped(m, node);
    if (last_axes_of(node)) return place_before_last(m, node);
    if (node->op == &tri_op_gather) return place_gathered(m, node);
    if (node->op == &tri_op_recurrent) return place_in_steps(m, node);
    location at = NO_SAMPLES;
    place_input *of_input = node->op == &tri_op_map          ? place_by_view
                            : node->op == &tri_op_map_reduce ? place_by_reduced_view
                            : node->op == &tri_op_matmul     ? place_in_product
                                                             : NULL;
    for (int k = 0; of_input && k < node->input_count; k++)
        if (is_from_data(m, node->inputs[k])) at = both(at, of_input(m, node, k));
    if (of_input) return at == NO_SAMPLES ? FIRST : at;
    at = place_of_all(m, node);
    if (at < 0) return at;
    int axis = axis_at(at);
    bool is_softmax = node->op == &tri_op_softmax || node->op == &tri_op_log_softmax;
    if (is_softmax && softmax_axis(m, node) == axis)
        return shape_of(m, node->inputs[0])->dims[axis] != 1 ? MIXED : at;
    if (is_softmax) return at;
    if (node->op == &tri_op_reduce)
        return ((const tri_reduce_attr *)node->attr)->axes >> axis & 1 ? MIXED : at;
    if (node->op == &tri_op_own && ((const tri_own_attr *)node->attr)->op->mixes_samples)
        return MIXED;
    if (axis_of(node) >= 0) return axis_of(node) == axis ? MIXED : at;
    if (node->op == &tri_op_embedding || is_of_elements(m, node)) return at;
    return at == FIRST ? FIRST : MIXED;
}

// Sets where the samples of the node's outputs lie. Returns false if it mixes them.
static bool follow(mixing *m, const tri_node *node) {
    tri_node product, map;
    if (node->op == &tri_op_product_map) {
        tri_product_map_split(node, &product, &map);
        return follow(m, &product) && follow(m, &map);
    }
    location at = place(m, node);
    for (int k = 0; k < node->output_count; k++) {
        bool is_state = node->op == &tri_op_recurrent && k > 0;
        m->at[node->outputs[k].id] = at == MIXED || is_state ? FIRST : at;
    }
    return at != MIXED;
}

static mixing begin(tri_arena *arena, const tri_graph *graph, const tri_graph *other,
                    int64_t samples) {
    mixing m = {graph, other, samples, TRI_NEW_ARRAY(arena, location, graph->value_count)};
    for (int i = 0; i < graph->value_count; i++) m.at[i] = NO_SAMPLES;
    // Random numbers, which are drawn by the position, are those of samples.
    for (int i = 0; i < graph->input_count; i++) m.at[graph->inputs[i].value.id] = FIRST;
    return m;
}

static bool reads_data(const mixing *m, const tri_node *node) {
    bool depends = false;
    for (int k = 0; k < node->input_count; k++)
        depends = depends || is_from_data(m, node->inputs[k]);
    return depends;
}

// Whether the value's only use is to be the "gradient" of a statistic, to which those of all
// micro-batches are added.
static bool is_statistic(const tri_graph *g, tri_value value) {
    bool used = false;
    for (int i = 0; i < g->gradient_count; i++) used |= g->gradients[i].value.id == value.id;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) {
            if (g->nodes[i].inputs[k].id != value.id) continue;
            used = g->nodes[i].op == &tri_op_reshape && is_statistic(g, g->nodes[i].outputs[0]);
            if (!used) return false;
        }
    return used;
}

// Whether the node is the sum over samples of a statistic.
static bool sums_statistic(const tri_graph *g, const tri_node *node) {
    return node->op == &tri_op_reduce &&
           ((const tri_reduce_attr *)node->attr)->kind == TRI_REDUCTION_SUM &&
           is_statistic(g, node->outputs[0]);
}

const tri_node *tri_plan_find_mixing(tri_arena *arena, const tri_graph *graph, int64_t samples) {
    mixing m = begin(arena, graph, NULL, samples);
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        if (node->phase != TRI_PHASE_FORWARD || !reads_data(&m, node)) continue;
        bool mixed = !follow(&m, node);
        if (mixed && !sums_statistic(graph, node)) return node;
        // What sums up a statistic is of no sample any more.
        for (int k = 0; mixed && k < node->output_count; k++)
            m.at[node->outputs[k].id] = NO_SAMPLES;
    }
    return NULL;
}

static bool has_other_number(const tri_node *a, const tri_node *b) {
    const tri_map_attr *map = a->attr, *other = b->attr;
    if (a->op == &tri_op_map && memcmp(&map->formula, &other->formula, sizeof map->formula) != 0)
        return true;
    const tri_own_attr *own = a->attr, *others = b->attr;
    if (a->op == &tri_op_own && memcmp(own->settings, others->settings, sizeof own->settings) != 0)
        return true;
    for (const tri_attr_field *f = a->op->attr_fields; f && f->name; f++) {
        size_t bytes = (size_t)(f->count > 0 ? f->count : 1) * sizeof(double);
        if (f->kind == TRI_ATTR_FLOAT &&
            memcmp((const char *)a->attr + f->offset, (const char *)b->attr + f->offset, bytes))
            return true;
    }
    return false;
}

// Finds a loss of a weighted sum whose weight is another one in the other graph.
static const tri_node *find_sized_weight(const tri_graph *graph, const tri_graph *other) {
    for (int i = 0; i < graph->sum_count && i < other->sum_count; i++)
        for (int k = 0; k < graph->sums[i].count && k < other->sums[i].count; k++)
            if (graph->sums[i].weights[k] != other->sums[i].weights[k])
                return &graph->nodes[tri_value_get(graph, graph->sums[i].losses[k])->node];
    return NULL;
}

const tri_node *tri_plan_find_sized(const tri_graph *graph, const tri_graph *other) {
    for (int i = 0; i < graph->node_count; i++)
        if (i >= other->node_count || graph->nodes[i].op != other->nodes[i].op ||
            has_other_number(&graph->nodes[i], &other->nodes[i]))
            return &graph->nodes[i];
    if (graph->node_count < other->node_count) return &other->nodes[graph->node_count];
    return find_sized_weight(graph, other);
}

// Whether the size of the value's axis follows from the number of samples.
static bool is_sized(const mixing *m, tri_value value, int axis) {
    return axis >= 0 &&
           shape_of(m, value)->dims[axis] != tri_value_get(m->other, value)->shape.dims[axis];
}

// The value's first such axis; -1: it has none.
static int first_sized(const mixing *m, tri_value value) {
    for (int axis = 0; axis < shape_of(m, value)->rank; axis++)
        if (is_sized(m, value, axis)) return axis;
    return -1;
}

static bool reads_sized(const mixing *m, const tri_node *node) {
    for (int k = 0; k < node->input_count; k++)
        if (node->inputs[k].id && first_sized(m, node->inputs[k]) >= 0) return true;
    return false;
}

// Whether map gives the samples different elements of an input that has none of them, or moves the
// rows of one that has them. A broadcast gives each sample the same elements.
static bool view_makes_rows(const mixing *m, const tri_node *node) {
    const tri_map_attr *attr = node->attr;
    bool reduces = node->op == &tri_op_map_reduce;
    const tri_shape *out = attr->expands ? &attr->shape : shape_of(m, node->outputs[0]);
    for (int k = 0; k < node->input_count; k++) {
        if (is_from_data(m, node->inputs[k])) continue;
        const tri_shape *x = shape_of(m, node->inputs[k]);
        tri_map_view view = tri_map_view_of(attr, k, x, out);
        for (int j = 0; j < x->rank; j++) {
            int axis = view.axis[j];
            if (axis < 0 || (reduces && axis >= shape_of(m, node->outputs[0])->rank)) continue;
            bool from = is_sized(m, node->inputs[k], j), to = is_sized(m, node->outputs[0], axis);
            if (to && (!from || x->dims[j] != out->dims[axis])) return true;
        }
    }
    return false;
}

// Whether a reshaped value that comes from no data has rows that differ, or no axis any more that
// begins with the samples.
static bool reshape_makes_rows(const mixing *m, const tri_node *node) {
    int from = first_sized(m, node->inputs[0]), to = first_sized(m, node->outputs[0]);
    const tri_shape *x = shape_of(m, node->inputs[0]), *y = shape_of(m, node->outputs[0]);
    if (to < 0) return from >= 0;
    return from < 0 || x->dims[from] % m->samples != 0 || y->dims[to] % m->samples != 0 ||
           rows_before(x, from) != rows_before(y, to);
}

// Whether a node that reads no data makes rows that differ.
static bool makes_rows(const mixing *m, const tri_node *node) {
    int64_t along = axis_of(node);
    if (node->op == &tri_op_reshape) return reshape_makes_rows(m, node);
    if (first_sized(m, node->outputs[0]) < 0) return false;
    if (node->op == &tri_op_own) return ((const tri_own_attr *)node->attr)->op->mixes_samples;
    return !reads_sized(m, node) || (along >= 0 && is_sized(m, node->outputs[0], (int)along));
}

const tri_node *tri_plan_find_rows(tri_arena *arena, const tri_graph *graph, const tri_graph *other,
                                   int64_t samples) {
    mixing m = begin(arena, graph, other, samples);
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        if (node->phase != TRI_PHASE_FORWARD) continue;
        bool reads = reads_data(&m, node);
        if (node->op == &tri_op_map || node->op == &tri_op_map_reduce) {
            if (view_makes_rows(&m, node)) return node;
        } else if (!reads && makes_rows(&m, node)) {
            return node;
        }
        for (int k = 0; reads && k < node->output_count; k++) m.at[node->outputs[k].id] = FIRST;
    }
    return NULL;
}

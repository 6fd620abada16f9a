// Finds ops that mix the samples of a micro-batch, and numbers that depend on how many there are.
// Such a result depends on how a step is divided into micro-batches, and so on the number of ranks
// if that decides it.
#include "plan/mixing.h"

#include "ops/ops.h"
#include "ops/own.h"
#include "ops/product_map.h"

#include <string.h>

typedef struct mixing {
    const tri_graph *graph;
    const tri_graph *other; // of another number of samples; NULL: it is not known
    int64_t samples;
    bool *from_data; // from_data[v]: value v depends on the samples, which its first axis counts
} mixing;

static const tri_shape *shape_of(const mixing *m, tri_value value) {
    return &tri_value_get(m->graph, value)->shape;
}

// Whether map reads input k so that the first axis of the output is not that of the input.
static bool view_mixes(const mixing *m, const tri_node *node, int k) {
    const tri_map_attr *attr = node->attr;
    const tri_shape *x = tri_map_read_shape(attr, k, shape_of(m, node->inputs[k]));
    const tri_shape *out = attr->expands ? &attr->shape : shape_of(m, node->outputs[0]);
    tri_map_view view = tri_map_view_of(attr, k, x, out);
    if (x->rank == 0) return false; // made by an op that has mixed them before
    bool same = view.axis[0] == 0 && view.sign[0] == 1 && view.start[0] == 0;
    return x->dims[0] != 1 && (!same || x->dims[0] != out->dims[0]);
}

// Whether map_reduce does, or reduces the first axis.
static bool map_reduce_mixes(const mixing *m, const tri_node *node, int k) {
    const tri_map_reduce_attr *attr = node->attr;
    return attr->reduce.axes & 1 || view_mixes(m, node, k);
}

// Whether the first axis of operand k of a matmul is summed over, or does not become that of y.
static bool product_mixes(const mixing *m, const tri_node *node, int k) {
    const tri_matmul_attr *attr = node->attr;
    const tri_shape *x = shape_of(m, node->inputs[k]);
    int summed = k == TRI_MATMUL_A ? x->rank - 1 : x->rank - 2, first = 0;
    while (tri_matmul_axis(attr, k, first) != 0) first++;
    if (x->dims[0] == 1) return false;
    return first == summed || tri_matmul_axis(attr, TRI_MATMUL_Y, first) != 0;
}

static bool sums_samples(const mixing *m, const tri_node *node) {
    const tri_shape *x = shape_of(m, node->inputs[0]);
    return x->rank - 1 == ((const tri_softmax_attr *)node->attr)->behind && x->dims[0] != 1;
}

// Whether the op computes with the last axis as a whole, and this is the only one.
static bool spans_samples(const mixing *m, const tri_node *node) {
    int axes = 0;
    if (node->op == &tri_op_layer_norm || node->op == &tri_op_rms_norm) axes = 1;
    if (node->op == &tri_op_linear) axes = (int)((const tri_linear_attr *)node->attr)->axes;
    return axes > 0 && m->from_data[node->inputs[0].id] &&
           shape_of(m, node->inputs[0])->rank <= axes;
}

// Whether the first axis of a reshaped value does not begin with the samples any more.
static bool moves_samples(const mixing *m, const tri_node *node) {
    const tri_shape *y = shape_of(m, node->outputs[0]);
    return y->rank == 0 || y->dims[0] % m->samples != 0;
}

// Whether elements of different samples are taken: rows of x by their numbers. Where x is a
// parameter, the samples' indices name its rows, and nothing is mixed.
static bool gather_mixes(const mixing *m, const tri_node *node) {
    const tri_shape *x = shape_of(m, node->inputs[1]);
    return m->from_data[node->inputs[1].id] && ((const tri_gather_attr *)node->attr)->axis == 0 &&
           x->dims[0] != 1;
}

// The axis along which the op computes with all elements together; -1: it is none of these ops.
static int64_t axis_of(const tri_node *node) {
    if (node->op == &tri_op_concat) return ((const tri_concat_attr *)node->attr)->dim;
    if (node->op == &tri_op_scatter) return ((const tri_scatter_attr *)node->attr)->axis;
    if (node->op == &tri_op_argmax) return ((const tri_argmax_attr *)node->attr)->axis;
    if (node->op == &tri_op_sort) return ((const tri_sort_attr *)node->attr)->axis;
    if (node->op == &tri_op_scan) return ((const tri_scan_attr *)node->attr)->axis;
    if (node->op == &tri_op_recurrent)
        return ((const tri_recurrent_attr *)node->attr)->time_first ? 0 : -1;
    return -1;
}

static bool mixes(const mixing *m, const tri_node *node) {
    tri_node product, map;
    if (node->op == &tri_op_product_map) {
        tri_product_map_split(node, &product, &map);
        return mixes(m, &product) || mixes(m, &map);
    }
    if (node->op == &tri_op_reshape) return moves_samples(m, node);
    if (spans_samples(m, node)) return true;
    if (node->op == &tri_op_softmax || node->op == &tri_op_log_softmax)
        return sums_samples(m, node);
    if (node->op == &tri_op_reduce)
        return m->from_data[node->inputs[0].id] && ((const tri_reduce_attr *)node->attr)->axes & 1;
    if (node->op == &tri_op_gather) return gather_mixes(m, node);
    if (node->op == &tri_op_own) return ((const tri_own_attr *)node->attr)->op->mixes_samples;
    if (axis_of(node) == 0) return true;
    bool (*mixes_input)(const mixing *, const tri_node *, int) =
        node->op == &tri_op_map          ? view_mixes
        : node->op == &tri_op_map_reduce ? map_reduce_mixes
        : node->op == &tri_op_matmul     ? product_mixes
                                         : NULL;
    for (int k = 0; mixes_input && k < node->input_count; k++)
        if (m->from_data[node->inputs[k].id] && mixes_input(m, node, k)) return true;
    return false;
}

static mixing begin(tri_arena *arena, const tri_graph *graph, const tri_graph *other,
                    int64_t samples) {
    mixing m = {graph, other, samples, TRI_NEW_ARRAY(arena, bool, graph->value_count)};
    // Random numbers, which are drawn by the position, are those of samples.
    for (int i = 0; i < graph->input_count; i++) m.from_data[graph->inputs[i].value.id] = true;
    return m;
}

static bool reads_data(const mixing *m, const tri_node *node) {
    bool depends = false;
    for (int k = 0; k < node->input_count; k++)
        depends = depends || m->from_data[node->inputs[k].id];
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
        bool mixed = mixes(&m, node);
        if (mixed && sums_statistic(graph, node)) continue;
        if (mixed) return node;
        for (int k = 0; k < node->output_count; k++) m.from_data[node->outputs[k].id] = true;
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
        if (m->from_data[node->inputs[k].id]) continue;
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

// The number of elements of the axes before `axis`.
static int64_t rows_before(const tri_shape *shape, int axis) {
    int64_t rows = 1;
    for (int i = 0; i < axis; i++) rows *= shape->dims[i];
    return rows;
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
        for (int k = 0; reads && k < node->output_count; k++)
            m.from_data[node->outputs[k].id] = true;
    }
    return NULL;
}

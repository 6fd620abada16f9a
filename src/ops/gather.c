// Defines the ops that take elements along one axis by their numbers (gather) and that put elements
// there (scatter): their shape rules, gradient rules and costs. Each is the other's gradient.
#include "ops/rules.h"

axis_cut ops_axis_cut(const tri_shape *x, int64_t axis) {
    axis_cut cut = {1, x->dims[axis], 1};
    for (int i = 0; i < x->rank; i++)
        if (i != axis) *(i < axis ? &cut.outer : &cut.inner) *= x->dims[i];
    return cut;
}

index_axis ops_index_axis(int64_t axis, const tri_shape *x, const tri_shape *index) {
    axis_cut names = ops_axis_cut(x, axis), has = ops_axis_cut(index, axis);
    index_axis a = {.cut = names, .count = has.size, .step = has.inner};
    a.outer_step = has.outer == 1 ? 0 : has.size * has.inner;
    a.inner_step = has.inner == 1 ? 0 : 1;
    return a;
}

tri_status ops_want_axis(const char *op, int64_t axis, const tri_shape *x) {
    char text[160];
    if (axis >= 0 && axis < x->rank) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s has no axis %" PRId64, op,
                    tri_shape_text(x, text, sizeof text), axis);
}

// Checks an index for a tensor of shape x: of the axes before and of those behind the one that is
// indexed, all have the size that they have in x, or all have the size 1.
static tri_status want_index(const char *op, int64_t axis, const tri_shape *x,
                             const tri_op_signature *s) {
    const tri_shape *index = &s->in[0];
    char got[160], of[160];
    TRI_TRY(ops_want_type(op, "the index", s->in_type[0], TRI_I64));
    TRI_TRY(ops_want_axis(op, axis, x));
    bool fits = index->rank == x->rank;
    for (int side = 0; fits && side < 2; side++) {
        bool same = true, one = true;
        for (int i = side ? (int)axis + 1 : 0; i < (side ? x->rank : axis); i++) {
            same = same && index->dims[i] == x->dims[i];
            one = one && index->dims[i] == 1;
        }
        fits = same || one;
    }
    if (fits) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: the index %s does not fit %s along axis %" PRId64
                    ": its other axes must have the same sizes, or all before or behind it 1",
                    op, tri_shape_text(index, got, sizeof got), tri_shape_text(x, of, sizeof of),
                    axis);
}

static tri_shape with_axis(tri_shape shape, int64_t axis, int64_t size) {
    shape.dims[axis] = size;
    return shape;
}

static tri_status gather_shape(const void *attr, tri_op_signature *s) {
    const tri_gather_attr *a = attr;
    TRI_TRY(want_index("gather", a->axis, &s->in[1], s));
    s->out[0] = with_axis(s->in[1], a->axis, s->in[0].dims[a->axis]);
    s->out_type[0] = s->in_type[1];
    return TRI_OK;
}

static tri_status scatter_shape(const void *attr, tri_op_signature *s) {
    const tri_scatter_attr *a = attr;
    TRI_TRY(ops_want_one_type("scatter", s, 1, 3));
    TRI_TRY(want_index("scatter", a->axis, &a->shape, s));
    TRI_TRY(ops_want_shape("scatter", "the source", &s->in[1],
                           with_axis(a->shape, a->axis, s->in[0].dims[a->axis])));
    if (s->present[2]) TRI_TRY(ops_want_shape("scatter", "the base", &s->in[2], a->shape));
    if (a->kind < TRI_SCATTER_SET || a->kind > TRI_SCATTER_MAX)
        return TRI_FAIL(TRI_BAD_INPUT, "scatter: there is no kind %" PRId64, a->kind);
    if (a->kind == TRI_SCATTER_MAX && !s->present[2])
        return TRI_FAIL(TRI_BAD_INPUT, "scatter: a maximum needs a base");
    s->out[0] = a->shape;
    s->out_type[0] = s->in_type[1];
    return TRI_OK;
}

static tri_value add_gather(tri_graph *graph, const tri_node *node, int64_t axis, bool last,
                            tri_value x) {
    tri_gather_attr attr = {.axis = axis, .last = last};
    tri_value none = {0};
    return ops_node(graph, node, &tri_op_gather, &attr, node->inputs[0], x, none, none);
}

static tri_value add_scatter(tri_graph *graph, const tri_node *node, tri_scatter_attr attr,
                             tri_value source, tri_value base) {
    tri_value none = {0};
    return ops_node(graph, node, &tri_op_scatter, &attr, node->inputs[0], source, base, none);
}

static void gather_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_gather_attr *a = node->attr;
    tri_scatter_attr add = {
        .kind = TRI_SCATTER_ADD, .axis = a->axis, .shape = tri_value_shape(graph, node->inputs[1])};
    tri_value none = {0};
    TRI_ASSERT(!a->last); // only gradient rules set it
    if (wanted[1] && tri_value_is(out_grads[0]))
        in_grads[1] = add_scatter(graph, node, add, out_grads[0], none);
}

// Of a maximum: all that equal it share its gradient, as in PyTorch.
static void maximum_gradient(tri_graph *graph, const tri_node *node, tri_value dy,
                             const bool *wanted, tri_value *in_grads) {
    const tri_scatter_attr *a = node->attr;
    tri_scatter_attr add = *a;
    add.kind = TRI_SCATTER_ADD;
    tri_value source = node->inputs[1], base = node->inputs[2], y = node->outputs[0], none = {0};
    tri_shape from = tri_value_shape(graph, source), to = a->shape;
    tri_value there = add_gather(graph, node, a->axis, false, y);
    tri_value equal = ops_map(graph, node, "x, y -> x == y", from, source, there, none);
    tri_value kept = ops_map(graph, node, "x, y -> x == y", to, base, y, none);
    tri_value count = add_scatter(graph, node, add, equal, kept);
    tri_value share = ops_map(graph, node, "dy, n -> dy / n", to, dy, count, none);
    const char *own = "mine, share -> mine != 0 ? share : 0";
    if (wanted[2]) in_grads[2] = ops_map(graph, node, own, to, kept, share, none);
    if (!wanted[1]) return;
    share = add_gather(graph, node, a->axis, false, share);
    in_grads[1] = ops_map(graph, node, own, from, equal, share, none);
}

static void scatter_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    const tri_scatter_attr *a = node->attr;
    tri_value dy = out_grads[0];
    bool sets = a->kind == TRI_SCATTER_SET;
    if (!tri_value_is(dy)) return;
    if (a->kind == TRI_SCATTER_MAX) {
        maximum_gradient(graph, node, dy, wanted, in_grads);
        return;
    }
    // Of several elements that were put in one place only the last one is there.
    if (wanted[1]) in_grads[1] = add_gather(graph, node, a->axis, sets, dy);
    if (!wanted[2]) return;
    tri_value source = node->inputs[1], none = {0};
    in_grads[2] = dy;
    if (!sets) return;
    tri_value zeros =
        ops_map(graph, node, "x < x", tri_value_shape(graph, source), source, none, none);
    in_grads[2] = add_scatter(graph, node, *a, zeros, dy);
}

static tri_cost no_cost(const void *attr, const tri_op_signature *s) { return (tri_cost){0}; }

static tri_cost scatter_cost(const void *attr, const tri_op_signature *s) {
    bool sets = ((const tri_scatter_attr *)attr)->kind == TRI_SCATTER_SET;
    return (tri_cost){.flops = sets ? 0 : (double)tri_shape_count(&s->in[1])};
}

static int64_t count_elements(const void *attr, const tri_op_signature *s) {
    return s->in[1].dims[((const tri_gather_attr *)attr)->axis];
}

static int64_t count_places(const void *attr, const tri_op_signature *s) {
    const tri_scatter_attr *a = attr;
    return a->shape.dims[a->axis];
}

static const tri_op_classes elements = {count_elements, "indices", "elements to take"};
static const tri_op_classes places = {count_places, "indices", "elements to change"};

static const tri_attr_field gather_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_gather_attr, axis),
    OPS_FIELD(TRI_ATTR_BOOL, tri_gather_attr, last),
    {0},
};

static const tri_attr_field scatter_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_scatter_attr, kind),
    OPS_FIELD(TRI_ATTR_INT, tri_scatter_attr, axis),
    {0},
};

const tri_op tri_op_gather = {
    .name = "gather",
    .doc = "index I64, x -> y: along an axis, the elements of x whose numbers the index has; with "
           "`last`, 0 where an index is there again later",
    .input_count = 2,
    .output_count = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .attr_bytes = sizeof(tri_gather_attr),
    .attr_fields = gather_fields,
    .classes = &elements,
    .shape = gather_shape,
    .gradient = gather_gradient,
    .cost = no_cost,
};

const tri_op tri_op_scatter = {
    .name = "scatter",
    .doc = "index I64, source, base? -> y: the base (or 0), of which along an axis the elements "
           "that the index names are set to the source's (0; the last one stays), get them added "
           "(1; in the order of the index), or the larger of both (2)",
    .input_count = 3,
    .optional_inputs = 1,
    .output_count = 1,
    .attr_bytes = sizeof(tri_scatter_attr),
    .attr_fields = scatter_fields,
    .classes = &places,
    .shape = scatter_shape,
    .gradient = scatter_gradient,
    .cost = scatter_cost,
};

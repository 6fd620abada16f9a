// Defines ops for tensors whose slices lie on different ranks. The pass for tensor parallelism adds
// most of them to the graph. They come in pairs, and each op of a pair computes the gradient of the
// other:
//
//   copy_to and all_reduce         f and g of Megatron-LM [1]
//   split and all_gather           if each rank has the full gradient of the whole tensor
//   all_gather and reduce_scatter  if each rank has one term of that gradient; for activations that
//                                  are sliced along the sequence [2]
//
// In the forward pass copy_to does nothing, split cuts out this rank's slice, and rechunk changes
// the order of slices in memory; these three do not communicate there. The engine runs all_reduce,
// all_gather and reduce_scatter (engine/collective.c), because a device knows nothing of other
// ranks.
//
// [1] Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model
// parallelism", 2019. [2] Korthikanti et al., "Reducing activation recomputation in large
// transformer models", 2022.
#include "ops/rules.h"

static tri_status want_group(const char *op, const tri_collective_attr *a) {
    if (a->group >= 0 && a->group < TRI_GROUP_COUNT && a->slices >= 1 && a->index >= 0 &&
        a->index < a->slices)
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: there is no slice %" PRId64 " of %" PRId64 " in group %" PRId64, op,
                    a->index, a->slices, a->group);
}

static tri_status want_axis(const char *op, const tri_shape *shape, int64_t dim, int64_t slices) {
    char text[160];
    if (dim < 0 || dim >= shape->rank)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: x %s has no axis %" PRId64, op,
                        tri_shape_text(shape, text, sizeof text), dim);
    if (slices < 1 || shape->dims[dim] % slices)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: axis %" PRId64 " of x %s does not divide into %" PRId64 " slices", op,
                        dim, tri_shape_text(shape, text, sizeof text), slices);
    return TRI_OK;
}

// Checks that slices along `dim` are contiguous, because each slice that ranks send or receive has
// to be one range of memory.
static tri_status want_outermost(const char *op, const tri_shape *shape, int64_t dim) {
    char text[160];
    for (int64_t i = 0; i < dim; i++)
        if (shape->dims[i] != 1)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: axis %" PRId64 " of x %s is not the outermost; use rechunk", op,
                            dim, tri_shape_text(shape, text, sizeof text));
    return TRI_OK;
}

static tri_status all_reduce_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_group("all_reduce", attr));
    TRI_TRY(ops_want_float("all_reduce", "x", s->in_type[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status all_gather_shape(const void *attr, tri_op_signature *s) {
    const tri_collective_attr *a = attr;
    TRI_TRY(want_group("all_gather", a));
    TRI_TRY(want_axis("all_gather", &s->in[0], a->dim, 1));
    TRI_TRY(want_outermost("all_gather", &s->in[0], a->dim));
    ops_like_first(s);
    s->out[0].dims[a->dim] *= a->slices;
    return TRI_OK;
}

static tri_status reduce_scatter_shape(const void *attr, tri_op_signature *s) {
    const tri_collective_attr *a = attr;
    TRI_TRY(want_group("reduce_scatter", a));
    TRI_TRY(ops_want_float("reduce_scatter", "x", s->in_type[0]));
    TRI_TRY(want_axis("reduce_scatter", &s->in[0], a->dim, a->slices));
    TRI_TRY(want_outermost("reduce_scatter", &s->in[0], a->dim));
    ops_like_first(s);
    s->out[0].dims[a->dim] /= a->slices;
    return TRI_OK;
}

static tri_status copy_to_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_group("copy_to", attr));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status split_shape(const void *attr, tri_op_signature *s) {
    const tri_collective_attr *a = attr;
    TRI_TRY(want_group("split", a));
    TRI_TRY(want_axis("split", &s->in[0], a->dim, a->slices));
    ops_like_first(s);
    s->out[0].dims[a->dim] /= a->slices;
    return TRI_OK;
}

static tri_status split_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_collective_attr *a = attr;
    TRI_TRY(want_group("split_grad", a));
    TRI_TRY(want_axis("split_grad", &s->in[0], a->dim, 1));
    ops_like_first(s);
    s->out[0].dims[a->dim] *= a->slices;
    return TRI_OK;
}

static tri_status rechunk_shape(const void *attr, tri_op_signature *s) {
    const tri_rechunk_attr *a = attr;
    TRI_TRY(want_axis("rechunk", &s->in[0], a->from, a->chunks));
    TRI_TRY(want_axis("rechunk", &s->in[0], a->to, 1));
    ops_like_first(s);
    s->out[0].dims[a->from] /= a->chunks;
    s->out[0].dims[a->to] *= a->chunks;
    return TRI_OK;
}

static tri_value rechunk(tri_graph *graph, tri_value x, int64_t from, int64_t to, int64_t chunks) {
    tri_rechunk_attr attr = {.from = from, .to = to, .chunks = chunks};
    return tri_node_add(graph, &tri_op_rechunk, &x, 1, &attr, "");
}

// Finds the axis along which a collective runs, whose slices must be contiguous: `dim` itself if
// all axes before it have size 1, else axis 0. If this is not `dim`, a rechunk moves the slices
// from axis `dim` to axis 0 before the collective, or back after it.
static int64_t outermost(const tri_graph *graph, tri_value x, int64_t dim) {
    tri_shape shape = tri_value_shape(graph, x);
    for (int64_t i = 0; i < dim && i < shape.rank; i++)
        if (shape.dims[i] != 1) return 0;
    return dim;
}

tri_value ops_all_gather(tri_graph *graph, tri_value x, const tri_collective_attr *attr) {
    tri_collective_attr a = *attr;
    a.dim = outermost(graph, x, attr->dim);
    tri_value y = tri_node_add(graph, &tri_op_all_gather, &x, 1, &a, "");
    return a.dim == attr->dim ? y : rechunk(graph, y, a.dim, attr->dim, a.slices);
}

tri_value ops_reduce_scatter(tri_graph *graph, tri_value x, const tri_collective_attr *attr) {
    tri_collective_attr a = *attr;
    a.dim = outermost(graph, x, attr->dim);
    if (a.dim != attr->dim) x = rechunk(graph, x, attr->dim, a.dim, a.slices);
    return tri_node_add(graph, &tri_op_reduce_scatter, &x, 1, &a, "");
}

// The gradient rules. Each applies the other op of its pair to the gradient; the table at the top
// of this file lists the pairs. For all_reduce the other op is copy_to, which changes nothing, so
// the rule passes the gradient on and adds no node. all_gather is in two pairs: with `partial`
// (each rank has only one term of the gradient) the other op is reduce_scatter, else split. For a
// split with `partial` it is split_grad, which is not in the table.
static void all_reduce_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    const tri_collective_attr *a = node->attr;
    if (wanted[0] && !a->maximum) in_grads[0] = out_grads[0];
}

static void copy_to_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    tri_value sum = tri_node_add(graph, &tri_op_all_reduce, out_grads, 1, node->attr, node->name);
    in_grads[0] = ops_gradient_as(graph, node, node->inputs[0], sum);
}

static void all_gather_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    const tri_collective_attr *a = node->attr;
    const tri_op *op = a->partial ? &tri_op_reduce_scatter : &tri_op_split;
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    tri_value gradient = tri_node_add(graph, op, out_grads, 1, a, node->name);
    in_grads[0] = ops_gradient_as(graph, node, node->inputs[0], gradient);
}

static void reduce_scatter_gradient(tri_graph *graph, const tri_node *node,
                                    const tri_value *out_grads, const bool *wanted,
                                    tri_value *in_grads) {
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = tri_node_add(graph, &tri_op_all_gather, out_grads, 1, node->attr, node->name);
}

static void split_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                           const bool *wanted, tri_value *in_grads) {
    const tri_collective_attr *a = node->attr;
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = a->partial ? tri_node_add(graph, &tri_op_split_grad, out_grads, 1, a, node->name)
                             : ops_all_gather(graph, out_grads[0], a);
}

static void rechunk_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    const tri_rechunk_attr *a = node->attr;
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = rechunk(graph, out_grads[0], a->to, a->from, a->chunks);
}

static tri_cost no_cost(const void *attr, const tri_op_signature *s) { return (tri_cost){0}; }

static const tri_attr_field collective_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_collective_attr, group),
    OPS_FIELD(TRI_ATTR_INT, tri_collective_attr, slices),
    OPS_FIELD(TRI_ATTR_INT, tri_collective_attr, index),
    OPS_FIELD(TRI_ATTR_INT, tri_collective_attr, dim),
    OPS_FIELD(TRI_ATTR_BOOL, tri_collective_attr, maximum),
    OPS_FIELD(TRI_ATTR_BOOL, tri_collective_attr, partial),
    {0},
};

static const tri_attr_field rechunk_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_rechunk_attr, from),
    OPS_FIELD(TRI_ATTR_INT, tri_rechunk_attr, to),
    OPS_FIELD(TRI_ATTR_INT, tri_rechunk_attr, chunks),
    {0},
};

// What the rows of all ops with tri_collective_attr have in common.
#define COLLECTIVE_ROW                                                                             \
    .input_count = 1, .output_count = 1, .attr_bytes = sizeof(tri_collective_attr),                \
    .attr_fields = collective_fields, .cost = no_cost

const tri_op tri_op_all_reduce = {
    COLLECTIVE_ROW,
    .name = "all_reduce",
    .doc = "x -> y: the sum (or the maximum) of every rank's x, on every rank; the gradient passes "
           "through",
    .flags = TRI_OP_COLLECTIVE,
    .in_place = 1,
    .precision = TRI_PRECISION_CARRY,
    .shape = all_reduce_shape,
    .gradient = all_reduce_gradient,
};

const tri_op tri_op_all_gather = {
    COLLECTIVE_ROW,
    .name = "all_gather",
    .doc = "x -> y: every rank's x in rank order along axis `dim`; the gradient is cut, or summed "
           "and cut where it is partial",
    .flags = TRI_OP_COLLECTIVE,
    .precision = TRI_PRECISION_CARRY,
    .shape = all_gather_shape,
    .gradient = all_gather_gradient,
};

const tri_op tri_op_reduce_scatter = {
    COLLECTIVE_ROW,
    .name = "reduce_scatter",
    .doc = "x -> y: slice `index` along axis `dim` of the sum of every rank's x; the gradient is "
           "gathered",
    .flags = TRI_OP_COLLECTIVE,
    .precision = TRI_PRECISION_CARRY,
    .shape = reduce_scatter_shape,
    .gradient = reduce_scatter_gradient,
};

const tri_op tri_op_copy_to = {
    COLLECTIVE_ROW,
    .name = "copy_to",
    .doc = "x -> x: read by every rank for its slice of what follows; the gradient is the sum of "
           "every rank's",
    .flags = TRI_OP_VIEW,
    .precision = TRI_PRECISION_CARRY,
    .shape = copy_to_shape,
    .gradient = copy_to_gradient,
};

const tri_op tri_op_split = {
    COLLECTIVE_ROW,
    .name = "split",
    .doc = "x -> y: slice `index` of `slices` of x along axis `dim`; the gradient is gathered from "
           "all ranks, or zero outside the slice where it is partial",
    .precision = TRI_PRECISION_CARRY,
    .shape = split_shape,
    .gradient = split_gradient,
};

const tri_op tri_op_split_grad = {
    COLLECTIVE_ROW,
    .name = "split_grad",
    .doc = "dy -> dx: dy as slice `index` of `slices` along axis `dim`, zero elsewhere",
    .shape = split_grad_shape,
};

const tri_op tri_op_rechunk = {
    .name = "rechunk",
    .doc = "x -> y: concatenate(chunk(x, chunks, from), to), chunks along one axis put together "
           "along another",
    .input_count = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_CARRY,
    .attr_bytes = sizeof(tri_rechunk_attr),
    .attr_fields = rechunk_fields,
    .shape = rechunk_shape,
    .gradient = rechunk_gradient,
    .cost = no_cost,
};

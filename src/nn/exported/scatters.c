// Elements that are taken or put along one axis by an index of the tensor's rank.
#include "nn/exported/build.h"
#include "tensor/half.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

static tri_value as_is(exported_call *c, int k) {
    exported_value index = exported_operand(c, k);
    return exported_as_graph(c->build, &index);
}

// The first elements of x along each axis but `axis`, as many as the index has there: its other
// axes may be shorter than those of x.
static tri_value corner_of(tri_graph *g, tri_value x, tri_value index, int axis) {
    for (int i = 0; g->status == TRI_OK && i < tri_value_shape(g, index).rank; i++) {
        tri_shape sizes = tri_value_shape(g, x), wanted = tri_value_shape(g, index);
        if (sizes.rank != wanted.rank) return x;
        if (i != axis && wanted.dims[i] < sizes.dims[i])
            x = tri_slice(g, x, i, 0, wanted.dims[i], 1);
    }
    return x;
}

// x with that corner in its place.
static tri_value with_corner(tri_graph *g, tri_value x, tri_value corner) {
    if (g->status != TRI_OK) return x;
    tri_shape whole = tri_value_shape(g, x), sizes = tri_value_shape(g, corner);
    for (int i = whole.rank - 1; i >= 0; i--) {
        if (whole.rank != sizes.rank || sizes.dims[i] == whole.dims[i]) continue;
        tri_value rest = tri_slice(g, x, i, sizes.dims[i], whole.dims[i], 1);
        for (int k = 0; k < i; k++)
            if (sizes.dims[k] < whole.dims[k]) rest = tri_slice(g, rest, k, 0, sizes.dims[k], 1);
        corner = tri_concat(g, (tri_value[]){corner, rest}, 2, i);
    }
    return corner;
}

static void index_select(exported_call *c) {
    exported_give_graph(
        c, tri_index_select(c->build->graph, as_is(c, 0), exported_axis_of(c, 1), as_is(c, 2)));
}

static void gather(exported_call *c) {
    tri_graph *g = c->build->graph;
    int axis = exported_axis_of(c, 1);
    tri_value index = as_is(c, 2);
    exported_give_graph(c, tri_gather(g, corner_of(g, as_is(c, 0), index, axis), axis, index));
}

static void take_along(exported_call *c) {
    bool is_flat = exported_is_none(c, 2);
    tri_graph *g = c->build->graph;
    tri_value x = as_is(c, 0), index = as_is(c, 1);
    if (is_flat)
        x = tri_reshape(g, x, tri_shape_of(-1)), index = tri_reshape(g, index, tri_shape_of(-1));
    exported_give_graph(c, tri_take_along(g, x, is_flat ? 0 : exported_axis_of(c, 2), index));
}

static void take(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_value index = as_is(c, 1), x = tri_reshape(g, as_is(c, 0), tri_shape_of(-1));
    tri_shape shape = tri_value_shape(g, index);
    index = tri_map(
        g, tri_name(g, "i -> i < 0 ? i + %lld : i", (long long)tri_value_shape(g, x).dims[0]),
        tri_reshape(g, index, tri_shape_of(-1)));
    exported_give_graph(c, tri_reshape(g, tri_index_select(g, x, 0, index), shape));
}

// A source: of the tensor's type, and as many elements as the index has.
static tri_value source_of(exported_call *c, int k) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), index = exported_operand(c, 2),
                   source = exported_operand(c, k);
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &index);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(b, &index, i);
    if (source.kind == EXPORTED_NUMBER)
        source = exported_host_fill(b, sizes, rank, source.real, x.dtype);
    tri_value value = exported_type_is_float(x.dtype) ? exported_as_float(b, &source)
                                                      : exported_as_graph(b, &source);
    return corner_of(b->graph, value, exported_as_graph(b, &index), -1);
}

tri_value exported_set_along(tri_graph *g, exported_setter *set, tri_value x, int axis,
                             tri_value index, tri_value source) {
    if (g->status != TRI_OK) return x;
    tri_dtype dtype = tri_value_get(g, x)->dtype;
    if (tri_dtype_is_float(dtype)) return set(g, x, axis, index, source);
    if (dtype == TRI_U8) {
        x = set(g, tri_cast(g, x, TRI_F32), axis, index, tri_cast(g, source, TRI_F32));
        return tri_mask(g, "x != 0", x);
    }
    static const char *const parts[] = {"v -> v & 1048575", "v -> v >> 20"};
    tri_value set_parts[2];
    for (int k = 0; k < 2; k++) {
        tri_value to = tri_cast(g, tri_map(g, parts[k], x), TRI_F32),
                  from = tri_cast(g, tri_map(g, parts[k], source), TRI_F32);
        set_parts[k] = tri_cast(g, set(g, to, axis, index, from), TRI_I64);
    }
    return tri_map(g, "low, high -> low + high * 1048576", set_parts[0], set_parts[1]);
}

static void scatter(exported_call *c) {
    tri_graph *g = c->build->graph;
    int axis = exported_axis_of(c, 1);
    tri_value x = as_is(c, 0), index = as_is(c, 2), corner = corner_of(g, x, index, axis);
    corner = exported_set_along(g, tri_scatter, corner, axis, index, source_of(c, 3));
    exported_give_graph(c, with_corner(g, x, corner));
}

static void scatter_add(exported_call *c) {
    tri_graph *g = c->build->graph;
    int axis = exported_axis_of(c, 1);
    tri_value x = as_is(c, 0), index = as_is(c, 2), corner = corner_of(g, x, index, axis);
    corner = tri_scatter_add(g, corner, axis, index, source_of(c, 3));
    exported_give_graph(c, with_corner(g, x, corner));
}

// self dim index src reduce include_self. Without include_self the tensor's own elements do not
// count where others are put.
static void scatter_reduce(exported_call *c) {
    tri_graph *g = c->build->graph;
    const char *reduce = exported_text(c, 4);
    bool is_max = !strcmp(reduce, "amax"), is_min = !strcmp(reduce, "amin"),
         is_mean = !strcmp(reduce, "mean"), includes = exported_bool(c, 5),
         is_sum = !strcmp(reduce, "sum") || !strcmp(reduce, "add");
    if (!is_max && !is_min && !is_mean && !is_sum) {
        exported_fail(c, "the reduction %s is not supported", reduce);
        return;
    }
    int axis = exported_axis_of(c, 1);
    tri_value whole = exported_tensor(c, 0), index = as_is(c, 2), source = source_of(c, 3), n = {0};
    tri_value x = corner_of(g, whole, index, axis);
    if (is_mean || !includes)
        n = tri_scatter_add(g, tri_map(g, "0 * detach(x)", x), axis, index,
                            tri_map(g, "x, o = 0 * detach(x) -> o + 1", source));
    tri_value base = x;
    if (!includes)
        base = is_max   ? tri_map(g, "x, n -> n > 0 ? -3.40282346638528859812e38 : x", x, n)
               : is_min ? tri_map(g, "x, n -> n > 0 ? 3.40282346638528859812e38 : x", x, n)
                        : tri_map(g, "x, n -> n > 0 ? 0 : x", x, n);
    tri_value y =
        is_max ? tri_scatter_amax(g, base, axis, index, source)
        : is_min
            ? tri_neg(g, tri_scatter_amax(g, tri_neg(g, base), axis, index, tri_neg(g, source)))
            : tri_scatter_add(g, base, axis, index, source);
    if (is_mean) y = tri_map(g, includes ? "y, n -> y / (n + 1)" : "y, n -> y / max(n, 1)", y, n);
    exported_give_graph(c, with_corner(g, whole, y));
}

static void index_add(exported_call *c) {
    double alpha = exported_real(c, 4);
    tri_graph *g = c->build->graph;
    tri_value source = as_is(c, 3);
    if (alpha != 1) source = tri_mul_scalar(g, source, alpha);
    exported_give_graph(c,
                        tri_index_add(g, as_is(c, 0), exported_axis_of(c, 1), as_is(c, 2), source));
}

static void index_copy(exported_call *c) {
    exported_give_graph(c, exported_set_along(c->build->graph, tri_index_copy, as_is(c, 0),
                                              exported_axis_of(c, 1), as_is(c, 2), as_is(c, 3)));
}

const exported_row exported_scatter_rows[] = {
    ROW("aten.index_select", "self dim index", index_select),
    ROW("aten.gather", "self dim index", gather),
    ROW("aten.take", "self index", take),
    ROW("aten.take_along_dim", "self indices dim=None", take_along),
    ROW("aten.scatter.src", "self dim index src", scatter),
    ROW("aten.scatter.value", "self dim index value", scatter),
    ROW("aten.scatter.reduce", "self dim index src reduce include_self=True", scatter_reduce),
    ROW("aten.scatter.value_reduce", "self dim index value reduce include_self=True",
        scatter_reduce),
    ROW("aten.scatter_add", "self dim index src", scatter_add),
    ROW("aten.scatter_reduce.two", "self dim index src reduce include_self=True", scatter_reduce),
    ROW("aten.index_add", "self dim index source alpha=1", index_add),
    ROW("aten.index_copy", "self dim index source", index_copy),
    {NULL, NULL, NULL, NULL, NULL, false},
};

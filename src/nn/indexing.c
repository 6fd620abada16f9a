// Functions along one axis: elements by their numbers, order, running sums.
// include/trireme/functions.h lists them.
#include "base/quantity.h"
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

// Cuts x to the sizes of `index`, except along `axis`, as PyTorch does where an index is smaller.
static tri_value cut_to(tri_graph *graph, tri_value x, int axis, tri_shape index) {
    tri_shape shape = tri_value_shape(graph, x);
    for (int i = 0; i < shape.rank && shape.rank == index.rank; i++)
        if (i != axis && index.dims[i] > 0 && index.dims[i] < shape.dims[i])
            x = tri_slice(graph, x, i, 0, index.dims[i], 1);
    return x;
}

// Checks both values, and finds the number of the axis of x. -1: the graph has failed.
static int begin(tri_graph *graph, const char *name, tri_value x, int axis, tri_value index) {
    if (!tri_graph_check_input(graph, name, NULL, x)) return -1;
    if (!tri_graph_check_input(graph, name, "index", index)) return -1;
    return nn_axis(graph, name, axis, tri_value_shape(graph, x).rank);
}

static tri_value gather(tri_graph *graph, const char *name, tri_value x, int axis,
                        tri_value index) {
    tri_gather_attr attr = {.axis = axis};
    return tri_node_add(graph, &tri_op_gather, (tri_value[]){index, x}, 2, &attr, name);
}

tri_value tri_gather(tri_graph *graph, tri_value x, int axis, tri_value index) {
    if ((axis = begin(graph, "gather", x, axis, index)) < 0) return x;
    return gather(graph, "", cut_to(graph, x, axis, tri_value_shape(graph, index)), axis, index);
}

// Whether the axes from `first` to `end` - 1 of an index have x's sizes in part only, and else 1.
static bool is_partly_shared(const tri_shape *x, const tri_shape *index, int first, int end) {
    bool some_one = false, some_more = false;
    for (int i = first; i < end; i++) {
        some_one = some_one || (index->dims[i] == 1 && x->dims[i] != 1);
        some_more = some_more || index->dims[i] != 1;
    }
    return some_one && some_more;
}

tri_value tri_take_along(tri_graph *graph, tri_value x, int axis, tri_value index) {
    if ((axis = begin(graph, "take_along", x, axis, index)) < 0) return x;
    tri_shape shape = tri_value_shape(graph, x), wider = tri_value_shape(graph, index);
    bool expands = false;
    for (int i = 0; i < shape.rank && shape.rank == wider.rank; i++) {
        if (i == axis || shape.dims[i] != 1 || wider.dims[i] == 1) continue;
        shape.dims[i] = wider.dims[i];
        expands = true;
    }
    if (shape.rank == wider.rank && (is_partly_shared(&shape, &wider, 0, axis) ||
                                     is_partly_shared(&shape, &wider, axis + 1, shape.rank))) {
        tri_shape full = shape;
        full.dims[axis] = wider.dims[axis];
        index = tri_expand(graph, index, full);
    }
    return gather(graph, "", expands ? tri_expand(graph, x, shape) : x, axis, index);
}

// Gives a vector of indices as many axes as x has.
static tri_value as_axis(tri_graph *graph, const char *name, tri_value x, int axis,
                         tri_value vector) {
    tri_shape shape = {.rank = tri_value_shape(graph, x).rank},
              has = tri_value_shape(graph, vector);
    if (has.rank != 1)
        tri_graph_fail(graph, "%s: the index must have one axis, not %d", name, has.rank);
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i == axis ? has.dims[0] : 1;
    return tri_reshape(graph, vector, shape);
}

tri_value tri_index_select(tri_graph *graph, tri_value x, int axis, tri_value index) {
    if ((axis = begin(graph, "index_select", x, axis, index)) < 0) return x;
    return gather(graph, "", x, axis, as_axis(graph, "index_select", x, axis, index));
}

static tri_value scatter(tri_graph *graph, tri_scatter_kind kind, tri_value x, int axis,
                         tri_value index, tri_value source) {
    if ((axis = begin(graph, "scatter", x, axis, index)) < 0) return x;
    if (!tri_graph_check_input(graph, "scatter", "source", source)) return x;
    tri_shape indices = tri_value_shape(graph, index), has = tri_value_shape(graph, source);
    tri_scatter_attr attr = {.kind = kind, .axis = axis, .shape = tri_value_shape(graph, x)};
    source = cut_to(graph, source, axis, indices);
    if (indices.rank == has.rank && indices.dims[axis] > 0 && indices.dims[axis] < has.dims[axis])
        source = tri_slice(graph, source, axis, 0, indices.dims[axis], 1);
    return tri_node_add(graph, &tri_op_scatter, (tri_value[]){index, source, x}, 3, &attr, "");
}

tri_value tri_scatter(tri_graph *graph, tri_value x, int axis, tri_value index, tri_value source) {
    return scatter(graph, TRI_SCATTER_SET, x, axis, index, source);
}

tri_value tri_scatter_add(tri_graph *graph, tri_value x, int axis, tri_value index,
                          tri_value source) {
    return scatter(graph, TRI_SCATTER_ADD, x, axis, index, source);
}

tri_value tri_scatter_amax(tri_graph *graph, tri_value x, int axis, tri_value index,
                           tri_value source) {
    return scatter(graph, TRI_SCATTER_MAX, x, axis, index, source);
}

// Scatters to what a vector of indices names along an axis.
static tri_value scatter_rows(tri_graph *graph, const char *name, tri_scatter_kind kind,
                              tri_value x, int axis, tri_value index, tri_value source) {
    if ((axis = begin(graph, name, x, axis, index)) < 0) return x;
    if (!tri_graph_check_input(graph, name, "source", source)) return x;
    tri_scatter_attr attr = {.kind = kind, .axis = axis, .shape = tri_value_shape(graph, x)};
    index = as_axis(graph, name, x, axis, index);
    return tri_node_add(graph, &tri_op_scatter, (tri_value[]){index, source, x}, 3, &attr, "");
}

tri_value tri_index_add(tri_graph *graph, tri_value x, int axis, tri_value index,
                        tri_value source) {
    return scatter_rows(graph, "index_add", TRI_SCATTER_ADD, x, axis, index, source);
}

tri_value tri_index_copy(tri_graph *graph, tri_value x, int axis, tri_value index,
                         tri_value source) {
    return scatter_rows(graph, "index_copy", TRI_SCATTER_SET, x, axis, index, source);
}

static tri_value argmax(tri_graph *graph, const char *name, tri_value x, int axis, bool minimum,
                        bool keep) {
    if (!tri_graph_check_input(graph, name, NULL, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    if ((axis = nn_axis(graph, name, axis, shape.rank)) < 0) return x;
    tri_argmax_attr attr = {.axis = axis, .minimum = minimum};
    tri_value y = tri_node_add(graph, &tri_op_argmax, &x, 1, &attr, "");
    return keep ? y : tri_squeeze(graph, y, axis);
}

tri_value tri_argmax(tri_graph *graph, tri_value x, int axis, bool keep) {
    return argmax(graph, "argmax", x, axis, false, keep);
}

tri_value tri_argmin(tri_graph *graph, tri_value x, int axis, bool keep) {
    return argmax(graph, "argmin", x, axis, true, keep);
}

// Adds a node whose second output is an index, and returns its first.
static tri_value with_index(tri_graph *graph, const tri_op *op, tri_value x, const void *attr,
                            tri_value *index) {
    tri_value y = tri_node_add(graph, op, &x, 1, attr, "");
    if (index) *index = tri_value_is(y) ? tri_node_output(graph, y, 1) : y;
    return y;
}

static tri_value sort(tri_graph *graph, const char *name, tri_value x, int axis, bool descending,
                      int64_t count, tri_value *index) {
    if (index) *index = (tri_value){0};
    if (!tri_graph_check_input(graph, name, NULL, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    if ((axis = nn_axis(graph, name, axis, shape.rank)) < 0) return x;
    tri_sort_attr attr = {axis, count < 0 ? shape.dims[axis] : count, descending};
    return with_index(graph, &tri_op_sort, x, &attr, index);
}

tri_value tri_sort(tri_graph *graph, tri_value x, int axis, bool descending, tri_value *index) {
    return sort(graph, "sort", x, axis, descending, -1, index);
}

tri_value tri_topk(tri_graph *graph, tri_value x, int64_t count, int axis, bool largest,
                   tri_value *index) {
    if (count < 1)
        tri_graph_fail(graph, "topk: the count must be at least 1, not %lld", (long long)count);
    return sort(graph, "topk", x, axis, largest, count, index);
}

static tri_value scan(tri_graph *graph, const char *name, tri_scan_kind kind, tri_value x, int axis,
                      tri_value *index) {
    if (index) *index = (tri_value){0};
    if (!tri_graph_check_input(graph, name, NULL, x)) return x;
    if ((axis = nn_axis(graph, name, axis, tri_value_shape(graph, x).rank)) < 0) return x;
    tri_scan_attr attr = {.kind = kind, .axis = axis};
    return with_index(graph, &tri_op_scan, x, &attr, index);
}

tri_value tri_cumsum(tri_graph *graph, tri_value x, int axis) {
    return scan(graph, "cumsum", TRI_SCAN_SUM, x, axis, NULL);
}

tri_value tri_cumprod(tri_graph *graph, tri_value x, int axis) {
    return scan(graph, "cumprod", TRI_SCAN_PROD, x, axis, NULL);
}

tri_value tri_cummax(tri_graph *graph, tri_value x, int axis, tri_value *index) {
    return scan(graph, "cummax", TRI_SCAN_MAX, x, axis, index);
}

tri_value tri_cummin(tri_graph *graph, tri_value x, int axis, tri_value *index) {
    return scan(graph, "cummin", TRI_SCAN_MIN, x, axis, index);
}

tri_value tri_logcumsumexp(tri_graph *graph, tri_value x, int axis) {
    return scan(graph, "logcumsumexp", TRI_SCAN_LOGSUMEXP, x, axis, NULL);
}

tri_value tri_arange(tri_graph *graph, int64_t count) {
    enum { MOST = 1 << 24 }; // so many numbers F32 has exactly
    if (graph->status != TRI_OK || count < 1 || count > MOST) {
        tri_graph_fail(graph, "arange: takes 1 to %d numbers, not %lld", MOST, (long long)count);
        return (tri_value){0};
    }
    float *numbers = tri_arena_alloc(graph->arena, (size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < count; i++) numbers[i] = (float)i;
    const char *name = tri_name(graph, "arange.%d.%lld", graph->block, (long long)count);
    return tri_cast(graph, tri_constant(graph, name, tri_shape_of(count), numbers), TRI_I64);
}

tri_value tri_unfold(tri_graph *graph, tri_value x, int axis, int64_t size, int64_t step) {
    if (!tri_graph_check_input(graph, "unfold", NULL, x)) return x;
    tri_shape shape = tri_value_shape(graph, x), windows = {.rank = shape.rank + 1};
    if ((axis = nn_axis(graph, "unfold", axis, shape.rank)) < 0) return x;
    if (size < 1 || size > shape.dims[axis] || step < 1 || shape.rank == TRI_MAX_RANK) {
        tri_graph_fail(graph, "unfold: axis %d of %s has no windows of %lld in steps of %lld", axis,
                       tri_counted(shape.dims[axis], "element"), (long long)size, (long long)step);
        return x;
    }
    int64_t count = (shape.dims[axis] - size) / step + 1;
    tri_value first = tri_mul_scalar(graph, tri_arange(graph, count), (double)step);
    tri_value index = tri_add(graph, tri_unsqueeze(graph, first, 1), tri_arange(graph, size));
    x = tri_index_select(graph, x, axis, tri_reshape(graph, index, tri_shape_of(count * size)));
    int order[TRI_MAX_RANK], last = windows.rank - 1;
    for (int i = 0; i < windows.rank; i++) {
        windows.dims[i] = i <= axis ? shape.dims[i] : shape.dims[i - 1];
        order[i] = i <= axis ? i : i < last ? i + 1 : axis + 1;
    }
    windows.dims[axis] = count;
    windows.dims[axis + 1] = size;
    return tri_permute(graph, tri_reshape(graph, x, windows), order);
}

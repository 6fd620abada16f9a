// Functions of shapes: views of one input, which map reads by strides. include/trireme/functions.h
// lists them.
#include "base/quantity.h"
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

// A view of x that is being made: at first x itself.
typedef struct view {
    tri_graph *graph;
    const char *name;
    tri_value x;
    tri_shape from;
    tri_map_attr attr;
} view;

// Begins a view. False: the graph has failed.
static bool begin(view *v, tri_graph *graph, const char *name, tri_value x) {
    *v = (view){.graph = graph, .name = name, .x = x};
    if (!tri_graph_check_input(graph, name, NULL, x)) return false;
    v->from = tri_value_shape(graph, x);
    v->attr.expands = true;
    v->attr.viewed = 1;
    v->attr.shape = v->from;
    for (int j = 0; j < v->from.rank; j++) {
        v->attr.views[0].axis[j] = (int8_t)j;
        v->attr.views[0].sign[j] = 1;
    }
    if (tri_formula_parse("x", NULL, &v->attr.formula) == TRI_OK) return true;
    tri_graph_fail(graph, "%s", tri_error_message());
    return false;
}

static tri_value end(const view *v) {
    return tri_node_add(v->graph, &tri_op_map, &v->x, 1, &v->attr, "");
}

int nn_axis(tri_graph *graph, const char *name, int axis, int rank) {
    int found = axis < 0 ? axis + rank : axis;
    if (found >= 0 && found < rank) return found;
    tri_graph_fail(graph, "%s: axis %d is none of %s", name, axis, tri_counted(rank, "axis"));
    return -1;
}

tri_value tri_permute(tri_graph *graph, tri_value x, const int *axes) {
    view v;
    bool used[TRI_MAX_RANK] = {false};
    if (!begin(&v, graph, "permute", x)) return x;
    for (int i = 0; i < v.from.rank; i++) {
        int axis = nn_axis(graph, v.name, axes[i], v.from.rank);
        if (axis >= 0 && used[axis])
            tri_graph_fail(graph, "permute: axis %d is there twice", axes[i]);
        if (axis < 0 || used[axis]) return x;
        used[axis] = true;
        v.attr.shape.dims[i] = v.from.dims[axis];
        v.attr.views[0].axis[axis] = (int8_t)i;
    }
    return end(&v);
}

tri_value tri_transpose(tri_graph *graph, tri_value x, int first, int second) {
    int axes[TRI_MAX_RANK], rank = tri_value_shape(graph, x).rank;
    if (!tri_graph_check_input(graph, "transpose", NULL, x)) return x;
    int a = nn_axis(graph, "transpose", first, rank), b = nn_axis(graph, "transpose", second, rank);
    if (a < 0 || b < 0) return x;
    for (int i = 0; i < rank; i++) axes[i] = i == a ? b : i == b ? a : i;
    return tri_permute(graph, x, axes);
}

// Moves the view along an axis by `first`, and gives the axis the size `size`.
static tri_value window(tri_graph *graph, const char *name, tri_value x, int axis, int64_t first,
                        int64_t size) {
    view v;
    if (!begin(&v, graph, name, x)) return x;
    if ((axis = nn_axis(graph, name, axis, v.from.rank)) < 0) return x;
    if (size < 1) {
        tri_graph_fail(graph, "%s: nothing is left of axis %d", name, axis);
        return x;
    }
    v.attr.views[0].start[axis] = first;
    v.attr.shape.dims[axis] = size;
    return end(&v);
}

tri_value tri_pad(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after) {
    tri_shape shape = tri_value_shape(graph, x);
    if (!tri_graph_check_input(graph, "pad", NULL, x)) return x;
    if ((axis = nn_axis(graph, "pad", axis, shape.rank)) < 0) return x;
    return window(graph, "pad", x, axis, -before, shape.dims[axis] + before + after);
}

tri_value tri_slice(tri_graph *graph, tri_value x, int axis, int64_t first, int64_t last,
                    int64_t step) {
    tri_shape shape = tri_value_shape(graph, x);
    if (!tri_graph_check_input(graph, "slice", NULL, x)) return x;
    if ((axis = nn_axis(graph, "slice", axis, shape.rank)) < 0) return x;
    int64_t size = shape.dims[axis];
    if (first < 0) first += size;
    if (last <= 0) last += size;
    if (step == 0) step = 1;
    if (first < 0 || last > size || first >= last || step < 0) {
        tri_graph_fail(
            graph, "slice: axis %d has no elements %" PRId64 " to %" PRId64 " in steps of %" PRId64,
            axis, first, last, step);
        return x;
    }
    if (step == 1) return window(graph, "slice", x, axis, first, last - first);
    // The elements in rows of `step`, of which the first column is taken.
    int64_t rows = (last - first + step - 1) / step;
    if (shape.rank == TRI_MAX_RANK) {
        tri_graph_fail(graph, "slice: steps need an axis less than %d", TRI_MAX_RANK);
        return x;
    }
    x = window(graph, "slice", x, axis, first, rows * step);
    tri_shape cut = shape;
    for (int i = cut.rank++; i > axis; i--) cut.dims[i] = shape.dims[i - 1];
    cut.dims[axis] = rows;
    cut.dims[axis + 1] = step;
    return tri_select(graph, tri_reshape(graph, x, cut), axis + 1, 0);
}

tri_value tri_select(tri_graph *graph, tri_value x, int axis, int64_t index) {
    view v;
    if (!begin(&v, graph, "select", x)) return x;
    if ((axis = nn_axis(graph, v.name, axis, v.from.rank)) < 0) return x;
    int64_t size = v.from.dims[axis], at = index < 0 ? index + size : index;
    if (at < 0 || at >= size) {
        tri_graph_fail(graph, "select: axis %d of %s has no index %" PRId64, axis,
                       tri_counted(size, "element"), index);
        return x;
    }
    v.attr.views[0].axis[axis] = -1;
    v.attr.views[0].start[axis] = at;
    for (int j = axis + 1; j < v.from.rank; j++) {
        v.attr.views[0].axis[j] = (int8_t)(j - 1);
        v.attr.shape.dims[j - 1] = v.from.dims[j];
    }
    v.attr.shape.dims[--v.attr.shape.rank] = 0;
    return end(&v);
}

tri_value tri_flip(tri_graph *graph, tri_value x, int axis) {
    view v;
    if (!begin(&v, graph, "flip", x)) return x;
    if ((axis = nn_axis(graph, v.name, axis, v.from.rank)) < 0) return x;
    v.attr.views[0].sign[axis] = -1;
    v.attr.views[0].start[axis] = v.from.dims[axis] - 1;
    return end(&v);
}

tri_value tri_roll(tri_graph *graph, tri_value x, int axis, int64_t shift) {
    tri_shape shape = tri_value_shape(graph, x);
    if (!tri_graph_check_input(graph, "roll", NULL, x)) return x;
    if ((axis = nn_axis(graph, "roll", axis, shape.rank)) < 0) return x;
    int64_t size = shape.dims[axis], left = size ? ((-shift) % size + size) % size : 0;
    if (left == 0) return x;
    tri_value parts[] = {tri_slice(graph, x, axis, left, 0, 1),
                         tri_slice(graph, x, axis, 0, left, 1)};
    return tri_concat(graph, parts, 2, axis);
}

tri_value tri_expand(tri_graph *graph, tri_value x, tri_shape shape) {
    view v;
    if (!begin(&v, graph, "expand", x)) return x;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 1)
            tri_graph_fail(graph, "expand: axis %d must have at least 1 element, not %" PRId64, i,
                           shape.dims[i]);
    v.attr.viewed = 0; // map broadcasts by itself
    v.attr.shape = shape;
    return end(&v);
}

static tri_shape inserted(tri_shape shape, int axis, int64_t size) {
    for (int i = shape.rank++; i > axis; i--) shape.dims[i] = shape.dims[i - 1];
    shape.dims[axis] = size;
    return shape;
}

tri_value tri_unsqueeze(tri_graph *graph, tri_value x, int axis) {
    tri_shape shape = tri_value_shape(graph, x);
    if (!tri_graph_check_input(graph, "unsqueeze", NULL, x)) return x;
    if ((axis = nn_axis(graph, "unsqueeze", axis, shape.rank + 1)) < 0) return x;
    if (shape.rank == TRI_MAX_RANK) {
        tri_graph_fail(graph, "unsqueeze: there are %d axes at most", TRI_MAX_RANK);
        return x;
    }
    return tri_reshape(graph, x, inserted(shape, axis, 1));
}

tri_value tri_squeeze(tri_graph *graph, tri_value x, int axis) {
    tri_shape shape = tri_value_shape(graph, x);
    if (!tri_graph_check_input(graph, "squeeze", NULL, x)) return x;
    if ((axis = nn_axis(graph, "squeeze", axis, shape.rank)) < 0) return x;
    if (shape.dims[axis] != 1) {
        tri_graph_fail(graph, "squeeze: axis %d has %s, not one", axis,
                       tri_counted(shape.dims[axis], "element"));
        return x;
    }
    for (int i = axis; i + 1 < shape.rank; i++) shape.dims[i] = shape.dims[i + 1];
    shape.dims[--shape.rank] = 0;
    return tri_reshape(graph, x, shape);
}

// Repeats x along a new axis, which becomes number `at`, and joins it with `axis`.
static tri_value repeat(tri_graph *graph, const char *name, tri_value x, int axis, int64_t count,
                        int at) {
    tri_shape shape = tri_value_shape(graph, x), joined = shape;
    if (!tri_graph_check_input(graph, name, NULL, x)) return x;
    if ((axis = nn_axis(graph, name, axis, shape.rank)) < 0) return x;
    if (count < 1 || shape.rank == TRI_MAX_RANK) {
        tri_graph_fail(graph, "%s: needs a count of at least 1 and less than %d axes", name,
                       TRI_MAX_RANK);
        return x;
    }
    joined.dims[axis] *= count;
    x = tri_unsqueeze(graph, x, axis + at);
    x = tri_expand(graph, x, inserted(shape, axis + at, count));
    return tri_reshape(graph, x, joined);
}

tri_value tri_repeat(tri_graph *graph, tri_value x, int axis, int64_t count) {
    return repeat(graph, "repeat", x, axis, count, 0);
}

tri_value tri_repeat_interleave(tri_graph *graph, tri_value x, int axis, int64_t count) {
    return repeat(graph, "repeat_interleave", x, axis, count, 1);
}

tri_value tri_stack(tri_graph *graph, const tri_value *values, int count, int axis) {
    if (count < 1) {
        tri_graph_fail(graph, "stack: needs at least one value");
        return (tri_value){0};
    }
    tri_value *made = TRI_NEW_ARRAY(graph->arena, tri_value, count);
    for (int i = 0; i < count; i++) made[i] = tri_unsqueeze(graph, values[i], axis);
    return tri_concat(graph, made, count, axis);
}

tri_value tri_chunk(tri_graph *graph, tri_value x, int axis, int64_t parts, int64_t index) {
    tri_shape shape = tri_value_shape(graph, x);
    if (!tri_graph_check_input(graph, "chunk", NULL, x)) return x;
    if ((axis = nn_axis(graph, "chunk", axis, shape.rank)) < 0) return x;
    if (parts < 1 || shape.dims[axis] % parts != 0 || index < 0 || index >= parts) {
        tri_graph_fail(graph, "chunk: axis %d of %s has no part %" PRId64 " of %" PRId64, axis,
                       tri_counted(shape.dims[axis], "element"), index, parts);
        return x;
    }
    int64_t size = shape.dims[axis] / parts;
    return window(graph, "chunk", x, axis, index * size, size);
}

tri_value tri_glu(tri_graph *graph, tri_value x, int axis) {
    tri_value a = tri_chunk(graph, x, axis, 2, 0), b = tri_chunk(graph, x, axis, 2, 1);
    return tri_map(graph, "a, b -> a * sigmoid(b)", a, b);
}

// Checks the shape of an image whose pixels or channels are shuffled.
static bool takes_image(tri_graph *graph, const char *name, tri_value x, bool fits) {
    if (tri_graph_check_input(graph, name, NULL, x) && fits) return true;
    char text[128];
    tri_shape shape = tri_value_shape(graph, x);
    tri_graph_fail(graph, "%s: %s does not divide by the factor", name,
                   tri_shape_text(&shape, text, sizeof text));
    return false;
}

tri_value tri_pixel_shuffle(tri_graph *graph, tri_value x, int64_t r) {
    tri_shape s = tri_value_shape(graph, x);
    bool fits = s.rank == 4 && r > 0 && s.dims[1] % (r * r) == 0;
    if (!takes_image(graph, "pixel_shuffle", x, fits)) return x;
    int64_t n = s.dims[0], c = s.dims[1] / (r * r), h = s.dims[2], w = s.dims[3];
    x = tri_reshape(graph, x, tri_shape_of(n, c, r, r, h, w));
    x = tri_permute(graph, x, (int[]){0, 1, 4, 2, 5, 3});
    return tri_reshape(graph, x, tri_shape_of(n, c, h * r, w * r));
}

tri_value tri_pixel_unshuffle(tri_graph *graph, tri_value x, int64_t r) {
    tri_shape s = tri_value_shape(graph, x);
    bool fits = s.rank == 4 && r > 0 && s.dims[2] % r == 0 && s.dims[3] % r == 0;
    if (!takes_image(graph, "pixel_unshuffle", x, fits)) return x;
    int64_t n = s.dims[0], c = s.dims[1], h = s.dims[2] / r, w = s.dims[3] / r;
    x = tri_reshape(graph, x, tri_shape_of(n, c, h, r, w, r));
    x = tri_permute(graph, x, (int[]){0, 1, 3, 5, 2, 4});
    return tri_reshape(graph, x, tri_shape_of(n, c * r * r, h, w));
}

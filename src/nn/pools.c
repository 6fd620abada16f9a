// The layers that pool: the largest or the mean of each window, in one to three dimensions. All are
// made of pools of images: the maximum or mean of a volume is that of the maxima or means of its
// frames, and one dimension is two with a height of 1.
#include "graph/graph.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

// The pooling of a value along depth, height and width, of which one with fewer axes has the last
// ones.
typedef struct pool {
    tri_graph *graph;
    const char *layer;
    bool largest, exclude_padding;
    int64_t kernel[3], stride[3], padding[3];
    int64_t windows[3]; // adaptive pooling: how many windows; 0: as many as elements
} pool;

// One pooling of images [N, C, H, W] along two axes of the pool; -1: nothing happens along it.
static tri_value pool_image(const pool *p, tri_value x, int rows, int columns) {
    int axes[] = {rows, columns};
    tri_max_pool2d_attr most = {.kernel = {1, 1}, .stride = {1, 1}};
    tri_avg_pool2d_attr mean = {.exclude_padding = p->exclude_padding};
    for (int i = 0; i < 2; i++) {
        if (axes[i] < 0) continue;
        most.kernel[i] = p->kernel[axes[i]];
        most.stride[i] = p->stride[axes[i]];
        most.padding[i] = p->padding[axes[i]];
    }
    if (p->largest) return tri_node_add(p->graph, &tri_op_max_pool2d, &x, 1, &most, "");
    for (int i = 0; i < 2; i++) {
        mean.kernel[i] = most.kernel[i];
        mean.stride[i] = most.stride[i];
        mean.padding[i] = most.padding[i];
    }
    return tri_node_add(p->graph, &tri_op_avg_pool2d, &x, 1, &mean, "");
}

// x as images [N, its axes before `axis`, the axis, its axes behind it].
static tri_value as_rows(tri_graph *g, tri_value x, int axis) {
    tri_shape from = tri_value_shape(g, x), to = tri_shape_of(from.dims[0], 1, from.dims[axis], 1);
    for (int i = 1; i < from.rank; i++)
        if (i != axis) to.dims[i < axis ? 1 : 3] *= from.dims[i];
    return tri_reshape(g, x, to);
}

static int64_t window_begin(int64_t window, int64_t size, int64_t windows) {
    return window * size / windows;
}
static int64_t window_end(int64_t window, int64_t size, int64_t windows) {
    return ((window + 1) * size + windows - 1) / windows;
}

enum { MOST_WINDOWS = 256 }; // of an adaptive maximum, along an axis that they do not divide

// The maximum of `windows` windows along `axis`, PyTorch's AdaptiveMaxPool.
static tri_value adaptive_maximum(const pool *p, tri_value x, int axis, int64_t windows) {
    tri_graph *g = p->graph;
    tri_shape shape = tri_value_shape(g, x);
    int64_t size = shape.dims[axis];
    pool one = {.graph = g, .largest = true};
    tri_value parts[MOST_WINDOWS];
    shape.dims[axis] = windows;
    if (size == windows) return x;
    x = as_rows(g, x, axis);
    if (size % windows == 0) {
        one.kernel[0] = one.stride[0] = size / windows;
        return tri_reshape(g, pool_image(&one, x, 0, -1), shape);
    }
    if (windows > MOST_WINDOWS) {
        tri_graph_fail(g, "%s: more than %d windows have to divide the axis of %" PRId64, p->layer,
                       MOST_WINDOWS, size);
        return x;
    }
    for (int64_t w = 0; w < windows; w++) {
        int64_t first = window_begin(w, size, windows), end = window_end(w, size, windows);
        one.kernel[0] = one.stride[0] = end - first;
        parts[w] = pool_image(&one, tri_slice(g, x, 2, first, end, 1), 0, -1);
    }
    return tri_reshape(g, tri_concat(g, parts, (int)windows, 2), shape);
}

// Whether x has `least` to `most` axes behind the channels, none of them empty.
static bool takes(tri_graph *g, const char *layer, tri_value x, int least, int most) {
    char text[128];
    if (!tri_graph_check_input(g, layer, NULL, x)) return false;
    tri_shape shape = tri_value_shape(g, x);
    bool fits = shape.rank >= least + 2 && shape.rank <= most + 2;
    for (int i = 1; i < shape.rank; i++) fits = fits && shape.dims[i] > 0;
    if (!fits)
        tri_graph_fail(g, "%s: needs [N, C, ...] with %d to %d more axes and no empty one, not %s",
                       layer, least, most, tri_shape_text(&shape, text, sizeof text));
    return fits;
}

static tri_value adaptive(tri_graph *g, const char *layer, tri_value x, const int64_t *windows,
                          bool largest) {
    if (!takes(g, layer, x, 1, 3)) return x;
    tri_shape shape = tri_value_shape(g, x);
    pool p = {.graph = g, .layer = layer};
    for (int axis = shape.rank - 1; axis >= 2; axis--) {
        int64_t count = windows[axis - 2] ? windows[axis - 2] : shape.dims[axis];
        if (count < 1) {
            tri_graph_fail(g, "%s: the size must be at least 1, not %" PRId64, layer, count);
            return x;
        }
        shape.dims[axis] = count;
        if (largest) x = adaptive_maximum(&p, x, axis, count);
    }
    if (largest) return x;
    // Height and width at once, and then the depth.
    tri_shape from = tri_value_shape(g, x), image = tri_shape_of(from.dims[0], 1, 1, 1);
    int last = shape.rank - 1, rows = shape.rank > 3 ? last - 1 : -1;
    for (int i = 1; i < (rows < 0 ? last : rows); i++) image.dims[1] *= from.dims[i];
    image.dims[2] = rows < 0 ? 1 : from.dims[rows];
    image.dims[3] = from.dims[last];
    tri_avg_pool2d_attr mean = {.out = {rows < 0 ? 1 : shape.dims[rows], shape.dims[last]}};
    x = tri_reshape(g, x, image);
    x = tri_node_add(g, &tri_op_avg_pool2d, &x, 1, &mean, "");
    if (shape.rank == 5 && from.dims[2] != shape.dims[2]) {
        mean.out[0] = shape.dims[2];
        mean.out[1] = shape.dims[3] * shape.dims[4];
        x = tri_reshape(g, x, tri_shape_of(from.dims[0], from.dims[1], from.dims[2], mean.out[1]));
        x = tri_node_add(g, &tri_op_avg_pool2d, &x, 1, &mean, "");
    }
    return tri_reshape(g, x, shape);
}

// Pools x along its last `axes` axes.
static tri_value windows_of(tri_graph *g, const char *layer, tri_value x, int axes, bool largest,
                            const tri_pool_options *o) {
    if (!takes(g, layer, x, axes, axes)) return x;
    pool p = {g, layer, largest, o->exclude_padding, {1, 1, 1}, {1, 1, 1}, {0}, {0}};
    for (int k = 0; k < axes; k++) {
        int i = 3 - axes + k;
        p.kernel[i] = o->kernels[k] ? o->kernels[k] : o->kernel;
        p.stride[i] = o->strides[k] ? o->strides[k] : o->stride ? o->stride : p.kernel[i];
        p.padding[i] = o->padding + o->pads[k];
    }
    tri_shape s = tri_value_shape(g, x);
    if (axes == 1) x = tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], 1, s.dims[2]));
    if (axes == 3) x = tri_reshape(g, x, tri_shape_of(s.dims[0], -1, s.dims[3], s.dims[4]));
    // The place of a maximum in its window has 8 bits, so large windows take two steps.
    bool large = largest && p.kernel[1] <= TRI_POOL_NO_GRADIENT &&
                 p.kernel[2] <= TRI_POOL_NO_GRADIENT &&
                 p.kernel[1] * p.kernel[2] > TRI_POOL_NO_GRADIENT;
    x = large ? pool_image(&p, pool_image(&p, x, -1, 2), 1, -1) : pool_image(&p, x, 1, 2);
    tri_shape y = tri_value_shape(g, x);
    if (axes == 2) return x;
    if (axes == 1) return tri_reshape(g, x, tri_shape_of(y.dims[0], y.dims[1], y.dims[3]));
    x = tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], s.dims[2], y.dims[2] * y.dims[3]));
    x = pool_image(&p, x, 0, -1);
    return tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], -1, y.dims[2], y.dims[3]));
}

#define POOL(axes)                                                                                 \
    tri_value tri_max_pool##axes##d(tri_graph *graph, tri_value x, tri_pool_options o) {           \
        return windows_of(graph, "max_pool" #axes "d", x, axes, true, &o);                         \
    }                                                                                              \
    tri_value tri_avg_pool##axes##d(tri_graph *graph, tri_value x, tri_pool_options o) {           \
        return windows_of(graph, "avg_pool" #axes "d", x, axes, false, &o);                        \
    }
POOL(1)
POOL(2)
POOL(3)

tri_value tri_adaptive_avg_pool(tri_graph *graph, tri_value x, const int64_t *sizes) {
    return adaptive(graph, "adaptive_avg_pool", x, sizes, false);
}

tri_value tri_adaptive_max_pool(tri_graph *graph, tri_value x, const int64_t *sizes) {
    return adaptive(graph, "adaptive_max_pool", x, sizes, true);
}

tri_value tri_adaptive_avg_pool2d(tri_graph *graph, tri_value x, int64_t size) {
    if (size < 1)
        tri_graph_fail(graph, "adaptive_avg_pool2d: the size must be at least 1, not %lld",
                       (long long)size);
    tri_avg_pool2d_attr attr = {.out = {size, size}};
    return tri_node_add(graph, &tri_op_avg_pool2d, &x, 1, &attr, "");
}

tri_value tri_interpolate(tri_graph *graph, tri_value x, tri_interpolate_options o) {
    if (!takes(graph, "interpolate", x, 1, 3)) return x;
    if (o.factor < 0 || o.factor > TRI_MAX_WINDOW || (o.align_corners && !o.linear)) {
        tri_graph_fail(graph,
                       "interpolate: needs a factor of 0 to %d, not %" PRId64
                       ", and align_corners only with linear",
                       TRI_MAX_WINDOW, o.factor);
        return x;
    }
    for (int axis = tri_value_shape(graph, x).rank - 1; axis >= 2; axis--) {
        int64_t from = tri_value_shape(graph, x).dims[axis];
        tri_interpolate_attr attr = {.axis = axis,
                                     .size = o.sizes[axis - 2] ? o.sizes[axis - 2]
                                                               : from * (o.factor ? o.factor : 1),
                                     .kind = o.linear ? INTERPOLATE_LINEAR : INTERPOLATE_NEAREST,
                                     .align_corners = o.align_corners};
        if (attr.size != from) x = tri_node_add(graph, &tri_op_interpolate, &x, 1, &attr, "");
    }
    return x;
}

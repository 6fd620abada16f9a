// Fractional max pools: windows at random places, gathered and then pooled.
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

// The windows along each axis behind the channels.
typedef struct windows {
    tri_graph *graph;
    const char *name;
    int axes;
    int64_t size[3], kernel[3], count[3];
} windows;

static bool find_windows(windows *w, tri_value x, const tri_fractional_pool_options *o) {
    tri_graph *g = w->graph;
    if (!nn_takes_pixels(g, "fractional_max_pool", x, 2, 3)) return false;
    tri_shape shape = tri_value_shape(g, x);
    w->axes = shape.rank - 2;
    for (int k = 0; k < w->axes; k++) {
        double ratio = o->ratios[k] != 0 ? o->ratios[k] : o->ratio;
        int64_t size = w->size[k] = shape.dims[2 + k];
        w->kernel[k] = o->kernels[k] ? o->kernels[k] : o->kernel;
        w->count[k] = o->sizes[k]              ? o->sizes[k]
                      : ratio > 0 && ratio < 1 ? (int64_t)floor((double)size * ratio)
                                               : 0;
        if (w->kernel[k] >= 1 && w->count[k] >= 1 && w->count[k] + w->kernel[k] - 1 <= size)
            continue;
        tri_graph_fail(g,
                       "fractional_max_pool %s: %" PRId64 " windows of %" PRId64
                       " do not lie in %" PRId64 " elements, each behind another; set sizes, or a "
                       "ratio between 0 and 1",
                       w->name, w->count[k], w->kernel[k], size);
        return false;
    }
    return true;
}

// Which elements along axis k the windows have, [N, C, windows · kernel]. With the number u and the
// distance a, window i begins at floor((i + u) · a) - floor(u · a), and the last one ends at the
// end.
static tri_value elements_of(const windows *w, tri_value u, int k) {
    tri_graph *g = w->graph;
    int64_t last = w->size[k] - w->kernel[k], count = w->count[k];
    double distance = count > 1 ? (double)last / (double)(count - 1) : 0;
    const char *formula = tri_name(
        g, "u, i -> i == %" PRId64 " ? %" PRId64 " : floor((i + u) * %.17g) - floor(u * %.17g)",
        count - 1, last, distance, distance);
    tri_value numbers = tri_cast(g, tri_arange(g, count), TRI_F32);
    tri_value begin = tri_cast(g, tri_map(g, formula, tri_unsqueeze(g, u, -1), numbers), TRI_I64);
    tri_value index = tri_map(g, "begin, i -> begin + i", tri_unsqueeze(g, begin, -1),
                              tri_arange(g, w->kernel[k]));
    tri_shape shape = tri_value_shape(g, index);
    return tri_reshape(g, index, tri_shape_of(shape.dims[0], shape.dims[1], -1));
}

tri_value tri_fractional_max_pool(tri_graph *graph, const char *name, tri_value x,
                                  tri_fractional_pool_options o) {
    windows w = {.graph = graph, .name = name};
    tri_pool_options pool = {0};
    if (!find_windows(&w, x, &o)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    tri_shape of_places = tri_shape_of(shape.dims[0], shape.dims[1], w.axes);
    tri_value places = o.places;
    if (!tri_value_is(places)) places = nn_uniform(graph, "fractional_max_pool", name, of_places);
    tri_shape given = tri_value_shape(graph, places);
    if (!tri_shape_equal(&given, &of_places)) {
        char is[128], wanted[128];
        tri_graph_fail(graph, "fractional_max_pool %s: places must be %s, but are %s", name,
                       tri_shape_text(&of_places, wanted, sizeof wanted),
                       tri_shape_text(&given, is, sizeof is));
        return x;
    }
    for (int k = 0; k < w.axes; k++) {
        // PyTorch has the numbers of images in the order x, y, and of volumes in z, y, x.
        tri_value u = tri_select(graph, places, 2, w.axes == 2 ? 1 - k : k);
        tri_value index = elements_of(&w, u, k);
        tri_shape along = tri_value_shape(graph, index);
        int64_t elements = along.dims[2];
        along.rank = shape.rank;
        for (int i = 0; i < w.axes; i++) along.dims[2 + i] = i == k ? elements : 1;
        x = tri_take_along(graph, x, 2 + k, tri_reshape(graph, index, along));
        pool.kernels[k] = pool.strides[k] = w.kernel[k];
    }
    return w.axes == 2 ? tri_max_pool2d(graph, x, pool) : tri_max_pool3d(graph, x, pool);
}

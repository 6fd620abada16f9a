// The layers that pool: the largest or the mean of each window, in one to three dimensions. All are
// made of pools of images: the maximum or mean of a volume is that of the maxima or means of its
// frames, and one dimension is two with a height of 1. Where windows are no ranges of one size, or
// it matters which element of a large one was the largest, a table has the elements of each window
// along an axis, and they are gathered first.
#include "base/arena.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

// The pooling of a value along depth, height and width, of which one with fewer axes has the last
// ones.
typedef struct pool {
    tri_graph *graph;
    const char *layer;
    bool largest, exclude_padding, ceil;
    int64_t kernel[3], stride[3], padding[3], dilation[3];
    int64_t size[3], count[3]; // elements and windows along each axis
} pool;

// One pooling of images [N, C, H, W] along two axes of the pool; -1: nothing happens along it.
// *place, unless it is NULL, becomes the places of the maxima in their windows.
static tri_value pool_image(const pool *p, tri_value x, int rows, int columns, tri_value *place) {
    int axes[] = {rows, columns};
    tri_max_pool2d_attr most = {.kernel = {1, 1}, .stride = {1, 1}, .indexed = place};
    tri_avg_pool2d_attr mean = {.exclude_padding = p->exclude_padding};
    for (int i = 0; i < 2; i++) {
        if (axes[i] < 0) continue;
        most.kernel[i] = p->kernel[axes[i]];
        most.stride[i] = p->stride[axes[i]];
        most.padding[i] = p->padding[axes[i]];
    }
    if (p->largest) x = tri_node_add(p->graph, &tri_op_max_pool2d, &x, 1, &most, "");
    if (place && p->graph->status == TRI_OK) *place = tri_node_output(p->graph, x, 1);
    if (p->largest) return x;
    for (int i = 0; i < 2; i++) {
        mean.kernel[i] = most.kernel[i];
        mean.stride[i] = most.stride[i];
        mean.padding[i] = most.padding[i];
    }
    return tri_node_add(p->graph, &tri_op_avg_pool2d, &x, 1, &mean, "");
}

bool nn_takes_pixels(tri_graph *g, const char *layer, tri_value x, int least, int most) {
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

// x as images [N, its axes before `axis`, the axis, its axes behind it].
static tri_value as_rows(tri_graph *g, tri_value x, int axis) {
    tri_shape from = tri_value_shape(g, x), to = tri_shape_of(from.dims[0], 1, from.dims[axis], 1);
    for (int i = 1; i < from.rank; i++)
        if (i != axis) to.dims[i < axis ? 1 : 3] *= from.dims[i];
    return tri_reshape(g, x, to);
}

// The windows along one axis as a table: window w has the elements at[w · taps] to at[w · taps +
// taps - 1]. A window of fewer elements has one of them several times.
typedef struct window_table {
    const char *name;
    int64_t count, taps;
    float *at;
} window_table;

enum { MOST_TAPS = 1 << 24 }; // of a table; F32 has so large numbers exactly

// Begins the table of an axis. False: the graph has failed.
static bool table_begin(const pool *p, window_table *t, int64_t count, int64_t taps) {
    t->count = count;
    t->taps = taps;
    if (taps > MOST_TAPS / count) {
        tri_graph_fail(p->graph, "%s: %" PRId64 " windows of %" PRId64 " elements are too many",
                       p->layer, count, taps);
        return false;
    }
    t->at = tri_arena_alloc(p->graph->arena, (size_t)(count * taps) * sizeof *t->at);
    return true;
}

// The windows along axis i of the pool, whose numbers check_axis has checked.
static bool table_of(const pool *p, int i, window_table *t) {
    int64_t kernel = p->kernel[i], stride = p->stride[i], dilation = p->dilation[i];
    t->name = tri_name(p->graph, "windows.%d.%lld.%lld.%lld.%lld.%lld.%lld", p->graph->block,
                       (long long)p->size[i], (long long)p->count[i], (long long)kernel,
                       (long long)stride, (long long)dilation, (long long)p->padding[i]);
    if (!table_begin(p, t, p->count[i], kernel)) return false;
    for (int64_t w = 0; w < t->count; w++) {
        int64_t first = w * stride - p->padding[i];
        int64_t skipped = first < 0 ? (-first + dilation - 1) / dilation : 0;
        int64_t inside = first + skipped * dilation;
        if (skipped >= kernel || inside >= p->size[i]) {
            tri_graph_fail(p->graph, "%s: window %" PRId64 " of axis %d has padding only", p->layer,
                           w, i);
            return false;
        }
        for (int64_t k = 0; k < kernel; k++) {
            int64_t at = first + k * dilation;
            t->at[w * kernel + k] = (float)(at < 0 || at >= p->size[i] ? inside : at);
        }
    }
    return true;
}

// `count` windows that cover an axis of `size` elements (adaptive pooling).
static bool adaptive_table(const pool *p, int64_t size, int64_t count, window_table *t) {
    const pool_axis a = {.in = size, .out = count};
    int64_t taps = 0, begin, end;
    t->name = tri_name(p->graph, "windows.%d.%lld.%lld", p->graph->block, (long long)size,
                       (long long)count);
    for (int64_t w = 0; w < count; w++) {
        pool_window_at(&a, w, &begin, &end);
        if (end - begin > taps) taps = end - begin;
    }
    if (!table_begin(p, t, count, taps)) return false;
    for (int64_t w = 0; w < count; w++) {
        pool_window_at(&a, w, &begin, &end);
        for (int64_t k = 0; k < taps; k++)
            t->at[w * taps + k] = (float)(begin + k < end ? begin + k : begin);
    }
    return true;
}

// The largest element of each window of a table along `axis`. *index, if it is wanted, becomes the
// elements' numbers in a pixel, of which there are `pixels` so far: those of the axes behind.
static tri_value largest_of(const pool *p, tri_value x, int axis, const window_table *t,
                            tri_value *index, int64_t pixels) {
    tri_graph *g = p->graph;
    tri_shape from = tri_value_shape(g, x), to = from, parts = from, per_window = from;
    to.dims[axis] = t->count;
    tri_value table =
        tri_cast(g, tri_constant(g, t->name, tri_shape_of(t->count * t->taps), t->at), TRI_I64);
    tri_value elements = tri_index_select(g, x, axis, table);
    if (!index && t->taps <= TRI_POOL_NO_GRADIENT) {
        pool one = {.graph = g, .largest = true, .kernel = {t->taps}, .stride = {t->taps}};
        return tri_reshape(g, pool_image(&one, as_rows(g, elements, axis), 0, -1, NULL), to);
    }
    parts.rank++;
    for (int i = parts.rank - 1; i > axis; i--) parts.dims[i] = from.dims[i - 1];
    parts.dims[axis] = t->count;
    parts.dims[axis + 1] = t->taps;
    tri_value tap = tri_argmax(g, tri_reshape(g, elements, parts), axis + 1, false);
    for (int i = 0; i < from.rank; i++) per_window.dims[i] = i == axis ? t->count : 1;
    tri_value window = tri_reshape(g, tri_arange(g, t->count), per_window);
    tri_value at = tri_map(g, tri_name(g, "w, k -> w * %lld + k", (long long)t->taps), window, tap);
    // Which element that is, by the table.
    at = tri_reshape(g, at, tri_shape_of(from.dims[0], -1));
    at = tri_take_along(g, tri_unsqueeze(g, table, 0), 1, at);
    at = tri_reshape(g, at, to);
    x = tri_gather(g, x, axis, at);
    if (!index) return x;
    if (tri_value_is(*index))
        *index = tri_map(g, tri_name(g, "behind, at -> behind + at * %lld", (long long)pixels),
                         tri_gather(g, *index, axis, at), at);
    else
        *index = at;
    return x;
}

// The maximum of `windows` windows along `axis`, PyTorch's AdaptiveMaxPool.
static tri_value adaptive_maximum(const pool *p, tri_value x, int axis, int64_t windows,
                                  tri_value *index, int64_t pixels) {
    tri_graph *g = p->graph;
    tri_shape shape = tri_value_shape(g, x);
    int64_t size = shape.dims[axis], each = size / windows;
    window_table t;
    if (size == windows && !index) return x;
    if (size % windows == 0 && each <= TRI_POOL_NO_GRADIENT && !index) {
        pool one = {.graph = g, .largest = true, .kernel = {each}, .stride = {each}};
        shape.dims[axis] = windows;
        return tri_reshape(g, pool_image(&one, as_rows(g, x, axis), 0, -1, NULL), shape);
    }
    return adaptive_table(p, size, windows, &t) ? largest_of(p, x, axis, &t, index, pixels) : x;
}

static tri_value maximum(tri_graph *g, const char *layer, tri_value x, int axes,
                         const tri_pool_options *o, tri_value *index);

// Whether all windows of an adaptive pool have one size, which are the kernel of *o then.
static bool is_even(const tri_shape *x, const int64_t *windows, tri_pool_options *o) {
    for (int k = 0; k < x->rank - 2; k++) {
        int64_t size = x->dims[2 + k];
        if (windows[k] < 0 || (windows[k] > 0 && size % windows[k] != 0)) return false;
        o->kernels[k] = windows[k] ? size / windows[k] : 1;
    }
    return true;
}

static tri_value adaptive(tri_graph *g, const char *layer, tri_value x, const int64_t *windows,
                          bool largest, tri_value *index) {
    if (index) *index = (tri_value){0};
    if (!nn_takes_pixels(g, layer, x, 1, 3)) return x;
    tri_shape shape = tri_value_shape(g, x);
    pool p = {.graph = g, .layer = layer};
    tri_pool_options even = {0};
    if (index && is_even(&shape, windows, &even))
        return maximum(g, layer, x, shape.rank - 2, &even, index);
    int64_t pixels = 1;
    for (int axis = shape.rank - 1; axis >= 2; axis--) {
        int64_t count = windows[axis - 2] ? windows[axis - 2] : shape.dims[axis];
        if (count < 1) {
            tri_graph_fail(g, "%s: the size must be at least 1, not %" PRId64, layer, count);
            return x;
        }
        if (largest) x = adaptive_maximum(&p, x, axis, count, index, pixels);
        pixels *= shape.dims[axis];
        shape.dims[axis] = count;
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

// Whether o has numbers for axes that the layer has not, or of another kind of pool.
static bool has_idle_numbers(const tri_pool_options *o, int axes, bool largest) {
    bool idle = largest ? o->divisor_override != 0 : o->dilation > 1;
    for (int k = 0; k < 3; k++) {
        idle = idle || (!largest && o->dilations[k] > 1);
        idle = idle ||
               (k >= axes && (o->kernels[k] || o->strides[k] || o->pads[k] || o->dilations[k]));
    }
    return idle;
}

// Checks the numbers of axis i and finds how many windows there are along it. As in PyTorch, the
// last one begins inside x or the padding before it, in ceil_mode also the only one; and the kernel
// of a mean of volumes is not larger than x.
static bool check_axis(pool *p, int i, int axes) {
    int64_t kernel = p->kernel[i], stride = p->stride[i], dilation = p->dilation[i];
    int64_t padding = p->padding[i];
    bool fits = kernel >= 1 && kernel <= TRI_MAX_WINDOW && stride >= 1 &&
                stride <= TRI_MAX_WINDOW && dilation >= 1 && dilation <= TRI_MAX_WINDOW;
    int64_t reach = fits ? dilation * (kernel - 1) + 1 : 0;
    fits = fits && padding >= 0 && padding <= reach / 2 && p->size[i] <= TRI_MAX_WINDOW;
    int64_t left = fits ? p->size[i] + 2 * padding - reach : 0;
    if (p->ceil) left += stride - 1;
    if (axes == 3 && !p->largest) fits = fits && kernel <= p->size[i];
    p->count[i] = fits ? left / stride + 1 : 0;
    if (p->ceil && (p->count[i] - 1) * stride >= p->size[i] + padding) p->count[i]--;
    if (fits && left >= 0) return true;
    tri_graph_fail(p->graph,
                   "%s: needs a kernel that fits, strides and dilations of at least 1 and padding "
                   "of at most half the kernel, not a kernel of %" PRId64 " with stride %" PRId64
                   ", dilation %" PRId64 " and padding %" PRId64 " on %" PRId64 " elements",
                   p->layer, kernel, stride, dilation, padding, p->size[i]);
    return false;
}

// Begins the pooling of x along its last `axes` axes. False: the graph has failed.
static bool begin(pool *p, tri_value x, int axes, const tri_pool_options *o) {
    if (!nn_takes_pixels(p->graph, p->layer, x, axes, axes)) return false;
    if (has_idle_numbers(o, axes, p->largest) || o->divisor_override < 0) {
        tri_graph_fail(p->graph,
                       "%s: its options have numbers without effect: of more axes, or of another "
                       "kind of pool",
                       p->layer);
        return false;
    }
    p->exclude_padding = o->exclude_padding && !o->divisor_override;
    p->ceil = o->ceil_mode;
    for (int i = 0; i < 3; i++) {
        int k = i - (3 - axes);
        p->kernel[i] = p->stride[i] = p->dilation[i] = p->size[i] = p->count[i] = 1;
        p->padding[i] = 0;
        if (k < 0) continue;
        p->kernel[i] = o->kernels[k] ? o->kernels[k] : o->kernel;
        p->stride[i] = o->strides[k] ? o->strides[k] : o->stride ? o->stride : p->kernel[i];
        p->padding[i] = o->padding + o->pads[k];
        p->dilation[i] = o->dilations[k] ? o->dilations[k] : o->dilation ? o->dilation : 1;
        p->size[i] = tri_value_shape(p->graph, x).dims[2 + k];
        if (!check_axis(p, i, axes)) return false;
    }
    return true;
}

// By how much the last window along axis i reaches behind the padding, in ceil_mode.
static int64_t behind(const pool *p, int i) {
    int64_t end = (p->count[i] - 1) * p->stride[i] + p->dilation[i] * (p->kernel[i] - 1) + 1;
    int64_t more = end - p->size[i] - 2 * p->padding[i];
    return more > 0 ? more : 0;
}

// A mean of windows that reach behind the padding divides by fewer elements than the kernel has:
// those in x, and in the padding unless it is excluded.
static tri_value corrected(const pool *p, tri_value y, int axes) {
    tri_graph *g = p->graph;
    for (int i = 3 - axes; i < 3; i++) {
        tri_shape shape = {.rank = 3 - i, .dims = {p->count[i], 1, 1}};
        float *counted = tri_arena_alloc(g->arena, (size_t)p->count[i] * sizeof *counted);
        for (int64_t w = 0; w < p->count[i]; w++) {
            int64_t first = w * p->stride[i] - p->padding[i], end = first + p->kernel[i];
            int64_t limit = p->size[i] + (p->exclude_padding ? 0 : p->padding[i]);
            if (p->exclude_padding && first < 0) first = 0;
            counted[w] = (float)((end < limit ? end : limit) - first);
        }
        const char *name =
            tri_name(g, "counted.%d.%d.%d.%lld.%lld.%lld.%lld.%lld", g->block, 3 - i,
                     p->exclude_padding, (long long)p->size[i], (long long)p->count[i],
                     (long long)p->kernel[i], (long long)p->stride[i], (long long)p->padding[i]);
        y = tri_map(g, tri_name(g, "y, n -> y * (%lld / n)", (long long)p->kernel[i]), y,
                    tri_constant(g, name, shape, counted));
    }
    return y;
}

// Pools x, of which all windows are ranges that fit.
static tri_value pool_ranges(const pool *p, tri_value x, int axes) {
    tri_graph *g = p->graph;
    tri_shape s = tri_value_shape(g, x);
    if (axes == 1) x = tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], 1, s.dims[2]));
    if (axes == 3) x = tri_reshape(g, x, tri_shape_of(s.dims[0], -1, s.dims[3], s.dims[4]));
    // The place of a maximum in its window has 8 bits, so large windows take two steps.
    bool large = p->largest && p->kernel[1] * p->kernel[2] > TRI_POOL_NO_GRADIENT;
    if (large) x = pool_image(p, x, -1, 2, NULL);
    x = pool_image(p, x, 1, large ? -1 : 2, NULL);
    tri_shape y = tri_value_shape(g, x);
    if (axes == 2) return x;
    if (axes == 1) return tri_reshape(g, x, tri_shape_of(y.dims[0], y.dims[1], y.dims[3]));
    x = tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], s.dims[2], y.dims[2] * y.dims[3]));
    x = pool_image(p, x, 0, -1, NULL);
    return tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], -1, y.dims[2], y.dims[3]));
}

// The numbers along axis i at which its windows begin, times `step`: [count] with `behind` axes of
// size 1 behind it.
static tri_value begins_of(const pool *p, int i, int64_t step, int behind) {
    tri_graph *g = p->graph;
    tri_shape shape = {.rank = 1 + behind, .dims = {p->count[i], 1}};
    const char *formula = tri_name(g, "w -> (w * %lld - %lld) * %lld", (long long)p->stride[i],
                                   (long long)p->padding[i], (long long)step);
    return tri_map(g, formula, tri_reshape(g, tri_arange(g, p->count[i]), shape));
}

// Pools x, whose windows are ranges of at most TRI_POOL_NO_GRADIENT pixels of a frame. *index
// becomes the numbers of the maxima, which follow from their places in the windows.
static tri_value pool_indexed(const pool *p, tri_value x, int axes, tri_value *index) {
    tri_graph *g = p->graph;
    tri_shape s = tri_value_shape(g, x), y = s;
    for (int k = 0; k < axes; k++) y.dims[2 + k] = p->count[3 - axes + k];
    int64_t kernel = p->kernel[2], width = p->size[2];
    if (axes == 1) x = tri_reshape(g, x, tri_shape_of(s.dims[0], s.dims[1], 1, s.dims[2]));
    if (axes == 3) x = tri_reshape(g, x, tri_shape_of(s.dims[0], -1, s.dims[3], s.dims[4]));
    tri_value place = {0};
    x = pool_image(p, x, 1, 2, &place);
    if (g->status != TRI_OK) return x;
    // place / kernel, rounded down, is place · m >> 16 with m = 2^16 / kernel, rounded up.
    const char *formula =
        tri_name(g,
                 "place, row, column, h = place * %lld >> 16 -> "
                 "place + h * %lld + row + column",
                 (long long)((65536 + kernel - 1) / kernel), (long long)(width - kernel));
    *index = tri_map(g, formula, place, begins_of(p, 1, width, 1), begins_of(p, 2, 1, 0));
    if (axes == 3) {
        tri_shape frames = tri_shape_of(s.dims[0], s.dims[1], s.dims[2], p->count[1] * p->count[2]);
        x = pool_image(p, tri_reshape(g, x, frames), 0, -1, &place);
        if (g->status != TRI_OK) return x;
        tri_value frame = tri_map(g, "place, frame -> place + frame", place, begins_of(p, 0, 1, 1));
        *index = tri_map(
            g, tri_name(g, "at, frame -> at + frame * %lld", (long long)(p->size[1] * width)),
            tri_gather(g, tri_reshape(g, *index, frames), 2, frame), frame);
    }
    *index = tri_reshape(g, *index, y);
    return tri_reshape(g, x, y);
}

static tri_value average(tri_graph *g, const char *layer, tri_value x, int axes,
                         const tri_pool_options *o) {
    pool p = {.graph = g, .layer = layer};
    bool reaches = false;
    if (!begin(&p, x, axes, o)) return x;
    for (int i = 3 - axes; i < 3; i++) {
        if (behind(&p, i) == 0) continue;
        x = tri_pad(g, x, 2 + i - (3 - axes), 0, behind(&p, i));
        reaches = true;
    }
    pool full = p;
    if (reaches) full.exclude_padding = false;
    x = pool_ranges(&full, x, axes);
    if (o->divisor_override)
        return tri_mul_scalar(
            g, x, (double)(p.kernel[0] * p.kernel[1] * p.kernel[2]) / (double)o->divisor_override);
    return reaches ? corrected(&p, x, axes) : x;
}

static tri_value maximum(tri_graph *g, const char *layer, tri_value x, int axes,
                         const tri_pool_options *o, tri_value *index) {
    pool p = {.graph = g, .layer = layer, .largest = true};
    bool ranges = true;
    int64_t pixels = 1;
    if (index) *index = (tri_value){0};
    if (!begin(&p, x, axes, o)) return x;
    for (int i = 0; i < 3; i++)
        ranges = ranges && p.dilation[i] == 1 && p.kernel[i] <= TRI_POOL_NO_GRADIENT;
    if (index) ranges = ranges && p.kernel[1] * p.kernel[2] <= TRI_POOL_NO_GRADIENT;
    for (int i = 2; i >= 3 - axes; i--) {
        int axis = 2 + i - (3 - axes);
        window_table t;
        if (ranges) {
            // A copy of the last element changes no maximum, because all windows that reach there
            // have that element too, and before it.
            if (behind(&p, i) > 0) x = tri_pad_replicate(g, x, axis, 0, behind(&p, i));
            continue;
        }
        if (!table_of(&p, i, &t)) return x;
        x = largest_of(&p, x, axis, &t, index, pixels);
        pixels *= p.size[i];
    }
    if (ranges && index) return pool_indexed(&p, x, axes, index);
    return ranges ? pool_ranges(&p, x, axes) : x;
}

// Puts x where the indices of a maximum say, and 0 elsewhere.
static tri_value unpool(tri_graph *g, const char *layer, tri_value x, tri_value index, int axes,
                        const tri_pool_options *o, const int64_t *sizes) {
    if (!nn_takes_pixels(g, layer, x, axes, axes)) return x;
    if (!tri_graph_check_input(g, layer, "indices", index)) return x;
    tri_shape from = tri_value_shape(g, x), to = from, has = tri_value_shape(g, index);
    int64_t pixels = 1;
    for (int k = 0; k < axes; k++) {
        int64_t kernel = o->kernels[k] ? o->kernels[k] : o->kernel;
        int64_t stride = o->strides[k] ? o->strides[k] : o->stride ? o->stride : kernel;
        to.dims[2 + k] =
            sizes ? sizes[k]
                  : (from.dims[2 + k] - 1) * stride + kernel - 2 * (o->padding + o->pads[k]);
        if (to.dims[2 + k] < 1 || to.dims[2 + k] > TRI_MAX_WINDOW ||
            !tri_shape_equal(&from, &has)) {
            tri_graph_fail(g,
                           "%s: needs indices of the shape of x and sizes of 1 to %d, not %" PRId64,
                           layer, TRI_MAX_WINDOW, to.dims[2 + k]);
            return x;
        }
        pixels *= to.dims[2 + k];
    }
    tri_shape rows = tri_shape_of(from.dims[0], from.dims[1], -1);
    tri_scatter_attr attr = {.kind = TRI_SCATTER_SET,
                             .axis = 2,
                             .shape = tri_shape_of(from.dims[0], from.dims[1], pixels)};
    tri_value inputs[] = {tri_reshape(g, index, rows), tri_reshape(g, x, rows), {0}};
    return tri_reshape(g, tri_node_add(g, &tri_op_scatter, inputs, 3, &attr, ""), to);
}

#define POOL(axes)                                                                                 \
    tri_value tri_max_pool##axes##d(tri_graph *graph, tri_value x, tri_pool_options o) {           \
        return maximum(graph, "max_pool" #axes "d", x, axes, &o, NULL);                            \
    }                                                                                              \
    tri_value tri_max_pool##axes##d_with_indices(tri_graph *graph, tri_value x,                    \
                                                 tri_pool_options o, tri_value *indices) {         \
        return maximum(graph, "max_pool" #axes "d", x, axes, &o, indices);                         \
    }                                                                                              \
    tri_value tri_max_unpool##axes##d(tri_graph *graph, tri_value x, tri_value indices,            \
                                      tri_pool_options o, const int64_t *sizes) {                  \
        return unpool(graph, "max_unpool" #axes "d", x, indices, axes, &o, sizes);                 \
    }                                                                                              \
    tri_value tri_avg_pool##axes##d(tri_graph *graph, tri_value x, tri_pool_options o) {           \
        return average(graph, "avg_pool" #axes "d", x, axes, &o);                                  \
    }
POOL(1)
POOL(2)
POOL(3)

tri_value tri_adaptive_avg_pool(tri_graph *graph, tri_value x, const int64_t *sizes) {
    return adaptive(graph, "adaptive_avg_pool", x, sizes, false, NULL);
}

tri_value tri_adaptive_max_pool(tri_graph *graph, tri_value x, const int64_t *sizes) {
    return adaptive(graph, "adaptive_max_pool", x, sizes, true, NULL);
}

tri_value tri_adaptive_max_pool_with_indices(tri_graph *graph, tri_value x, const int64_t *sizes,
                                             tri_value *indices) {
    return adaptive(graph, "adaptive_max_pool", x, sizes, true, indices);
}

tri_value tri_adaptive_avg_pool2d(tri_graph *graph, tri_value x, int64_t size) {
    if (size < 1)
        tri_graph_fail(graph, "adaptive_avg_pool2d: the size must be at least 1, not %lld",
                       (long long)size);
    tri_avg_pool2d_attr attr = {.out = {size, size}};
    return tri_node_add(graph, &tri_op_avg_pool2d, &x, 1, &attr, "");
}

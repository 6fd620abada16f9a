// Layers that read values between their elements: interpolation along axes, and samples of images
// and volumes at places that a grid names.
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

static bool check_interpolate(tri_graph *g, const tri_interpolate_options *o) {
    bool smooth = o->mode == TRI_INTERPOLATE_LINEAR || o->mode == TRI_INTERPOLATE_CUBIC;
    if ((int)o->mode < 0 || o->mode > TRI_INTERPOLATE_AREA ||
        ((o->align_corners || o->antialias) && !smooth)) {
        tri_graph_fail(g, "interpolate: align_corners and antialias are for linear and cubic only");
        return false;
    }
    for (int k = -1; k < 3; k++) {
        double factor = k < 0 ? o->factor : o->factors[k];
        if (factor >= 0 && factor <= TRI_MAX_WINDOW) continue;
        tri_graph_fail(g, "interpolate: needs a factor of 0 to %d, not %g", TRI_MAX_WINDOW, factor);
        return false;
    }
    return true;
}

// PyTorch places the elements by the factor, although the size is rounded down.
tri_value tri_interpolate(tri_graph *graph, tri_value x, tri_interpolate_options o) {
    static const int kinds[] = {
        [TRI_INTERPOLATE_NEAREST] = INTERPOLATE_NEAREST,
        [TRI_INTERPOLATE_LINEAR] = INTERPOLATE_LINEAR,
        [TRI_INTERPOLATE_CUBIC] = INTERPOLATE_CUBIC,
        [TRI_INTERPOLATE_NEAREST_EXACT] = INTERPOLATE_NEAREST_EXACT,
    };
    if (!nn_takes_pixels(graph, "interpolate", x, 1, 3)) return x;
    if (o.linear && o.mode == TRI_INTERPOLATE_NEAREST) o.mode = TRI_INTERPOLATE_LINEAR;
    if (!check_interpolate(graph, &o)) return x;
    int64_t sizes[3] = {0};
    for (int axis = tri_value_shape(graph, x).rank - 1; axis >= 2; axis--) {
        int64_t from = tri_value_shape(graph, x).dims[axis], *size = &sizes[axis - 2];
        double factor = o.factors[axis - 2] != 0 ? o.factors[axis - 2] : o.factor;
        if (o.sizes[axis - 2] || factor == 0) factor = 1;
        *size = o.sizes[axis - 2] ? o.sizes[axis - 2] : (int64_t)floor((double)from * factor);
        bool places = !o.sizes[axis - 2] && !o.recompute_scale_factor &&
                      (double)from * factor != (double)*size;
        if (o.mode == TRI_INTERPOLATE_AREA) continue;
        tri_interpolate_attr attr = {.axis = axis,
                                     .size = *size,
                                     .kind = kinds[o.mode],
                                     .align_corners = o.align_corners,
                                     .antialias = o.antialias,
                                     .factor = places ? factor : 0};
        if (attr.size != from || places)
            x = tri_node_add(graph, &tri_op_interpolate, &x, 1, &attr, "");
    }
    return o.mode == TRI_INTERPOLATE_AREA ? tri_adaptive_avg_pool(graph, x, sizes) : x;
}

// The numbers 0 to count - 1 as floats, with `behind` axes of size 1 behind them.
static tri_value numbers(tri_graph *g, int64_t count, int behind) {
    tri_shape shape = {.rank = 1 + behind, .dims = {count, 1, 1, 1}};
    return tri_reshape(g, tri_cast(g, tri_arange(g, count), TRI_F32), shape);
}

// The places of `count` elements between -1 and 1.
static tri_value grid_axis(tri_graph *g, int64_t count, int behind, bool align_corners) {
    const char *formula =
        align_corners ? (count > 1 ? tri_name(g, "2 * x / %" PRId64 " - 1", count - 1) : "0 * x")
                      : tri_name(g, "(2 * x + 1) / %" PRId64 " - 1", count);
    return tri_map(g, formula, numbers(g, count, behind));
}

tri_value tri_affine_grid(tri_graph *graph, tri_value theta, const int64_t *sizes,
                          bool align_corners) {
    char text[128];
    if (!tri_graph_check_input(graph, "affine_grid", NULL, theta)) return theta;
    tri_shape shape = tri_value_shape(graph, theta);
    int axes = (int)shape.dims[1];
    bool fits = shape.rank == 3 && (axes == 2 || axes == 3) && shape.dims[2] == axes + 1;
    for (int i = 0; fits && i < axes; i++) fits = sizes[i] > 0;
    if (!fits) {
        tri_graph_fail(graph,
                       "affine_grid: needs theta [N, 2, 3] or [N, 3, 4] and sizes above 0, not %s",
                       tri_shape_text(&shape, text, sizeof text));
        return theta;
    }
    tri_value values[7];
    tri_shape column = {.rank = axes + 2, .dims = {shape.dims[0], 1, 1, 1, 1}};
    column.dims[axes + 1] = axes;
    for (int k = 0; k <= axes; k++) {
        values[2 * k] = tri_reshape(graph, tri_select(graph, theta, 2, k), column);
        // Column k of theta is for x, y and z, which are the axes from the last one.
        if (k < axes)
            values[2 * k + 1] = grid_axis(graph, sizes[axes - 1 - k], k + 1, align_corners);
    }
    return tri_map_values(graph,
                          axes == 2 ? "a, x, b, y, c -> a * x + b * y + c"
                                    : "a, x, b, y, c, z, d -> a * x + b * y + c * z + d",
                          values, 2 * axes + 1);
}

// Samples along one axis of x with `size` elements.
typedef struct sampler {
    tri_graph *graph;
    int64_t size;
    const tri_grid_sample_options *o;
} sampler;

// Moves places into the axis, without a gradient where they are at or past its ends. A place that
// is no number becomes 0.
static tri_value clip(const sampler *s, tri_value place) {
    return tri_map(
        s->graph,
        tri_name(s->graph, "u -> u > 0 && u < %" PRId64 " ? u : u >= %" PRId64 " ? %" PRId64 " : 0",
                 s->size - 1, s->size - 1, s->size - 1),
        place);
}

// Places that padding other than zeros has moved into the axis.
static tri_value padded(const sampler *s, tri_value place) {
    if (s->o->padding == TRI_SAMPLE_ZEROS) return place;
    if (s->o->padding == TRI_SAMPLE_REFLECTION) {
        // Reflected at the middle of the first and last element, or at their borders.
        double low = s->o->align_corners ? 0 : -0.5;
        double span = (double)s->size - (s->o->align_corners ? 1 : 0);
        if (span == 0) return tri_map(s->graph, "0 * u", place);
        const char *formula = tri_name(s->graph,
                                       "u, v = abs(u - %.17g), r = fmod(v, %.17g) -> "
                                       "(floor(v / %.17g) %% 2 == 0 ? r : %.17g - r) + %.17g",
                                       low, span, span, span, low);
        place = tri_map(s->graph, formula, place);
    }
    return clip(s, place);
}

// Of each place [N, 1, P] the elements that it is made of, and how much of each: both [N, taps, P].
static tri_value neighbours(const sampler *s, tri_value place, tri_value *index) {
    static const char *const first[] = {"u, t -> floor(u) + t", "u, t -> round(u) + t",
                                        "u, t -> floor(u) + t - 1"};
    static const char *const shares[] = {
        "u, t, w = u - floor(u) -> t > 0 ? w : 1 - w", "u, t -> 1 + 0 * u * t",
        "u, t, d = abs(u - floor(u) - t + 1) -> d < 1 ? (1.25 * d - 2.25) * d * d + 1 : "
        "((-0.75 * d + 3.75) * d - 6) * d + 3"};
    static const int64_t taps[] = {2, 1, 4};
    tri_graph *g = s->graph;
    int mode = (int)s->o->mode;
    const char *scale =
        s->o->align_corners ? "(u + 1) / 2 * %" PRId64 : "((u + 1) * %" PRId64 " - 1) / 2";
    bool cubic = s->o->mode == TRI_SAMPLE_CUBIC;
    scale = tri_name(g, scale, s->size - (s->o->align_corners ? 1 : 0));
    tri_value u = tri_map(g, scale, place), t = numbers(g, taps[mode], 1);
    if (!cubic) u = padded(s, u);
    tri_value at = tri_map(g, first[mode], u, t), share = tri_map(g, shares[mode], u, t);
    if (cubic) at = padded(s, at);
    const char *inside =
        tri_name(g, "at, share -> at >= 0 && at <= %" PRId64 " ? share : 0", s->size - 1);
    *index = tri_cast(g, clip(s, at), TRI_I64);
    return tri_map(g, inside, at, share);
}

static bool check_grid(tri_graph *g, tri_value x, tri_value grid,
                       const tri_grid_sample_options *o) {
    char of_x[128], of_grid[128];
    if (!nn_takes_pixels(g, "grid_sample", x, 2, 3)) return false;
    if (!tri_graph_check_input(g, "grid_sample", "grid", grid)) return false;
    tri_shape from = tri_value_shape(g, x), to = tri_value_shape(g, grid);
    bool fits = to.rank == from.rank && to.dims[0] == from.dims[0] &&
                to.dims[to.rank - 1] == from.rank - 2 && tri_shape_count(&to) > 0;
    if (!fits || (int)o->mode < 0 || o->mode > TRI_SAMPLE_CUBIC || (int)o->padding < 0 ||
        o->padding > TRI_SAMPLE_REFLECTION || (o->mode == TRI_SAMPLE_CUBIC && from.rank != 4)) {
        tri_graph_fail(g,
                       "grid_sample: needs x [N, C, H, W] and a grid [N, H', W', 2], or a volume "
                       "and a grid [N, D', H', W', 3] without cubic, not %s and %s",
                       tri_shape_text(&from, of_x, sizeof of_x),
                       tri_shape_text(&to, of_grid, sizeof of_grid));
        return false;
    }
    return true;
}

// All neighbours of all places are gathered at once, each with all its channels.
tri_value tri_grid_sample(tri_graph *graph, tri_value x, tri_value grid,
                          tri_grid_sample_options o) {
    if (!check_grid(graph, x, grid, &o)) return x;
    tri_shape from = tri_value_shape(graph, x), to = tri_value_shape(graph, grid);
    int axes = from.rank - 2;
    int64_t n = from.dims[0], channels = from.dims[1], places = 1, pixels = 1, taps = 1;
    for (int i = 0; i < axes; i++) {
        places *= to.dims[1 + i];
        pixels *= from.dims[2 + i];
    }
    tri_value index = {0}, share = {0};
    for (int i = 0; i < axes; i++) {
        sampler s = {graph, from.dims[2 + i], &o};
        tri_value own, place = tri_select(graph, grid, -1, axes - 1 - i);
        tri_value part =
            neighbours(&s, tri_reshape(graph, place, tri_shape_of(n, 1, places)), &own);
        if (i == 0) {
            index = own;
            share = part;
            taps = tri_value_shape(graph, part).dims[1];
            continue;
        }
        // The neighbours along this axis, for each of those along the axes before.
        int64_t more = tri_value_shape(graph, part).dims[1];
        tri_shape whole = tri_shape_of(n, taps * more, places);
        const char *number = tri_name(graph, "a, b -> a * %" PRId64 " + b", s.size);
        index =
            tri_map(graph, number, tri_unsqueeze(graph, index, 2), tri_unsqueeze(graph, own, 1));
        share = tri_mul(graph, tri_unsqueeze(graph, share, 2), tri_unsqueeze(graph, part, 1));
        index = tri_reshape(graph, index, whole);
        share = tri_reshape(graph, share, whole);
        taps *= more;
    }
    x = tri_transpose(graph, tri_reshape(graph, x, tri_shape_of(n, channels, pixels)), 1, 2);
    index = tri_reshape(graph, index, tri_shape_of(n, taps * places, 1));
    x = tri_reshape(graph, tri_take_along(graph, x, 1, index),
                    tri_shape_of(n, taps, places, channels));
    share = tri_reshape(graph, share, tri_shape_of(n, taps, places, 1));
    x = tri_sum(graph, tri_mul(graph, x, share), (int[]){1}, 1, false);
    tri_shape y = {.rank = from.rank, .dims = {n, channels}};
    for (int i = 0; i < axes; i++) y.dims[2 + i] = to.dims[1 + i];
    return tri_reshape(graph, tri_transpose(graph, x, 1, 2), y);
}

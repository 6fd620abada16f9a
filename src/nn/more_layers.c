// The layers of more_layers.h, which are made of other layers and functions.
#include "base/quantity.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

static tri_value none(void) { return (tri_value){0}; }

// Checks that x has at least `least` axes and no empty one.
static bool takes(tri_graph *g, const char *layer, const char *name, tri_value x, int least) {
    char text[128];
    if (!tri_graph_check_input(g, layer, name, x)) return false;
    tri_shape shape = tri_value_shape(g, x);
    if (shape.rank >= least && tri_shape_count(&shape) > 0) return true;
    tri_graph_fail(g, "%s%s%s: needs at least %s and no empty one, not %s", layer, name ? " " : "",
                   name ? name : "", tri_counted(least, "axis"),
                   tri_shape_text(&shape, text, sizeof text));
    return false;
}

static tri_value ones_like(tri_graph *g, tri_value x) { return tri_map(g, "x -> x < 0 || 1", x); }

tri_value tri_bilinear(tri_graph *graph, const char *name, tri_value a, tri_value b,
                       tri_bilinear_options o) {
    if (!tri_layer_begin(graph, name)) return none();
    if (!takes(graph, "bilinear", name, a, 1) || !takes(graph, "bilinear", name, b, 1))
        return none();
    tri_shape left = tri_value_shape(graph, a), right = tri_value_shape(graph, b);
    int last = left.rank - 1;
    int64_t in = left.dims[last], other = right.dims[right.rank - 1];
    tri_shape product = left;
    bool fits = o.features > 0 && left.rank == right.rank && left.rank < TRI_MAX_RANK;
    for (int i = 0; i < last; i++) fits = fits && left.dims[i] == right.dims[i];
    if (!fits) {
        char of_a[128], of_b[128];
        tri_graph_fail(
            graph,
            "bilinear %s: needs features > 0, and a and b that differ in their last axis "
            "only, not %s and %s",
            name, tri_shape_text(&left, of_a, sizeof of_a),
            tri_shape_text(&right, of_b, sizeof of_b));
        return none();
    }
    double bound = 1 / sqrt((double)in);
    tri_init uniform = {.kind = TRI_INIT_UNIFORM, .low = -bound, .high = bound};
    tri_value weight =
        tri_parameter(graph, nn_parameter_name(graph, name, "weight"),
                      tri_shape_of(o.features, in, other), nn_init_or(o.weight_init, uniform));
    product.dims[last] = o.features;
    product.dims[product.rank++] = other;
    tri_value by_input = tri_reshape(graph, tri_permute(graph, weight, (int[]){1, 0, 2}),
                                     tri_shape_of(in, o.features * other));
    tri_value half = tri_reshape(graph, tri_matmul(graph, a, by_input), product);
    tri_value y = tri_squeeze(graph, tri_matmul(graph, half, tri_unsqueeze(graph, b, -1)), -1);
    if (o.no_bias) return y;
    tri_value bias = tri_parameter(graph, nn_parameter_name(graph, name, "bias"),
                                   tri_shape_of(o.features), nn_init_or(o.bias_init, uniform));
    return tri_add(graph, y, bias);
}

tri_value tri_prelu(tri_graph *graph, const char *name, tri_value x, int64_t count) {
    if (!tri_layer_begin(graph, name)) return none();
    if (!takes(graph, "prelu", name, x, 1)) return none();
    tri_shape shape = tri_value_shape(graph, x),
              own = {.rank = shape.rank > 1 ? shape.rank - 1 : 1};
    for (int i = 0; i < own.rank; i++) own.dims[i] = 1;
    if (count != 1 && (shape.rank < 2 || count != shape.dims[1])) {
        tri_graph_fail(graph,
                       "prelu %s: the number of slopes must be 1 or that of channels, not %" PRId64,
                       name, count);
        return none();
    }
    own.dims[0] = count;
    tri_value weight =
        tri_parameter(graph, nn_parameter_name(graph, name, "weight"), tri_shape_of(count),
                      (tri_init){.kind = TRI_INIT_CONSTANT, .value = 0.25});
    return tri_map(graph, "x, w -> x > 0 ? x : w * x", x, tri_reshape(graph, weight, own));
}

tri_value tri_softmin(tri_graph *graph, tri_value x, int axis) {
    return tri_softmax(graph, tri_neg(graph, x), axis);
}

tri_value tri_lp_pool(tri_graph *graph, tri_value x, double p, tri_pool_options o) {
    tri_value (*const pools[])(tri_graph *, tri_value,
                               tri_pool_options) = {tri_avg_pool1d, tri_avg_pool2d, tri_avg_pool3d};
    if (!takes(graph, "lp_pool", NULL, x, 3)) return none();
    int axes = tri_value_shape(graph, x).rank - 2;
    if (axes > 3 || !(p > 0 && isfinite(p)) || o.padding || o.pads[0] || o.pads[1] || o.pads[2]) {
        tri_graph_fail(graph, "lp_pool: needs p > 0, at most 3 axes and no padding");
        return none();
    }
    double elements = 1;
    for (int i = 0; i < axes; i++) elements *= (double)(o.kernels[i] ? o.kernels[i] : o.kernel);
    tri_value mean = pools[axes - 1](graph, tri_pow_scalar(graph, x, p), o);
    return tri_pow_scalar(graph, tri_mul_scalar(graph, mean, elements), 1 / p);
}

tri_value tri_local_response_norm(tri_graph *graph, tri_value x,
                                  tri_local_response_norm_options o) {
    if (!takes(graph, "local_response_norm", NULL, x, 3)) return none();
    if (o.size < 1) {
        tri_graph_fail(graph, "local_response_norm: the size must be at least 1, not %" PRId64,
                       o.size);
        return none();
    }
    tri_value squares = tri_pad(graph, tri_square(graph, x), 1, o.size / 2, (o.size - 1) / 2);
    tri_value mean =
        tri_mean(graph, tri_unfold(graph, squares, 1, o.size, 1), (int[]){-1}, 1, false);
    const char *formula =
        tri_name(graph, "x, m -> x / (%.17g + %.17g * m) ^ %.17g", o.k != 0 ? o.k : 1,
                 o.alpha != 0 ? o.alpha : 1e-4, o.beta != 0 ? o.beta : 0.75);
    return tri_map(graph, formula, x, mean);
}

tri_value tri_channel_shuffle(tri_graph *graph, tri_value x, int64_t groups) {
    if (!takes(graph, "channel_shuffle", NULL, x, 2)) return none();
    tri_shape shape = tri_value_shape(graph, x);
    tri_shape parts = tri_shape_of(shape.dims[0], groups, 0, -1);
    if (groups < 1 || shape.dims[1] % groups != 0) {
        tri_graph_fail(graph,
                       "channel_shuffle: %" PRId64 " groups do not divide %" PRId64 " channels",
                       groups, shape.dims[1]);
        return none();
    }
    parts.dims[2] = shape.dims[1] / groups;
    return tri_reshape(graph, tri_transpose(graph, tri_reshape(graph, x, parts), 1, 2), shape);
}

tri_value tri_pad_constant(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after,
                           double value) {
    if (value == 0) return tri_pad(graph, x, axis, before, after);
    // Where the padded x ends, ones that are padded alike are 0.
    tri_value inside = tri_pad(graph, ones_like(graph, x), axis, before, after);
    const char *formula = tri_name(graph, "x, i -> i > 0 ? x : %.17g", value);
    return tri_map(graph, formula, tri_pad(graph, x, axis, before, after), inside);
}

// What stands before and behind x along an axis in each mode.
typedef enum pad_mode { PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR } pad_mode;

static tri_value pad_end(tri_graph *g, tri_value x, int axis, int64_t count, bool behind,
                         pad_mode mode) {
    tri_shape shape = tri_value_shape(g, x);
    int64_t size = shape.dims[axis];
    if (mode == PAD_CIRCULAR)
        return behind ? tri_slice(g, x, axis, 0, count, 1)
                      : tri_slice(g, x, axis, size - count, size, 1);
    if (mode == PAD_REFLECT)
        return tri_flip(g,
                        behind ? tri_slice(g, x, axis, size - 1 - count, size - 1, 1)
                               : tri_slice(g, x, axis, 1, count + 1, 1),
                        axis);
    shape.dims[axis] = count;
    return tri_expand(g, tri_slice(g, x, axis, behind ? size - 1 : 0, behind ? size : 1, 1), shape);
}

static tri_value pad(tri_graph *g, const char *name, tri_value x, int axis, int64_t before,
                     int64_t after, pad_mode mode) {
    if (!takes(g, name, NULL, x, 1)) return none();
    tri_shape shape = tri_value_shape(g, x);
    if ((axis = nn_axis(g, name, axis, shape.rank)) < 0) return none();
    int64_t counts[] = {before, after}, most = shape.dims[axis] - (mode == PAD_REFLECT);
    tri_value parts[3];
    int count = 0;
    for (int i = 0; i < 2; i++) {
        if (counts[i] < 0 || (mode != PAD_REPLICATE && counts[i] > most)) {
            tri_graph_fail(g, "%s: cannot add %" PRId64 " elements to the %" PRId64 " of axis %d",
                           name, counts[i], shape.dims[axis], axis);
            return none();
        }
        if (i == 1) parts[count++] = x;
        if (counts[i] > 0) parts[count++] = pad_end(g, x, axis, counts[i], i == 1, mode);
    }
    return tri_concat(g, parts, count, axis);
}

tri_value tri_pad_reflect(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after) {
    return pad(graph, "pad_reflect", x, axis, before, after, PAD_REFLECT);
}

tri_value tri_pad_replicate(tri_graph *graph, tri_value x, int axis, int64_t before,
                            int64_t after) {
    return pad(graph, "pad_replicate", x, axis, before, after, PAD_REPLICATE);
}

tri_value tri_pad_circular(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after) {
    return pad(graph, "pad_circular", x, axis, before, after, PAD_CIRCULAR);
}

// The windows of images along rows (0) and columns (1).
typedef struct windows {
    int64_t kernel[2], stride[2], dilation[2], before[2], after[2];
    int64_t count[2]; // along each axis
} windows;

// Finds the windows of images [.., H, W]. False: the graph has failed.
static bool find_windows(tri_graph *g, const char *name, const tri_conv_options *o,
                         const int64_t size[2], windows *w) {
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        w->kernel[i] = o->kernels[i] ? o->kernels[i] : o->kernel;
        w->stride[i] = o->strides[i] ? o->strides[i] : o->stride ? o->stride : 1;
        w->dilation[i] = o->dilations[i] ? o->dilations[i] : o->dilation ? o->dilation : 1;
        w->before[i] = o->padding + o->pads[i][0];
        w->after[i] = o->padding + o->pads[i][1];
        fits = fits && w->kernel[i] > 0 && w->stride[i] > 0 && w->dilation[i] > 0;
        fits = fits && w->before[i] >= 0 && w->after[i] >= 0;
        int64_t left =
            size[i] + w->before[i] + w->after[i] - w->dilation[i] * (w->kernel[i] - 1) - 1;
        fits = fits && left >= 0;
        w->count[i] = fits ? left / w->stride[i] + 1 : 0;
    }
    if (!fits)
        tri_graph_fail(g, "%s: no window fits into images of %" PRId64 " x %" PRId64, name, size[0],
                       size[1]);
    return fits;
}

// Windows of rows (axis 0) or columns (1) along `at`: the axis counts them, and a new last axis has
// their elements.
static tri_value along(tri_graph *g, tri_value x, int at, const windows *w, int axis) {
    if (w->before[axis] || w->after[axis]) x = tri_pad(g, x, at, w->before[axis], w->after[axis]);
    x = tri_unfold(g, x, at, w->dilation[axis] * (w->kernel[axis] - 1) + 1, w->stride[axis]);
    return w->dilation[axis] > 1 ? tri_slice(g, x, -1, 0, 0, w->dilation[axis]) : x;
}

tri_value tri_unfold_images(tri_graph *graph, tri_value x, tri_conv_options o) {
    windows w;
    if (!takes(graph, "unfold_images", NULL, x, 4)) return none();
    tri_shape shape = tri_value_shape(graph, x);
    if (!find_windows(graph, "unfold_images", &o, &shape.dims[2], &w)) return none();
    int64_t n = shape.dims[0], c = shape.dims[1] * w.kernel[0], rows = w.count[0];
    x = tri_permute(graph, along(graph, x, 2, &w, 0), (int[]){0, 1, 4, 2, 3});
    x = along(graph, tri_reshape(graph, x, tri_shape_of(n, c * rows, shape.dims[3])), 2, &w, 1);
    x = tri_reshape(graph, x, tri_shape_of(n, c, rows, w.count[1], w.kernel[1]));
    x = tri_permute(graph, x, (int[]){0, 1, 4, 2, 3});
    return tri_reshape(graph, x, tri_shape_of(n, c * w.kernel[1], rows * w.count[1]));
}

// Adding columns is the gradient of a convolution whose channels are the elements of a window.
tri_value tri_fold_images(tri_graph *graph, tri_value x, int64_t height, int64_t width,
                          tri_conv_options o) {
    const int64_t size[2] = {height, width};
    windows w;
    if (!takes(graph, "fold_images", NULL, x, 3)) return none();
    if (!find_windows(graph, "fold_images", &o, size, &w)) return none();
    tri_shape shape = tri_value_shape(graph, x);
    int64_t elements = w.kernel[0] * w.kernel[1], channels = shape.dims[1] / elements;
    bool fits = shape.rank == 3 && shape.dims[1] == channels * elements &&
                shape.dims[2] == w.count[0] * w.count[1];
    if (!fits || w.before[0] != w.after[0] || w.before[1] != w.after[1]) {
        char text[128];
        tri_graph_fail(graph,
                       "fold_images: needs [N, C * %" PRId64 ", %" PRId64
                       "] and as much padding on both sides, not %s",
                       elements, w.count[0] * w.count[1],
                       tri_shape_text(&shape, text, sizeof text));
        return none();
    }
    float *ones = TRI_NEW_ARRAY(graph->arena, float, channels *elements *elements);
    for (int64_t c = 0; c < channels * elements; c++) ones[c * elements + c % elements] = 1;
    tri_value weight = tri_constant(
        graph, tri_name(graph, "fold_%dx%dx%d", (int)channels, (int)w.kernel[0], (int)w.kernel[1]),
        tri_shape_of(channels * elements, 1, w.kernel[0], w.kernel[1]), ones);
    tri_conv2d_grad_attr attr = {.conv = {.stride = {w.stride[0], w.stride[1]},
                                          .padding = {w.before[0], w.before[1]},
                                          .dilation = {w.dilation[0], w.dilation[1]},
                                          .groups = channels},
                                 .shape = tri_shape_of(shape.dims[0], channels, height, width)};
    x = tri_reshape(graph, x,
                    tri_shape_of(shape.dims[0], channels * elements, w.count[0], w.count[1]));
    return tri_node_add(graph, &tri_op_conv2d_grad_input, (tri_value[]){x, weight}, 2, &attr, "");
}

tri_value tri_pairwise_distance(tri_graph *graph, tri_value a, tri_value b, double p, double eps) {
    if (p == 0) p = 2;
    const char *formula =
        tri_name(graph, "a, b -> abs(a - b + %.17g) ^ %.17g", eps != 0 ? eps : 1e-6, p);
    tri_value sum = tri_sum(graph, tri_map(graph, formula, a, b), (int[]){-1}, 1, false);
    return tri_pow_scalar(graph, sum, 1 / p);
}

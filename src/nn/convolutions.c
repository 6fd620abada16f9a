// The layers that convolve, in one to three dimensions, and their transposes. All are built of the
// op conv2d and its gradient: one dimension is two with a height of 1, and the taps of a depth are
// channels. A transpose is the gradient of a convolution with respect to its input.
#include "base/quantity.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

// A layer with the numbers of its axes: depth, height and width, of which a layer with fewer axes
// has the last ones.
typedef struct conv {
    tri_graph *graph;
    const char *layer, *name;
    int axes;
    bool transposed, direct;
    tri_shape x; // as the layer gets it, [N, C, …]
    int64_t in, out, groups;
    // more: what a transpose adds to its result's size.
    int64_t kernel[3], stride[3], dilation[3], pads[3][2], more[3];
    int64_t size[3], result[3]; // of x and of the result
} conv;

static int64_t or_one(int64_t value) { return value ? value : 1; }

// Sets the numbers of axis i, of which `o` has those of the layer's axis number k.
static void set_axis(conv *c, int i, int k, const tri_conv_options *o) {
    c->kernel[i] = o->kernels[k] ? o->kernels[k] : o->kernel;
    c->stride[i] = or_one(o->strides[k] ? o->strides[k] : o->stride);
    c->dilation[i] = or_one(o->dilations[k] ? o->dilations[k] : o->dilation);
    c->size[i] = c->x.dims[2 + k];
    for (int side = 0; side < 2; side++) c->pads[i][side] = o->padding + o->pads[k][side];
    c->more[i] = o->output_padding + o->output_paddings[k];
    if (!o->same) return;
    int64_t reach = c->dilation[i] * (c->kernel[i] - 1);
    c->pads[i][0] = reach / 2;
    c->pads[i][1] = reach - reach / 2;
}

static bool in_range(int64_t value, int64_t least) {
    return value >= least && value <= TRI_MAX_WINDOW;
}

// Checks the numbers of axis i and computes the size of the result along it.
static bool check_axis(conv *c, int i) {
    int64_t kernel = c->kernel[i], stride = c->stride[i], dilation = c->dilation[i];
    const int64_t *pads = c->pads[i];
    if (!in_range(kernel, 1) || !in_range(stride, 1) || !in_range(dilation, 1) ||
        !in_range(pads[0], 0) || !in_range(pads[1], 0) || !in_range(c->more[i], 0)) {
        tri_graph_fail(c->graph,
                       "%s %s: kernel, stride and dilation must be 1 to %d and padding 0 to %d, "
                       "not %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " and %" PRId64,
                       c->layer, c->name, TRI_MAX_WINDOW, TRI_MAX_WINDOW, kernel, stride, dilation,
                       pads[0], pads[1]);
        return false;
    }
    int64_t reach = dilation * (kernel - 1) + 1, around = pads[0] + pads[1];
    bool wide = c->more[i] > 0 && c->more[i] >= stride && c->more[i] >= dilation;
    if (wide || (c->more[i] > 0 && !c->transposed)) {
        tri_graph_fail(c->graph,
                       "%s %s: an output padding of %" PRId64 " needs a transpose with a larger "
                       "stride or dilation",
                       c->layer, c->name, c->more[i]);
        return false;
    }
    c->result[i] = c->transposed ? (c->size[i] - 1) * stride - around + reach + c->more[i]
                   : c->size[i] + around < reach ? 0
                                                 : (c->size[i] + around - reach) / stride + 1;
    if (c->size[i] >= 1 && c->result[i] >= 1) return true;
    tri_graph_fail(c->graph,
                   "%s %s: a kernel of %" PRId64 " with dilation %" PRId64
                   " has no result of %" PRId64 " with padding %" PRId64 " and %" PRId64,
                   c->layer, c->name, kernel, dilation, c->size[i], pads[0], pads[1]);
    return false;
}

// Whether `o` has numbers for axes that the layer has not, or paddings beside `same`.
static bool has_idle_numbers(const tri_conv_options *o, int axes) {
    for (int k = 0; k < 3; k++) {
        bool pads = o->pads[k][0] || o->pads[k][1];
        if (o->same && pads) return true;
        if (k >= axes &&
            (pads || o->kernels[k] || o->strides[k] || o->dilations[k] || o->output_paddings[k]))
            return true;
    }
    return false;
}

// Begins a layer of x. False: the graph has failed, or there is nothing to do.
static bool begin_zeros(conv *c, const char *layer, tri_value x, int axes,
                        const tri_conv_options *o) {
    static const char *const shapes[] = {"[N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]"};
    char text[128];
    if (!tri_layer_begin(c->graph, c->name)) return false;
    if (!tri_graph_check_input(c->graph, layer, c->name, x)) return false;
    c->layer = layer;
    c->axes = axes;
    c->x = tri_value_shape(c->graph, x);
    c->groups = or_one(o->groups);
    c->in = c->x.dims[1];
    c->out = o->channels;
    c->direct = c->graph->options.direct_convolution;
    if (c->x.rank != axes + 2 || c->in < 1 || c->out < 1 || c->groups < 1 || c->in % c->groups ||
        c->out % c->groups || (o->same && (c->transposed || o->padding))) {
        tri_graph_fail(c->graph,
                       "%s %s: needs %s with C and channels divisible by groups, and padding only "
                       "without `same`, not %s with channels %" PRId64 ", groups %" PRId64
                       ", padding %" PRId64,
                       layer, c->name, shapes[axes - 1], tri_shape_text(&c->x, text, sizeof text),
                       c->out, c->groups, o->padding);
        return false;
    }
    if (has_idle_numbers(o, axes)) {
        tri_graph_fail(c->graph,
                       "%s %s: its options have numbers without effect: pads beside `same`, or "
                       "those of more than %s",
                       layer, c->name, tri_counted(axes, "axis"));
        return false;
    }
    for (int i = 0; i < 3; i++) {
        c->kernel[i] = c->stride[i] = c->dilation[i] = c->size[i] = c->result[i] = 1;
        if (i < 3 - axes) continue;
        set_axis(c, i, i - (3 - axes), o);
        if (!check_axis(c, i)) return false;
        if (o->same && c->stride[i] != 1) {
            tri_graph_fail(c->graph, "%s %s: `same` needs a stride of 1", layer, c->name);
            return false;
        }
    }
    return true;
}

// Begins a layer of *x, which is padded first where it is not padded by zeros.
static bool begin(conv *c, const char *layer, tri_value *x, int axes, const tri_conv_options *o) {
    tri_value (*const pads[])(tri_graph *, tri_value, int, int64_t, int64_t) = {
        tri_pad, tri_pad_reflect, tri_pad_replicate, tri_pad_circular};
    if (!begin_zeros(c, layer, *x, axes, o)) return false;
    if ((int)o->padding_mode < 0 || o->padding_mode > TRI_PADDING_CIRCULAR ||
        (c->transposed && o->padding_mode != TRI_PADDING_ZEROS)) {
        tri_graph_fail(c->graph, "%s %s: there is no padding mode %d", layer, c->name,
                       (int)o->padding_mode);
        return false;
    }
    if (o->padding_mode == TRI_PADDING_ZEROS) return true;
    for (int i = 3 - axes; i < 3; i++) {
        if (c->pads[i][0] + c->pads[i][1] > 0)
            *x = pads[o->padding_mode](c->graph, *x, 2 + i - (3 - axes), c->pads[i][0],
                                       c->pads[i][1]);
        c->size[i] += c->pads[i][0] + c->pads[i][1];
        c->pads[i][0] = c->pads[i][1] = 0;
    }
    c->x = tri_value_shape(c->graph, *x);
    return c->graph->status == TRI_OK;
}

// Makes weight [out, in / groups, …] (of a transpose [in, out / groups, …]) and bias. The initial
// numbers follow PyTorch, which takes axis 1 of the weight for the inputs also in a transpose.
static void make_parameters(const conv *c, const tri_conv_options *o, tri_value *weight,
                            tri_value *bias) {
    tri_shape shape = {.rank = c->axes + 2};
    shape.dims[0] = c->transposed ? c->in : c->out;
    shape.dims[1] = (c->transposed ? c->out : c->in) / c->groups;
    int64_t fan_in = shape.dims[1];
    for (int k = 0; k < c->axes; k++) {
        shape.dims[2 + k] = c->kernel[3 - c->axes + k];
        fan_in *= shape.dims[2 + k];
    }
    tri_init init = nn_fan_in_uniform(fan_in);
    *weight = nn_weight(c->graph, c->layer, c->name, o->weight_value, shape,
                        nn_init_or(o->weight_init, init));
    *bias = (tri_value){0};
    if (!o->no_bias)
        *bias = nn_bias(c->graph, c->layer, c->name, o->bias_value, tri_shape_of(c->out),
                        nn_init_or(o->bias_init, init));
}

static int64_t least_pad(const conv *c, int i) {
    return c->pads[i][0] < c->pads[i][1] ? c->pads[i][0] : c->pads[i][1];
}

static tri_conv2d_attr attr_of(const conv *c) {
    return (tri_conv2d_attr){.stride = {c->stride[1], c->stride[2]},
                             .padding = {least_pad(c, 1), least_pad(c, 2)},
                             .dilation = {c->dilation[1], c->dilation[2]},
                             .groups = c->groups,
                             .direct = c->direct};
}

// Convolves images. What one side is padded more than the other is padded first.
static tri_value convolve(const conv *c, tri_value x, tri_value weight, tri_value bias) {
    for (int i = 1; i < 3; i++)
        if (c->pads[i][0] != c->pads[i][1])
            x = tri_pad(c->graph, x, i + 1, c->pads[i][0] - least_pad(c, i),
                        c->pads[i][1] - least_pad(c, i));
    tri_conv2d_attr attr = attr_of(c);
    return tri_node_add(c->graph, &tri_op_conv2d, (tri_value[]){x, weight, bias}, 3, &attr,
                        c->name);
}

// The transpose of `convolve`, which makes images of `channels` channels. Where the result has more
// elements than the convolution's padding and stride explain, all of them are computed, without
// padding, and then cut.
static tri_value spread(const conv *c, tri_value x, tri_value weight, int64_t channels) {
    tri_conv2d_grad_attr attr = {.conv = attr_of(c)};
    attr.shape = tri_shape_of(tri_value_shape(c->graph, x).dims[0], channels, 0, 0);
    int64_t first[2], size[2];
    for (int k = 0; k < 2; k++) {
        int i = k + 1;
        bool alike = c->pads[i][0] == c->pads[i][1] && c->more[i] < c->stride[i];
        size[k] = c->result[i];
        first[k] = alike ? 0 : c->pads[i][0];
        attr.shape.dims[2 + k] = size[k];
        if (alike) continue;
        attr.conv.padding[k] = 0;
        attr.shape.dims[2 + k] =
            (c->size[i] - 1) * c->stride[i] + c->dilation[i] * (c->kernel[i] - 1) + 1;
    }
    tri_value y = tri_node_add(c->graph, &tri_op_conv2d_grad_input, (tri_value[]){x, weight}, 2,
                               &attr, c->name);
    for (int k = 0; k < 2; k++)
        if (first[k] != 0 || size[k] != attr.shape.dims[2 + k])
            y = tri_pad(c->graph, y, 2 + k, -first[k], size[k] + first[k] - attr.shape.dims[2 + k]);
    return y;
}

static tri_value with_bias(const conv *c, tri_value y, tri_value bias) {
    if (!tri_value_is(bias)) return y;
    tri_shape shape = c->axes == 3 ? tri_shape_of(c->out, 1, 1, 1) : tri_shape_of(c->out, 1, 1);
    bias = tri_reshape(c->graph, bias, shape);
    return tri_map(c->graph, "y, bias -> y + bias", y, bias);
}

// The shape of images [n, channels, H, W] without the height, if the layer has one axis only.
static tri_shape as_layer(const conv *c, int64_t channels, const int64_t *size) {
    if (c->axes == 1) return tri_shape_of(c->x.dims[0], channels, size[2]);
    return tri_shape_of(c->x.dims[0], channels, size[1], size[2]);
}

// A layer of one or two axes.
static tri_value flat(const conv *c, tri_value x, const tri_conv_options *o) {
    tri_value weight, bias;
    make_parameters(c, o, &weight, &bias);
    if (c->axes == 1) {
        tri_shape w = tri_value_shape(c->graph, weight);
        weight = tri_reshape(c->graph, weight, tri_shape_of(w.dims[0], w.dims[1], 1, c->kernel[2]));
        x = tri_reshape(c->graph, x, tri_shape_of(c->x.dims[0], c->in, 1, c->size[2]));
    }
    tri_value y = c->transposed ? with_bias(c, spread(c, x, weight, c->out), bias)
                                : convolve(c, x, weight, bias);
    return c->axes == 1 ? tri_reshape(c->graph, y, as_layer(c, c->out, c->result)) : y;
}

tri_value tri_conv1d(tri_graph *graph, const char *name, tri_value x, tri_conv_options o) {
    conv c = {.graph = graph, .name = name};
    return begin(&c, "conv1d", &x, 1, &o) ? flat(&c, x, &o) : (tri_value){0};
}

tri_value tri_conv2d(tri_graph *graph, const char *name, tri_value x, tri_conv_options o) {
    conv c = {.graph = graph, .name = name};
    return begin(&c, "conv2d", &x, 2, &o) ? flat(&c, x, &o) : (tri_value){0};
}

tri_value tri_conv_transpose1d(tri_graph *graph, const char *name, tri_value x,
                               tri_conv_options o) {
    conv c = {.graph = graph, .name = name, .transposed = true};
    return begin(&c, "conv_transpose1d", &x, 1, &o) ? flat(&c, x, &o) : (tri_value){0};
}

tri_value tri_conv_transpose2d(tri_graph *graph, const char *name, tri_value x,
                               tri_conv_options o) {
    conv c = {.graph = graph, .name = name, .transposed = true};
    return begin(&c, "conv_transpose2d", &x, 2, &o) ? flat(&c, x, &o) : (tri_value){0};
}

// Of each frame along a convolution's depth, which frames its taps read, one behind the other: the
// frames of x, which is padded, or of a transpose those that it adds to.
static tri_value frames_of_taps(const conv *c) {
    tri_graph *g = c->graph;
    int64_t frames = c->transposed ? c->size[0] : c->result[0], taps = c->kernel[0];
    const char *formula =
        tri_name(g, "d, t -> d * %" PRId64 " + t * %" PRId64, c->stride[0], c->dilation[0]);
    tri_value d = tri_reshape(g, tri_arange(g, frames), tri_shape_of(frames, 1));
    return tri_reshape(g, tri_map(g, formula, d, tri_arange(g, taps)), tri_shape_of(frames * taps));
}

// Exchanges axes 1 and 2 of parts [n, first, second, pixels], if channels are divided into groups,
// which have all taps of their channels.
static tri_value by_groups(const conv *c, tri_value x, int64_t n, int64_t first, int64_t second,
                           int64_t pixels) {
    if (c->groups == 1) return x;
    x = tri_reshape(c->graph, x, tri_shape_of(n, first, second, pixels));
    return tri_transpose(c->graph, x, 1, 2);
}

// Volumes: frames are samples of a convolution of images, and what the taps of the depth read are
// its channels.
static tri_value convolve_volumes(const conv *c, tri_value x, tri_value weight, tri_value bias) {
    tri_graph *g = c->graph;
    int64_t taps = c->kernel[0], n = c->x.dims[0], frames = n * c->result[0];
    if (c->pads[0][0] || c->pads[0][1]) x = tri_pad(g, x, 1, c->pads[0][0], c->pads[0][1]);
    x = tri_index_select(g, x, 1, frames_of_taps(c));
    x = by_groups(c, x, frames, taps, c->in, c->size[1] * c->size[2]);
    x = tri_reshape(g, x, tri_shape_of(frames, taps * c->in, c->size[1], c->size[2]));
    return convolve(c, x, weight, bias);
}

// The transpose: the frames that the taps make are added where they lie.
static tri_value spread_volumes(const conv *c, tri_value x, tri_value weight) {
    tri_graph *g = c->graph;
    int64_t taps = c->kernel[0], n = c->x.dims[0], frames = n * c->size[0];
    int64_t pixels = c->result[1] * c->result[2], first = c->pads[0][0];
    int64_t all = (c->size[0] - 1) * c->stride[0] + c->dilation[0] * (taps - 1) + 1;
    x = tri_reshape(g, x, tri_shape_of(frames, c->in, c->size[1], c->size[2]));
    x = spread(c, x, weight, c->out * taps);
    x = by_groups(c, x, frames, c->out, taps, pixels);
    x = tri_reshape(g, x, tri_shape_of(n, c->size[0] * taps, c->out, pixels));
    tri_value index = tri_reshape(g, frames_of_taps(c), tri_shape_of(1, c->size[0] * taps, 1, 1));
    tri_scatter_attr attr = {
        .kind = TRI_SCATTER_ADD, .axis = 1, .shape = tri_shape_of(n, all, c->out, pixels)};
    x = tri_node_add(g, &tri_op_scatter, (tri_value[]){index, x, {0}}, 3, &attr, c->name);
    return tri_pad(g, x, 1, -first, c->result[0] + first - all);
}

// A layer of three axes.
static tri_value volume(const conv *c, tri_value x, const tri_conv_options *o) {
    static const int frames_first[] = {0, 2, 1, 3, 4}; // and back
    tri_graph *g = c->graph;
    tri_value weight, bias;
    make_parameters(c, o, &weight, &bias);
    tri_shape shape = tri_value_shape(g, weight);
    if (c->groups == 1) weight = tri_permute(g, weight, frames_first);
    weight = tri_reshape(
        g, weight,
        tri_shape_of(shape.dims[0], shape.dims[1] * c->kernel[0], c->kernel[1], c->kernel[2]));
    x = tri_permute(g, x, frames_first);
    x = c->transposed ? spread_volumes(c, x, weight) : convolve_volumes(c, x, weight, bias);
    x = tri_reshape(g, x,
                    tri_shape_of(c->x.dims[0], c->result[0], c->out, c->result[1], c->result[2]));
    x = tri_permute(g, x, frames_first);
    return c->transposed ? with_bias(c, x, bias) : x;
}

tri_value tri_conv3d(tri_graph *graph, const char *name, tri_value x, tri_conv_options o) {
    conv c = {.graph = graph, .name = name};
    return begin(&c, "conv3d", &x, 3, &o) ? volume(&c, x, &o) : (tri_value){0};
}

tri_value tri_conv_transpose3d(tri_graph *graph, const char *name, tri_value x,
                               tri_conv_options o) {
    conv c = {.graph = graph, .name = name, .transposed = true};
    return begin(&c, "conv_transpose3d", &x, 3, &o) ? volume(&c, x, &o) : (tri_value){0};
}

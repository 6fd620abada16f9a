// The layers of the networks of random_net.c: each primitive draws its options and shapes. Sizes
// that fit into a value are computed here, so that no layer refuses them.
#include "random_net.h"

// How a matrix begins, as PyTorch's torch.nn.init.
static tri_init draw_init(net *n) {
    static const tri_init_kind kinds[] = {
        TRI_INIT_UNIFORM,       TRI_INIT_NORMAL,          TRI_INIT_TRUNC_NORMAL,
        TRI_INIT_XAVIER_NORMAL, TRI_INIT_XAVIER_UNIFORM,  TRI_INIT_KAIMING_NORMAL,
        TRI_INIT_ORTHOGONAL,    TRI_INIT_KAIMING_UNIFORM, TRI_INIT_ONES,
    };
    return (tri_init){.kind = kinds[net_draw(n, 0, 8)],
                      .low = -0.4,
                      .high = 0.6,
                      .std = 0.3,
                      .fan_out = net_chance(n, 50)};
}

// Parameters, buffers and constants of the network's own, for each element of a sample or
// broadcast.
static tri_value own(net *n, tri_value x) {
    tri_graph *g = n->graph;
    float values[NET_ELEMENTS];
    int kind = (int)net_draw(n, 0, 5);
    x = net_as(n, x, (int)net_draw(n, 3, 5));
    tri_shape shape = net_shape(n, x), part = {.rank = shape.rank - 1};
    int64_t last = shape.dims[shape.rank - 1];
    if (net_elements(n, x) > NET_ELEMENTS) return (tri_value){0};
    if (kind == 5) {
        if (last > 40) return (tri_value){0};
        tri_shape matrix = tri_shape_of(last, net_draw(n, 1, 5));
        tri_value weight = tri_parameter(g, net_name(n), matrix, draw_init(n));
        return tri_matmul(g, net_tamed(n, x), weight);
    }
    for (int i = 0; i < part.rank; i++) part.dims[i] = net_chance(n, 40) ? 1 : shape.dims[i + 1];
    for (int i = 0; i < NET_ELEMENTS; i++) values[i] = (float)(i % 5 - 2) * 0.25f;
    tri_init init = part.rank > 1 && part.dims[part.rank - 1] > 1
                        ? draw_init(n)
                        : (tri_init){.kind = TRI_INIT_VALUES, .values = values};
    const char *name = net_name(n);
    tri_value w = kind == 0   ? tri_constant(g, name, part, values)
                  : kind == 1 ? tri_register_buffer(g, name, part, init)
                              : tri_parameter(g, name, part, init);
    if (kind == 2) { // such as the token of a class, in front of the others
        int axis = (int)net_draw(n, 1, shape.rank - 1);
        for (int i = 1; i < shape.rank; i++)
            if (i != axis) part.dims[i - 1] = shape.dims[i];
        tri_shape whole = {.rank = shape.rank, .dims = {shape.dims[0]}};
        for (int i = 1; i < shape.rank; i++) whole.dims[i] = part.dims[i - 1];
        return tri_concat(g, (tri_value[]){tri_expand(g, w, whole), x}, 2, axis);
    }
    return net_chance(n, 50) ? tri_add(g, x, w) : tri_mul(g, x, w);
}

// A parameter that several blocks read.
static tri_value scale(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_init init = {.kind = TRI_INIT_CONSTANT, .value = 0.7};
    tri_value w = tri_parameter(g, "scale", tri_shape_of(1), init);
    return tri_mul(g, net_shape(n, x).rank < 2 ? tri_unsqueeze(g, x, 1) : x, w);
}

// Draws the numbers of a convolution's axes. Returns how many elements a channel of its result has;
// 0: too many, or none.
static int64_t draw_axes(net *n, tri_shape shape, bool transposed, tri_conv_options *o) {
    int64_t elements = 1;
    o->same = !transposed && net_chance(n, 20);
    for (int k = 0; k + 2 < shape.rank; k++) {
        int64_t size = shape.dims[2 + k], around = 0;
        int64_t kernel = o->kernels[k] = net_draw(n, 1, 4);
        int64_t dilation = o->dilations[k] = net_draw(n, 1, net_chance(n, 30) ? 3 : 1);
        int64_t stride = o->strides[k] = o->same ? 1 : net_draw(n, 1, net_chance(n, 50) ? 3 : 1);
        int64_t reach = dilation * (kernel - 1) + 1, most = reach < 3 ? reach : 3;
        for (int side = 0; !o->same && side < 2; side++)
            around += o->pads[k][side] = net_draw(n, 0, most - 1);
        int64_t largest = (stride > dilation ? stride : dilation) - 1;
        if (transposed) o->output_paddings[k] = net_draw(n, 0, largest);
        int64_t result = transposed ? (size - 1) * stride - around + reach + o->output_paddings[k]
                         : o->same  ? size
                         : size + around < reach ? 0
                                                 : (size + around - reach) / stride + 1;
        elements *= result < 0 ? 0 : result;
    }
    return elements;
}

static tri_value conv(net *n, tri_value x, int axes, bool transposed) {
    tri_graph *g = n->graph;
    tri_conv_options o = {.no_bias = net_chance(n, 30)};
    x = net_as(n, x, axes + 2);
    tri_shape shape = net_shape(n, x);
    int64_t elements = draw_axes(n, shape, transposed, &o), in = shape.dims[1];
    int64_t groups = o.groups = net_chance(n, 30) ? in : net_chance(n, 30) ? 2 : 1;
    if (in % groups) groups = o.groups = 1;
    o.channels = groups * net_draw(n, 1, groups > 3 ? 2 : 4);
    if (net_chance(n, 10)) o.channels = groups * 16;
    if (elements < 1 || elements * o.channels > NET_ELEMENTS) return (tri_value){0};
    const char *name = net_name(n);
    if (transposed)
        return axes == 1   ? tri_conv_transpose1d(g, name, x, o)
               : axes == 2 ? tri_conv_transpose2d(g, name, x, o)
                           : tri_conv_transpose3d(g, name, x, o);
    return axes == 1   ? tri_conv1d(g, name, x, o)
           : axes == 2 ? tri_conv2d(g, name, x, o)
                       : tri_conv3d(g, name, x, o);
}

// A linear layer whose weight is made of others.
static tri_value normed(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = net_as(n, x, (int)net_draw(n, 2, 4));
    tri_shape shape = net_shape(n, x), weight = tri_shape_of(0, shape.dims[shape.rank - 1]);
    tri_linear_options o = {.features = net_draw(n, 1, 7), .no_bias = net_chance(n, 50)};
    const char *name = net_name(n);
    weight.dims[0] = o.features;
    if (weight.dims[1] > 300) return (tri_value){0};
    if (net_chance(n, 50))
        o.weight_value = tri_weight_norm(g, name, weight, (int)net_draw(n, -1, 1), (tri_init){0});
    else
        o.weight_value =
            tri_spectral_norm(g, name, weight,
                              (tri_spectral_norm_options){.dim = (int)net_draw(n, 0, 1),
                                                          .iterations = net_draw(n, 1, 3)});
    return tri_linear_with(g, name, net_tamed(n, x), o);
}

static tri_value conv1d(net *n, tri_value x) { return conv(n, x, 1, false); }
static tri_value conv2d(net *n, tri_value x) { return conv(n, x, 2, false); }
static tri_value conv3d(net *n, tri_value x) { return conv(n, x, 3, false); }
static tri_value transposed(net *n, tri_value x) {
    return conv(n, x, (int)net_draw(n, 1, 3), true);
}

static tri_value pool(net *n, tri_value x) {
    tri_graph *g = n->graph;
    int axes = (int)net_draw(n, 1, 3);
    tri_pool_options o = {.exclude_padding = net_chance(n, 40), .ceil_mode = net_chance(n, 40)};
    x = net_as(n, x, axes + 2);
    tri_shape shape = net_shape(n, x);
    for (int k = 0; k < axes; k++) {
        int64_t size = shape.dims[2 + k];
        o.kernels[k] = net_draw(n, 1, size < 4 ? size : 4);
        o.strides[k] = net_draw(n, 0, 3);
        o.pads[k] = net_draw(n, 0, o.kernels[k] / 2);
    }
    bool is_average = !net_chance(n, 50);
    o.exclude_padding = o.exclude_padding && is_average;
    if (!is_average)
        return axes == 1   ? tri_max_pool1d(g, x, o)
               : axes == 2 ? tri_max_pool2d(g, x, o)
                           : tri_max_pool3d(g, x, o);
    return axes == 1   ? tri_avg_pool1d(g, x, o)
           : axes == 2 ? tri_avg_pool2d(g, x, o)
                       : tri_avg_pool3d(g, x, o);
}

// Images in which no channel is too large when each axis gets up to `most` elements.
static tri_value resized(net *n, tri_value x) {
    tri_graph *g = n->graph;
    int axes = (int)net_draw(n, 1, 3), kind = (int)net_draw(n, 0, 2);
    int64_t sizes[3] = {0}, elements;
    x = net_as(n, x, axes + 2);
    tri_shape shape = net_shape(n, x);
    elements = shape.dims[1];
    for (int k = 0; k < axes; k++) {
        sizes[k] = net_draw(n, 0, net_chance(n, 30) ? 9 : 4);
        elements *= sizes[k] ? sizes[k] : shape.dims[2 + k];
    }
    if (elements > NET_ELEMENTS) return (tri_value){0};
    if (kind == 0) return tri_adaptive_avg_pool(g, x, sizes);
    if (kind == 1) return tri_adaptive_max_pool(g, x, sizes);
    tri_interpolate_options o = {.mode = (tri_interpolate_mode)net_draw(n, 0, 4)};
    for (int k = 0; k < axes; k++) o.sizes[k] = sizes[k];
    bool smooth = o.mode == TRI_INTERPOLATE_LINEAR || o.mode == TRI_INTERPOLATE_CUBIC;
    o.align_corners = smooth && net_chance(n, 50);
    o.antialias = smooth && net_chance(n, 30);
    return tri_interpolate(g, x, o);
}

static tri_value norm(net *n, tri_value x) {
    tri_graph *g = n->graph;
    double eps = net_chance(n, 50) ? 0.1 : 1e-3;
    int kind = (int)net_draw(n, 0, 4);
    if (net_shape(n, x).rank < 2) x = tri_unsqueeze(g, x, 1);
    if (kind < 2) {
        int axes = (int)net_draw(n, 1, net_shape(n, x).rank - 1);
        bool plain = net_chance(n, 30);
        if (kind == 1)
            return tri_rms_norm_with(
                g, net_name(n), x,
                (tri_rms_norm_options){.eps = eps, .plain = plain, .axes = axes});
        return tri_layer_norm(
            g, net_name(n), x,
            (tri_layer_norm_options){
                .eps = eps, .plain = plain, .no_bias = net_chance(n, 30), .axes = axes});
    }
    if (kind == 4 && !n->norms) return (tri_value){0};
    x = net_as(n, x, (int)net_draw(n, 3, 5));
    int64_t channels = net_shape(n, x).dims[1], groups = net_draw(n, 1, channels);
    while (channels % groups) groups--;
    if (kind == 2)
        return tri_group_norm(
            g, net_name(n), x,
            (tri_group_norm_options){.groups = groups, .eps = eps, .plain = net_chance(n, 30)});
    tri_shape shape = net_shape(n, x);
    bool tracks = tri_shape_count(&shape) > shape.dims[0] * channels && net_chance(n, 30);
    if (kind == 3)
        return tri_instance_norm(g, net_name(n), x,
                                 (tri_instance_norm_options){.eps = eps,
                                                             .affine = net_chance(n, 50),
                                                             .tracks = tracks,
                                                             .cumulative = net_chance(n, 50)});
    if (net_chance(n, 50)) x = tri_flatten(g, x);
    return tri_batch_norm(g, net_name(n), x,
                          (tri_batch_norm_options){.eps = eps,
                                                   .plain = net_chance(n, 30),
                                                   .cumulative = net_chance(n, 30)});
}

static tri_value linear(net *n, tri_value x) {
    if (net_shape(n, x).rank < 2) x = tri_unsqueeze(n->graph, x, 1);
    return net_linear(n, x, net_draw(n, 1, net_chance(n, 50) ? 5 : 16));
}

// Two linear layers, whose features ranks may divide, with something between them.
static tri_value pair(net *n, tri_value x) {
    tri_graph *g = n->graph;
    const char *up = net_name(n), *down = net_name(n);
    if (net_shape(n, x).rank < 2) x = tri_unsqueeze(g, x, 1);
    if (net_chance(n, 30)) x = tri_flatten(g, x);
    tri_value y = tri_linear(g, up, x, 2 * net_draw(n, 1, 6));
    tri_split_layer(g, up, TRI_SPLIT_COLUMN);
    int64_t count = net_draw(n, 0, 2);
    for (int64_t i = 0; i < count; i++)
        y = net_chance(n, 70) ? net_function(n, y) : net_formula(n, y);
    if (net_chance(n, 20)) y = tri_dropout(g, net_name(n), y, 0.3);
    tri_shape shape = net_shape(n, y);
    if (net_chance(n, 20)) y = tri_silu_mul(g, y, net_to(n, x, shape));
    y = tri_linear(g, down, y, net_draw(n, 1, 9));
    if (net_chance(n, 80)) tri_split_layer(g, down, TRI_SPLIT_ROW);
    return y;
}

// A value of which ranks that divide layers have slices, along its axis 2.
static tri_value slices(net *n, tri_value x, int64_t parts, int64_t width) {
    tri_graph *g = n->graph;
    const char *name = net_name(n);
    tri_value y = tri_linear(g, name, x, parts * width);
    tri_split_layer(g, name, TRI_SPLIT_COLUMN);
    return tri_reshape(g, y, tri_shape_of(n->batch->size, net_shape(n, x).dims[1], parts, width));
}

// A value like it, which ranks have slices of or not.
static tri_value another(net *n, tri_value x, tri_shape shape) {
    return net_chance(n, 60) ? slices(n, x, shape.dims[2], shape.dims[3])
                             : net_to(n, net_value(n), shape);
}

// What ranks may compute on slices, or have to gather them for. `x` is where the values come from,
// y [N, T, parts, width] what is made of it.
static tri_value on_slices(net *n, tri_value x, tri_value y) {
    tri_graph *g = n->graph;
    tri_shape shape = net_shape(n, y);
    int axis = (int)net_draw(n, 1, 3);
    switch (net_draw(n, 0, 9)) {
    case 0:
        return tri_map(g, "a, b -> tanh(a) * b + 0.3 * a", y, another(n, x, shape));
    case 1:
        return tri_softmax(g, y, axis);
    case 2:
        return tri_add(g, y, tri_log_softmax_along(g, another(n, x, shape), axis));
    case 3:
        return tri_mul(g, y, tri_sum(g, net_tamed(n, another(n, x, shape)), &axis, 1, true));
    case 4:
        return tri_sub(g, y, tri_amax(g, another(n, x, shape), &axis, 1, true));
    case 5: // scores of each part, and what they weight
        return tri_matmul(g, tri_softmax(g, tri_matmul(g, y, tri_transpose(g, y, -1, -2)), -1),
                          another(n, x, shape));
    case 6:
        return tri_transpose(
            g,
            tri_matmul(g, tri_softmax(g, tri_transpose(g, y, 1, 3), net_chance(n, 50) ? 1 : -1),
                       tri_parameter(g, net_name(n), tri_shape_of(shape.dims[1], shape.dims[1]),
                                     (tri_init){.kind = TRI_INIT_NORMAL, .std = 0.3})),
            1, 3);
    case 7: // the parts as channels
        y = tri_reshape(g, y, tri_shape_of(shape.dims[0] * shape.dims[1], shape.dims[2], -1));
        y = tri_group_norm(
            g, net_name(n), y,
            (tri_group_norm_options){.groups = net_chance(n, 50) ? shape.dims[2] : 2, .eps = 0.1});
        return tri_reshape(g, y, shape);
    case 8:
        return net_chance(n, 50) ? tri_rms_norm(g, net_name(n), y, 0.1)
                                 : tri_cumsum(g, tri_softmax(g, y, axis), (int)net_draw(n, 1, 3));
    default: // a part for all, and each part by itself
        return tri_add(g, y, tri_slice(g, another(n, x, shape), axis, 0, 1, 1));
    }
}

static tri_value sliced(net *n, tri_value x) {
    tri_graph *g = n->graph;
    static const int64_t counts[] = {2, 4, 4, 12};
    int64_t parts = counts[net_draw(n, 0, 3)], width = net_draw(n, 1, 3);
    int64_t steps = net_draw(n, 1, 3);
    x = net_as(n, x, 3);
    tri_shape shape = net_shape(n, x);
    if (shape.dims[1] * parts * width > NET_ELEMENTS / 2 || shape.dims[2] > 60)
        return (tri_value){0};
    tri_value y = slices(n, x, parts, width);
    for (int64_t i = 0; i < steps; i++) y = on_slices(n, x, y);
    if (net_chance(n, 30)) return net_tamed(n, y);
    const char *name = net_name(n);
    y = tri_linear(g, name, tri_reshape(g, y, tri_shape_of(shape.dims[0], shape.dims[1], -1)), 3);
    if (net_chance(n, 80)) tri_split_layer(g, name, TRI_SPLIT_ROW);
    return y;
}

// Layers of which several share their parameters, in several blocks.
static tri_value shared(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = net_to(n, x, tri_shape_of(n->batch->size, net_draw(n, 1, 3), NET_WIDTH));
    if (net_chance(n, 30))
        return tri_layer_norm(g, "shared_norm", x, (tri_layer_norm_options){.eps = 0.1});
    return tri_linear(g, "shared", x, NET_WIDTH);
}

static tri_value matmul(net *n, tri_value x) {
    tri_graph *g = n->graph;
    int64_t size = n->batch->size, k, p = net_draw(n, 1, 5);
    x = net_as(n, x, (int)net_draw(n, 3, 5));
    tri_shape a = net_shape(n, x), b = a;
    k = a.dims[a.rank - 1];
    for (int i = 1; i < a.rank - 2; i++)
        if (net_chance(n, 40)) b.dims[i] = 1;
    if (k > 40 || net_elements(n, x) / k * p > NET_ELEMENTS) return (tri_value){0};
    x = net_tamed(n, x);
    if (net_chance(n, 15)) // a vector for each sample
        return tri_matmul(g, tri_reshape(g, x, tri_shape_of(size, -1, k)),
                          net_to(n, net_value(n), tri_shape_of(size, k, 1)));
    if (a.dims[a.rank - 2] < 20 && net_chance(n, 15))
        return tri_matmul(g, x, tri_transpose(g, x, -2, -1));
    bool turned = net_chance(n, 40);
    b.dims[b.rank - 2] = turned ? p : k;
    b.dims[b.rank - 1] = turned ? k : p;
    tri_value y = net_tamed(n, net_to(n, net_value(n), b));
    if (turned) y = tri_transpose(g, y, -1, -2);
    return net_chance(n, 70)
               ? tri_matmul(g, x, y)
               : tri_matmul(g, tri_transpose(g, y, -1, -2), tri_transpose(g, x, -1, -2));
}

// What the heads of an attention read: a linear layer of x [N, T, F].
static tri_value heads(net *n, tri_value x, int64_t count, int64_t width, bool divides) {
    tri_graph *g = n->graph;
    const char *name = net_name(n);
    tri_value y = tri_linear(g, name, x, count * width);
    if (divides) tri_split_layer(g, name, TRI_SPLIT_COLUMN);
    return tri_reshape(g, y, tri_shape_of(n->batch->size, net_shape(n, x).dims[1], count, width));
}

// A mask or a bias for scores of that shape, broadcast along some axes.
static tri_value of_scores(net *n, tri_shape scores, bool is_mask) {
    for (int i = 1; i < 4; i++)
        if (net_chance(n, 50)) scores.dims[i] = 1;
    if (!is_mask) return net_to(n, net_value(n), scores);
    tri_value data = tri_flatten(n->graph, net_data(n));
    int64_t has = net_elements(n, data), needs = tri_shape_count(&scores) / scores.dims[0];
    if (needs > has) data = tri_repeat(n->graph, data, 1, (needs + has - 1) / has);
    data = tri_slice(n->graph, data, 1, 0, needs, 1);
    return tri_map(n->graph, "x -> x < 0.6", tri_reshape(n->graph, data, scores));
}

static tri_value attention(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_value y = net_chance(n, 50) ? x : net_value(n);
    x = net_as(n, x, 3);
    y = net_as(n, y, 3);
    int64_t t = net_shape(n, x).dims[1], s = net_shape(n, y).dims[1];
    int64_t groups = net_draw(n, 1, 2), keys = net_draw(n, 1, 2), width = 2 * net_draw(n, 1, 3);
    int64_t of_value = net_chance(n, 70) ? width : net_draw(n, 1, 5);
    if (t > 13 || s > 13 || net_shape(n, x).dims[2] > 40 || net_shape(n, y).dims[2] > 40)
        return (tri_value){0};
    bool divides = keys == 2 && net_chance(n, 70);
    tri_value q = heads(n, x, keys * groups, width, divides);
    tri_value k = heads(n, y, keys, width, divides), v = heads(n, y, keys, of_value, divides);
    if (net_chance(n, 30)) {
        q = tri_rotary(g, q, 100);
        k = tri_rotary(g, k, 100);
    }
    tri_attention_options o = {.causal = t <= s && net_chance(n, 40)};
    tri_shape scores = tri_shape_of(n->batch->size, keys * groups, t, s);
    if (n->data_count && net_chance(n, 25)) o.mask = of_scores(n, scores, true);
    if (net_chance(n, 25)) o.bias = of_scores(n, scores, false);
    if (net_chance(n, 20)) o.dropout = 0.2;
    if (net_chance(n, 20)) o.scale = 0.5;
    tri_value z = tri_attention(g, net_name(n), q, k, v, o);
    z = tri_reshape(g, z, tri_shape_of(n->batch->size, t, -1));
    if (net_chance(n, 30)) return z;
    const char *name = net_name(n);
    z = tri_linear(g, name, z, net_draw(n, 1, 9));
    if (divides) tri_split_layer(g, name, TRI_SPLIT_ROW);
    return z;
}

static tri_value recurrent(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_recurrent_options o = {.hidden = net_draw(n, 1, 5),
                               .layers = net_draw(n, 1, 2),
                               .bidirectional = net_chance(n, 40),
                               .no_bias = net_chance(n, 20),
                               .time_first = n->mixes && net_chance(n, 40),
                               .dropout = net_chance(n, 20) ? 0.2 : 0};
    x = net_as(n, x, 3);
    if (net_shape(n, x).dims[1] > 13 || net_shape(n, x).dims[2] > 40) return (tri_value){0};
    int64_t rows = o.layers * (o.bidirectional ? 2 : 1);
    tri_shape states = tri_shape_of(n->batch->size, rows, o.hidden);
    int kind = (int)net_draw(n, 0, 3);
    tri_shape of_h = states;
    if (kind == 0 && o.hidden > 1 && net_chance(n, 40))
        of_h.dims[2] = o.projection = net_draw(n, 1, o.hidden - 1);
    if (net_chance(n, 40)) o.h = net_tamed(n, net_to(n, net_value(n), of_h));
    if (kind == 0 && net_chance(n, 40)) o.c = net_tamed(n, net_to(n, net_value(n), states));
    tri_value (*const layers[])(tri_graph *, const char *, tri_value, tri_recurrent_options,
                                tri_recurrent_states *) = {tri_lstm, tri_gru, tri_gru, tri_rnn};
    tri_recurrent_states last;
    if (net_chance(n, 30))
        o.lengths = tri_randint(g, net_name(n), tri_shape_of(n->batch->size), 1,
                                net_shape(n, x).dims[1] + 1);
    if (o.time_first) x = tri_transpose(g, x, 0, 1);
    tri_value y = layers[kind](g, net_name(n), x, o, &last);
    if (o.time_first) y = tri_transpose(g, y, 0, 1);
    return net_chance(n, 70) ? y : kind == 0 && net_chance(n, 50) ? last.c : last.h;
}

static tri_value dropout(net *n, tri_value x) {
    return tri_dropout(n->graph, net_name(n), x, net_chance(n, 50) ? 0.2 : 0.5);
}

// Random numbers of other layers, and noise in a function of elements.
static tri_value noise(net *n, tri_value x) {
    tri_graph *g = n->graph;
    const char *name = net_name(n);
    x = net_as(n, x, (int)net_draw(n, 2, 4));
    tri_fractional_pool_options windows = {.kernel = 1};
    switch (net_draw(n, 0, 8)) {
    case 8:
        return tri_take_along(g, x, -1, tri_randperm(g, name, net_shape(n, x)));
    case 7:
        return tri_take_along(g, x, 1,
                              tri_randint(g, name, net_shape(n, x), 0, net_shape(n, x).dims[1]));
    case 6:
        x = net_as(n, x, 4);
        for (int i = 0; i < 2; i++) windows.sizes[i] = net_draw(n, 1, net_shape(n, x).dims[2 + i]);
        return tri_fractional_max_pool(g, name, x, windows);
    case 0:
        return tri_dropout_channels(g, name, x, 0.3);
    case 1:
        return tri_alpha_dropout(g, name, x, 0.2);
    case 2:
        return tri_rrelu(g, name, x, 0.1, 0.4);
    case 3:
        return tri_mul(g, x, tri_bernoulli(g, name, tri_sigmoid(g, x)));
    case 4:
        return tri_map(g, "x, e -> tanh(x) + 0.1 * e", x, tri_randn_like(g, name, x));
    default:
        return tri_gumbel_softmax(g, name, x, 0.8, -1);
    }
}

// Parts of samples as rows, through layers that do not mix rows.
static tri_value rows(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = net_as(n, x, 3);
    tri_shape shape = net_shape(n, x);
    x = tri_reshape(g, x, tri_shape_of(shape.dims[0] * shape.dims[1], shape.dims[2]));
    if (net_chance(n, 50)) x = tri_dropout(g, net_name(n), x, 0.2);
    x = tri_linear(g, net_name(n), x, net_draw(n, 1, 7));
    if (net_chance(n, 30)) x = tri_rms_norm(g, net_name(n), x, 0.1);
    return tri_reshape(g, x, tri_shape_of(shape.dims[0], shape.dims[1], -1));
}

// Several values one after the other, or with an axis of their own.
static tri_value joined(net *n, tri_value x) {
    if (net_elements(n, x) > NET_ELEMENTS / 4) return (tri_value){0};
    tri_value values[8] = {net_as(n, x, (int)net_draw(n, 2, 5))};
    tri_shape shape = net_shape(n, values[0]);
    int count = (int)net_draw(n, 2, net_chance(n, 20) ? 8 : 3);
    int axis = (int)net_draw(n, 1, shape.rank - 1);
    bool stacks = net_chance(n, 30);
    for (int i = 1; i < count; i++) {
        if (!stacks) shape.dims[axis] = net_draw(n, 1, 4);
        values[i] = net_to(n, net_value(n), shape);
    }
    return stacks ? tri_stack(n->graph, values, count, axis)
                  : tri_concat(n->graph, values, count, axis);
}

const net_primitive net_layers[] = {
    conv1d, conv2d, conv2d, conv3d, transposed, normed,    pool,      resized,   norm,    norm,
    linear, pair,   pair,   shared, matmul,     recurrent, attention, attention, dropout, rows,
    joined, own,    own,    scale,  sliced,     sliced,    noise,     NULL};

// The functions of elements, axes and shapes of the networks of random_net.c.
#include "random_net.h"

#include <stdio.h>
#include <string.h>

tri_value net_function(net *n, tri_value x) {
    static tri_value (*const usual[])(tri_graph *, tri_value) = {
        tri_relu,       tri_sigmoid,     tri_tanh,        tri_gelu,      tri_gelu_tanh,
        tri_neg,        tri_abs,         tri_sin,         tri_cos,       tri_erf,
        tri_relu6,      tri_silu,        tri_quick_gelu,  tri_mish,      tri_softsign,
        tri_tanhshrink, tri_log_sigmoid, tri_hardsigmoid, tri_hardswish, tri_selu};
    static tri_value (*const positive[])(tri_graph *, tri_value) = {
        tri_sqrt, tri_rsqrt, tri_reciprocal, tri_log, tri_log1p};
    tri_graph *g = n->graph;
    int count = (int)(sizeof usual / sizeof *usual);
    switch (net_draw(n, 0, 17)) {
    case 0:
        return tri_elu(g, x, 0.7);
    case 1:
        return tri_celu(g, x, 1.3);
    case 2:
        return tri_softplus(g, x, 2);
    case 3:
        return tri_hardtanh(g, x, -0.7, 0.9);
    case 4:
        return tri_softshrink(g, x, 0.2);
    case 5:
        return tri_leaky_relu(g, x, 0.1);
    case 6:
        return tri_threshold(g, x, 0.1, 0.1);
    case 7:
        return tri_add_scalar(g, x, -0.4);
    case 8:
        return tri_mul_scalar(g, x, -1.1);
    case 9:
        return tri_pow_scalar(g, tri_tanh(g, x), (double)net_draw(n, 2, 3));
    case 10:
        return tri_exp(g, tri_clamp(g, x, -3, 1));
    case 11:
        return tri_expm1(g, tri_hardtanh(g, x, -3, 1));
    case 12:
        return tri_square(g, tri_softsign(g, x));
    case 13:
        return positive[net_draw(n, 0, 4)](g, tri_map(g, "x -> 0.4 + abs(x)", x));
    default:
        return usual[net_draw(n, 0, count - 1)](g, x);
    }
}

static void expression(net *n, int depth, int values, bool has_data, char *out, size_t size);

// Writes a form in which each % becomes an expression.
static void fill(net *n, const char *form, int depth, int values, bool has_data, char *out,
                 size_t size) {
    size_t length = 0;
    for (; *form && length + 1 < size; form++) {
        if (*form != '%') {
            out[length++] = *form;
            out[length] = 0;
            continue;
        }
        expression(n, depth - 1, values, has_data, out + length, size - length);
        length += strlen(out + length);
    }
}

// An expression of the values a, b, … of which the last one, if there are data, is data: what jumps
// may read it alone, as rounding does not change it.
static void expression(net *n, int depth, int values, bool has_data, char *out, size_t size) {
    static const char *const forms[] = {"tanh(%)",
                                        "sin(%)",
                                        "cos(2 * %)",
                                        "sigmoid(%)",
                                        "erf(%)",
                                        "abs(%)",
                                        "-%",
                                        "sqrt(1 + abs(%))",
                                        "rsqrt(0.5 + (%)^2)",
                                        "log(1.5 + abs(%))",
                                        "log1p(abs(%))",
                                        "exp(min(%, 1))",
                                        "expm1(-abs(%))",
                                        "pow(0.5 + abs(%), 1.3)",
                                        "(% + %)",
                                        "(% - %)",
                                        "(% * %)",
                                        "max(%, %)",
                                        "min(%, %)",
                                        "% / (1 + (%)^2)",
                                        "tanh(%) ^ 2",
                                        "(% + 2 * %) / 3"};
    static const char *const jumps[] = {"(D > 0.4 && D < 0.8 ? % : %)",
                                        "(D <= 0.3 || !(D < 2) ? % : -%)",
                                        "floor(D * 3) * %",
                                        "round(2 * D) - %",
                                        "sign(D - 0.5) * %",
                                        "(ceil(D) == 1) * %",
                                        "(D != 0.25 ? % : 0)"};
    if (depth == 0 || net_chance(n, 10)) {
        if (net_chance(n, 15))
            snprintf(out, size, "%g", 0.25 * (double)net_draw(n, 1, 6));
        else
            snprintf(out, size, "%c", (char)('a' + net_draw(n, 0, values - 1)));
        return;
    }
    char form[64];
    if (has_data && net_chance(n, 20)) {
        snprintf(form, sizeof form, "%s", jumps[net_draw(n, 0, 6)]);
        for (char *c = form; *c; c++)
            if (*c == 'D') *c = (char)('a' + values - 1);
    } else {
        snprintf(form, sizeof form, "%s", forms[net_draw(n, 0, 21)]);
    }
    fill(n, form, depth, values, has_data, out, size);
}

// A shape that is broadcast to this one.
static tri_shape fitting(net *n, tri_shape shape) {
    for (int i = 1; i < shape.rank; i++)
        if (net_chance(n, 30)) shape.dims[i] = 1;
    return shape;
}

tri_value net_formula(net *n, tri_value x) {
    char text[400];
    int length, values = (int)net_draw(n, 1, 4);
    bool has_data = n->data_count > 0 && values > 1 && net_chance(n, 50);
    tri_value in[4] = {x};
    tri_shape shape = net_shape(n, x);
    if (shape.rank < 2) return net_function(n, x);
    for (int i = 1; i < values; i++) {
        bool is_data = has_data && i + 1 == values;
        in[i] = is_data ? net_data_as(n, fitting(n, shape))
                        : net_to(n, net_value(n), fitting(n, shape));
    }
    static const char *const begins[] = {"a -> a * 0.5", "a, b -> a * 0.5 - 0.3 * b",
                                         "a, b, c -> a + (b - c) / 4",
                                         "a, b, c, d -> (a + b + c) * 0.2 - d"};
    length = snprintf(text, sizeof text, "%s + ", begins[values - 1]);
    expression(n, (int)net_draw(n, 1, 3), values, has_data, text + length,
               sizeof text - (size_t)length);
    return tri_map_values(n->graph, text, in, values);
}

static tri_value formula(net *n, tri_value x) { return net_tamed(n, net_formula(n, x)); }

static tri_value both(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape = net_shape(n, x);
    if (shape.rank < 2) x = tri_unsqueeze(g, x, 1);
    shape = net_shape(n, x);
    tri_value y = net_to(n, net_value(n), fitting(n, shape));
    switch (net_draw(n, 0, n->data_count ? 9 : 8)) {
    case 0:
        return tri_add(g, x, y);
    case 1:
        return tri_sub(g, y, x);
    case 2:
        return tri_mul(g, net_tamed(n, x), net_tamed(n, y));
    case 3:
        return tri_div(g, x, tri_map(g, "y -> 0.7 + y * y", y));
    case 4:
        return tri_maximum(g, x, y);
    case 5:
        return tri_minimum(g, x, y);
    case 6:
        return tri_lerp(g, x, y, tri_sigmoid(g, x));
    case 7:
        return tri_silu_mul(g, net_tamed(n, x), net_tamed(n, net_to(n, y, shape)));
    case 8:
        return tri_pow(g, tri_map(g, "x -> 0.4 + abs(tanh(x))", x), tri_tanh(g, y));
    default:
        return tri_where(
            g, tri_less(g, net_data_as(n, shape), tri_mul_scalar(g, net_data_as(n, shape), 2)), x,
            y);
    }
}

// Draws some axes behind that of the samples, in any order and from either end.
static int draw_axes(net *n, int rank, int *axes) {
    int count = 0;
    for (int i = 1; i < rank; i++)
        if (net_chance(n, 50)) axes[count++] = net_chance(n, 50) ? i : i - rank;
    if (count == 0) axes[count++] = (int)net_draw(n, 1, rank - 1);
    if (count > 1 && net_chance(n, 50)) {
        int first = axes[0];
        axes[0] = axes[count - 1];
        axes[count - 1] = first;
    }
    return count;
}

static tri_value reduced(net *n, tri_value x) {
    tri_graph *g = n->graph;
    int axes[TRI_MAX_RANK];
    x = net_as(n, x, (int)net_draw(n, 2, 5));
    tri_shape shape = net_shape(n, x);
    int count = draw_axes(n, shape.rank, axes);
    int64_t elements = 1;
    bool keep = net_chance(n, 60);
    for (int i = 0; i < count; i++) elements *= shape.dims[(axes[i] + shape.rank) % shape.rank];
    switch (net_draw(n, 0, 8)) {
    case 0:
        return tri_sum(g, net_tamed(n, x), axes, count, keep);
    case 1:
        return tri_mean(g, x, axes, count, keep);
    case 2:
        return tri_amax(g, x, axes, count, keep);
    case 3:
        return tri_amin(g, x, axes, count, keep);
    case 4:
        return tri_var(g, net_tamed(n, x), axes, count, elements > 1, keep);
    case 5:
        return tri_std(g, tri_add_scalar(g, x, 0.5), axes, count, elements > 1, keep);
    case 6:
        return tri_logsumexp(g, x, axes, count, keep);
    case 7:
        return tri_norm(g, x, axes, count, keep);
    default:
        return tri_sub(g, x, tri_mean(g, x, axes, count, true));
    }
}

static tri_value along(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = net_as(n, x, (int)net_draw(n, 2, 5));
    tri_shape shape = net_shape(n, x);
    int axis = (int)net_draw(n, 1, shape.rank - 1);
    if (net_chance(n, 50)) axis -= shape.rank;
    switch (net_draw(n, 0, 4)) {
    case 0:
        return tri_softmax(g, x, axis);
    case 1:
        return tri_log_softmax_along(g, x, axis);
    case 2:
        return tri_log_softmax(g, x);
    case 3:
        return tri_normalize(g, x, axis, 0.05);
    default:
        return tri_cosine_similarity(g, x, net_to(n, net_value(n), shape), axis, 0.05);
    }
}

static tri_value permuted(net *n, tri_value x) {
    int axes[TRI_MAX_RANK];
    x = net_as(n, x, (int)net_draw(n, 3, 6));
    int rank = net_shape(n, x).rank;
    for (int i = 0; i < rank; i++) axes[i] = i;
    for (int i = rank - 1; i > 1; i--) {
        int other = (int)net_draw(n, 1, i), axis = axes[i];
        axes[i] = axes[other];
        axes[other] = axis;
    }
    return tri_permute(n->graph, x, axes);
}

// Parts of an axis.
static tri_value part(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = net_as(n, x, (int)net_draw(n, 2, 5));
    tri_shape shape = net_shape(n, x);
    int axis = (int)net_draw(n, 1, shape.rank - 1);
    int64_t size = shape.dims[axis], first = net_draw(n, 0, size - 1);
    int64_t end = net_draw(n, first + 1, size);
    switch (net_draw(n, 0, 4)) {
    case 0:
        return tri_slice(g, x, axis, first, end == size ? 0 : end, net_draw(n, 0, 3));
    case 1:
        return tri_slice(g, x, axis - shape.rank, first - size, end, 1);
    case 2:
        return tri_select(g, x, axis, net_chance(n, 50) ? first : first - size);
    case 3:
        return size % 2 ? tri_chunk(g, x, axis, size, first) : tri_glu(g, x, axis);
    default:
        if (size < 2) return tri_pad(g, x, axis, 1, 0);
        return tri_pad(g, x, axis, -net_draw(n, 0, size / 2), net_draw(n, -(size / 2) + 1, 2));
    }
}

static tri_value moved(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = net_as(n, x, (int)net_draw(n, 2, 5));
    tri_shape shape = net_shape(n, x);
    int axis = (int)net_draw(n, 1, shape.rank - 1);
    switch (net_draw(n, 0, 6)) {
    case 0:
        return tri_flip(g, x, axis);
    case 1:
        return tri_roll(g, x, axis, net_draw(n, -5, 5));
    case 2:
        return tri_repeat(g, x, axis, net_draw(n, 1, 3));
    case 3:
        return tri_repeat_interleave(g, x, axis - shape.rank, net_draw(n, 1, 3));
    case 4:
        return tri_pad(g, x, axis, net_draw(n, 0, 2), net_draw(n, 0, 2));
    case 5:
        return tri_unsqueeze(g, x, axis);
    default:
        if (shape.dims[axis] == 1) return tri_squeeze(g, x, axis);
        x = tri_mean(g, x, &axis, 1, true);
        shape.dims[axis] = net_draw(n, 1, 5);
        return tri_expand(g, x, shape);
    }
}

static tri_value shuffled(net *n, tri_value x) {
    x = net_as(n, x, 4);
    tri_shape shape = net_shape(n, x);
    if (shape.dims[1] % 4 == 0) return tri_pixel_shuffle(n->graph, x, 2);
    if (shape.dims[2] % 2 == 0 && shape.dims[3] % 2 == 0)
        return tri_pixel_unshuffle(n->graph, x, 2);
    return tri_transpose(n->graph, x, 2, -1);
}

const net_primitive net_functions[] = {net_function, net_function, formula,  formula, both,
                                       both,         reduced,      reduced,  along,   permuted,
                                       part,         moved,        shuffled, NULL};

static tri_value centred(net *n, tri_value x) {
    return tri_sub(n->graph, x, tri_mean(n->graph, x, (int[]){0}, 1, true));
}

static tri_value turned(net *n, tri_value x) {
    if (net_chance(n, 50)) return tri_flip(n->graph, x, 0);
    return tri_roll(n->graph, x, 0, 1);
}

static tri_value across(net *n, tri_value x) {
    if (net_chance(n, 50)) return tri_softmax(n->graph, x, 0);
    return tri_sub(n->graph, x, tri_amax(n->graph, x, (int[]){0}, 1, true));
}

// Each sample becomes a mean of samples that are like it.
static tri_value alike(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = tri_reshape(g, net_tamed(n, x), tri_shape_of(n->batch->size, -1));
    return tri_matmul(g, tri_softmax(g, tri_matmul(g, x, tri_transpose(g, x, 0, 1)), 1), x);
}

// The samples behind another axis, and back.
static tri_value behind(net *n, tri_value x) {
    tri_graph *g = n->graph;
    x = tri_transpose(g, net_as(n, x, 3), 0, 1);
    x = tri_linear(g, net_name(n), net_function(n, x), net_draw(n, 1, 5));
    return tri_transpose(g, x, 0, 1);
}

const net_primitive net_mixers[] = {centred, turned, across, alike, behind, NULL};

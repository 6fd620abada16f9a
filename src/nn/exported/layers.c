// Operations with weights, and what else is a layer in nn.h. Weights are values: parameters, or
// what the network computes of them.
#include "nn/exported/build.h"
#include "nn/exported/lower.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

const char *exported_layer(exported_call *c) {
    const char *name = *c->node->module ? c->node->module : c->node->target;
    tri_share_layer(c->build->graph, name);
    return name;
}

static int rank_of(exported_call *c, int k) {
    exported_value x = exported_operand(c, k);
    return exported_rank(c->build, &x);
}

static int64_t size_of(exported_call *c, int k, int axis) {
    exported_value x = exported_operand(c, k);
    return exported_rank(c->build, &x) > axis ? exported_size(c->build, &x, axis) : 0;
}

// The sizes of a convolution's or pool's window along each axis.
typedef tri_value conv_function(tri_graph *, const char *, tri_value, tri_conv_options);

static void conv(exported_call *c, int axes, bool transposed, const int64_t *strides,
                 const int64_t *pads, const int64_t *more, const int64_t *dilations, int64_t groups,
                 bool same_size) {
    conv_function *const functions[2][3] = {
        {tri_conv1d, tri_conv2d, tri_conv3d},
        {tri_conv_transpose1d, tri_conv_transpose2d, tri_conv_transpose3d}};
    tri_conv_options o = {.channels = size_of(c, 1, transposed ? 1 : 0) * (transposed ? groups : 1),
                          .groups = groups,
                          .same = same_size,
                          .weight_value = exported_tensor(c, 1),
                          .bias_value = exported_tensor(c, 2),
                          .no_bias = exported_is_none(c, 2)};
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(c->build, &x);
    bool has_batch = rank == axes + 2;
    if (!has_batch) {
        exported_fail(c, "a convolution of a tensor without an axis of samples is not supported");
        return;
    }
    for (int i = 0; i < axes; i++) {
        o.kernels[i] = size_of(c, 1, 2 + i);
        o.strides[i] = strides[i];
        o.dilations[i] = dilations[i];
        o.pads[i][0] = o.pads[i][1] = pads[i];
        o.output_paddings[i] = more[i];
    }
    exported_give_graph(c, functions[transposed][axes - 1](c->build->graph, exported_layer(c),
                                                           exported_as_float(c->build, &x), o));
}

static int conv_axes(exported_call *c) {
    int axes = rank_of(c, 1) - 2;
    if (axes >= 1 && axes <= 3) return axes;
    exported_fail(c, "a convolution has 1 to 3 axes");
    return 0;
}

static const int64_t no_numbers[3];

// input weight bias stride padding dilation groups
static void conv_forward(exported_call *c) {
    int64_t stride[3], pad[3] = {0}, dilation[3];
    int axes = conv_axes(c);
    const char *word = exported_text(c, 4);
    if (axes == 0) return;
    exported_sizes(c, 3, stride, axes);
    if (!*word) exported_sizes(c, 4, pad, axes);
    exported_sizes(c, 5, dilation, axes);
    conv(c, axes, false, stride, pad, no_numbers, dilation, exported_int(c, 6),
         !strcmp(word, "same"));
}

// input weight bias stride padding output_padding groups dilation
static void conv_backward(exported_call *c) {
    int64_t stride[3], pad[3], more[3], dilation[3];
    int axes = conv_axes(c);
    if (axes == 0) return;
    exported_sizes(c, 3, stride, axes);
    exported_sizes(c, 4, pad, axes);
    exported_sizes(c, 5, more, axes);
    exported_sizes(c, 7, dilation, axes);
    conv(c, axes, true, stride, pad, more, dilation, exported_int(c, 6), false);
}

// input weight bias stride padding dilation transposed output_padding groups
static void convolution(exported_call *c) {
    int64_t stride[3], pad[3], more[3], dilation[3];
    int axes = conv_axes(c);
    bool transposed = exported_bool(c, 6);
    if (axes == 0) return;
    exported_sizes(c, 3, stride, axes);
    exported_sizes(c, 4, pad, axes);
    exported_sizes(c, 5, dilation, axes);
    exported_sizes(c, 7, more, axes);
    conv(c, axes, transposed, stride, pad, transposed ? more : no_numbers, dilation,
         exported_int(c, 8), false);
}

// Batch norm that keeps no statistics: mean and variance of the tensor itself.
static void norm_channels(exported_call *c) {
    exported_build *b = c->build;
    tri_graph *g = b->graph;
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(b, &x), axes[EXPORTED_MAX_RANK], count = 0;
    int64_t sizes[EXPORTED_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        if (i != 1) axes[count++] = i;
        sizes[i] = i == 1 ? exported_size(b, &x, 1) : 1;
    }
    tri_value value = exported_as_float(b, &x);
    double eps = exported_real(c, 7);
    exported_value in[5] = {
        exported_of_graph(value, x.dtype),
        exported_of_graph(tri_mean(g, value, axes, count, true), x.dtype),
        exported_of_graph(tri_var(g, value, axes, count, 0, true), x.dtype),
        exported_is_none(c, 1) ? exported_of_number(1, x.dtype)
                               : exported_reshape(b, exported_operand(c, 1), sizes, rank),
        exported_is_none(c, 2) ? exported_of_number(0, x.dtype)
                               : exported_reshape(b, exported_operand(c, 2), sizes, rank)};
    exported_give(
        c, exported_map_text(
               b, "x, mean, var, w, bias, eps = 0 -> (x - mean) * rsqrt(var + eps) * w + bias",
               &eps, in, 5, x.dtype));
}

// How many live nodes have the value that is argument k of this one as theirs.
static int64_t uses_of(const exported_call *c, int k) {
    const nn_exported *n = c->build->network;
    int64_t uses = 0;
    for (int i = 0; i < n->file.node_count; i++) {
        const exported_node *node = &n->nodes[i];
        if (!node->is_live || node->row != c->row) continue;
        exported_call other = {.build = c->build, .node = node->node, .row = node->row};
        exported_bind(&other);
        const tri_pt2_argument *a = &other.arguments[k];
        uses += a->kind == TRI_PT2_VALUE && a->number == c->arguments[k].number;
    }
    return uses;
}

// Batch norm's first axis is that of samples. Where it has several rows of each, [N · R, C, …],
// they become a last axis: [N, C, …, R].
static tri_value rows_inside(tri_graph *g, tri_value x) {
    tri_shape shape = tri_value_shape(g, x), wide = {.rank = shape.rank + 1};
    int64_t samples = tri_graph_samples(g);
    int order[TRI_MAX_RANK];
    if (samples <= 0 || shape.rank < 2 || shape.rank >= TRI_MAX_RANK || shape.dims[0] == samples ||
        shape.dims[0] % samples)
        return x;
    wide.dims[0] = samples;
    wide.dims[1] = shape.dims[0] / samples;
    for (int i = 1; i < shape.rank; i++) wide.dims[1 + i] = shape.dims[i];
    for (int i = 0; i < wide.rank; i++) order[i] = i == 0 ? 0 : i == wide.rank - 1 ? 1 : i + 1;
    return tri_permute(g, tri_reshape(g, x, wide), order);
}

// The same back to the shape of `like`.
static tri_value rows_back(tri_graph *g, tri_value y, tri_value like) {
    tri_shape shape = tri_value_shape(g, y), goal = tri_value_shape(g, like);
    int order[TRI_MAX_RANK];
    if (shape.rank == goal.rank) return y;
    for (int i = 0; i < shape.rank; i++) order[i] = i == 0 ? 0 : i == 1 ? shape.rank - 1 : i - 1;
    return tri_reshape(g, tri_permute(g, y, order), goal);
}

// Batch norm keeps statistics, so it is a layer with PyTorch's names of parameters.
static void batch_norm(exported_call *c) {
    const char *mean = exported_full_name(c, 3), *end = mean ? strrchr(mean, '.') : NULL;
    tri_graph *g = c->build->graph;
    bool is_plain = exported_is_none(c, 1) && exported_is_none(c, 2);
    const char *layer = end ? tri_name(g, "%.*s", (int)(end - mean), mean) : "";
    bool has_names = end && exported_is_own(c, 3, layer, "running_mean") &&
                     exported_is_own(c, 4, layer, "running_var") &&
                     (is_plain || (exported_is_own(c, 1, layer, "weight") &&
                                   exported_is_own(c, 2, layer, "bias")));
    if (exported_is_none(c, 3) && exported_is_none(c, 4)) {
        norm_channels(c);
        return;
    }
    if (!has_names) {
        exported_fail(c, "batch norm without running statistics, weight and bias of its own module "
                         "is not supported");
        return;
    }
    tri_batch_norm_options o = {.eps = exported_real(c, 7),
                                .plain = is_plain,
                                .cumulative = exported_is_none(c, 6),
                                .uses = uses_of(c, 3)};
    // Momentum 0 keeps the statistics as they are; of the layer it would mean the default.
    if (!o.cumulative) o.momentum = fmax(exported_real(c, 6), 1e-30);
    if (o.uses > 1) tri_share_layer(g, layer);
    tri_value x = exported_tensor(c, 0), rows = rows_inside(g, x);
    exported_give_graph(c, rows_back(g, tri_batch_norm(g, layer, rows, o), x));
}

// Weight and bias of several axes, as a norm of rows has them: one axis.
static tri_value as_row(exported_call *c, int k) {
    exported_value x = exported_operand(c, k);
    if (x.kind == EXPORTED_NOTHING) return (tri_value){0};
    int64_t count = exported_count(c->build, &x);
    x = exported_reshape(c->build, x, &count, 1);
    return exported_as_float(c->build, &x);
}

// A norm of the last axes, whose sizes argument 1 lists.
static void norm_rows(exported_call *c, const tri_op *op, tri_value weight, tri_value bias,
                      double eps) {
    exported_build *b = c->build;
    int64_t sizes[EXPORTED_MAX_RANK], rows[EXPORTED_MAX_RANK], width = 1;
    exported_value x = exported_operand(c, 0);
    int axes = exported_ints(c, 1, sizes, EXPORTED_MAX_RANK), rank = exported_rank(b, &x);
    if (axes < 1 || axes > rank) {
        exported_fail(c, "a norm of %d axes of %d", axes, rank);
        return;
    }
    for (int i = 0; i < axes; i++) width *= sizes[i];
    for (int i = 0; i < rank - axes; i++) rows[i] = exported_size(b, &x, i);
    rows[rank - axes] = width;
    exported_value flat = axes > 1 ? exported_reshape(b, x, rows, rank - axes + 1) : x;
    tri_value y =
        tri_node_add(b->graph, op, (tri_value[]){exported_as_float(b, &flat), weight, bias},
                     op->input_count, &(tri_norm_attr){.eps = eps}, exported_layer(c));
    exported_value result = exported_of_graph(y, x.dtype);
    for (int i = 0; i < rank; i++) rows[i] = exported_size(b, &x, i);
    exported_give(c, axes > 1 ? exported_reshape(b, result, rows, rank) : result);
}

// In place of a norm's weight or bias that is missing: one number for each element of a row.
static tri_value filled_row(exported_call *c, const char *what, int64_t count, double value) {
    double *data;
    exported_value row = exported_host_new(c->build, &count, 1, TRI_PT2_FLOAT32, &data);
    for (int64_t i = 0; row.kind == EXPORTED_HOST && i < count; i++) data[i] = value;
    row.name = tri_name(c->build->graph, "%s.%s", exported_layer(c), what);
    return exported_as_graph(c->build, &row);
}

// The elements of a row: argument 1 has the sizes of its axes.
static int64_t norm_width(exported_call *c) {
    int64_t sizes[EXPORTED_MAX_RANK], width = 1;
    int axes = exported_ints(c, 1, sizes, EXPORTED_MAX_RANK);
    for (int i = 0; i < axes; i++) width *= sizes[i];
    return width;
}

static void layer_norm(exported_call *c) {
    tri_value weight = as_row(c, 2), bias = as_row(c, 3);
    if (tri_value_is(weight) && !tri_value_is(bias))
        bias = filled_row(c, "no_bias", norm_width(c), 0);
    norm_rows(c, &tri_op_layer_norm, weight, bias, exported_real(c, 4));
}

static void rms_norm(exported_call *c) {
    double eps = exported_is_none(c, 3) ? 0x1p-23 : exported_real(c, 3);
    tri_value weight = as_row(c, 2);
    if (!tri_value_is(weight)) weight = filled_row(c, "no_weight", norm_width(c), 1);
    norm_rows(c, &tri_op_rms_norm, weight, (tri_value){0}, eps);
}

static void norm_groups(exported_call *c, int64_t groups, int weight, int bias, double eps) {
    tri_group_norm_attr attr = {.norm.eps = eps, .groups = groups};
    exported_give_graph(
        c, tri_node_add(c->build->graph, &tri_op_group_norm,
                        (tri_value[]){exported_tensor(c, 0), exported_tensor(c, weight),
                                      exported_tensor(c, bias)},
                        3, &attr, exported_layer(c)));
}

static void group_norm(exported_call *c) {
    norm_groups(c, exported_int(c, 1), 2, 3, exported_real(c, 4));
}

static void instance_norm(exported_call *c) {
    const char *mean = exported_full_name(c, 3), *end = mean ? strrchr(mean, '.') : NULL;
    tri_graph *g = c->build->graph;
    if (!exported_is_none(c, 3)) {
        const char *layer = end ? tri_name(g, "%.*s", (int)(end - mean), mean) : "";
        bool is_plain = exported_is_none(c, 1) && exported_is_none(c, 2);
        if (!end || !exported_is_own(c, 3, layer, "running_mean") ||
            !exported_is_own(c, 4, layer, "running_var") || !exported_bool(c, 5) ||
            (!is_plain &&
             (!exported_is_own(c, 1, layer, "weight") || !exported_is_own(c, 2, layer, "bias")))) {
            exported_fail(c, "instance norm without statistics and weights of its own module, or "
                             "with those of evaluation, is not supported");
            return;
        }
        tri_instance_norm_options o = {.eps = exported_real(c, 7),
                                       .affine = !is_plain,
                                       .tracks = true,
                                       .momentum = fmax(exported_real(c, 6), 1e-30)};
        exported_give_graph(c, tri_instance_norm(g, layer, exported_tensor(c, 0), o));
        return;
    }
    norm_groups(c, size_of(c, 0, 1), 1, 2, exported_real(c, 7));
}

// The axis of the samples of the first argument: the first one whose size the file leaves open, if
// there is any.
static int samples_axis(exported_call *c) {
    const tri_pt2_argument *a = &c->arguments[0];
    const tri_pt2_value *v =
        a->kind == TRI_PT2_VALUE ? &c->build->network->file.values[a->number] : NULL;
    for (int i = 0; v && i < v->rank; i++)
        if (v->sizes[i] < 0) return i;
    return 0;
}

// Random numbers are those of samples, whose axis comes first for that.
static void draw_by_sample(exported_call *c,
                           tri_value (*draw)(tri_graph *, const char *, tri_value, double)) {
    double p = exported_real(c, 1);
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(c->build, &x), axis = samples_axis(c), order[EXPORTED_MAX_RANK];
    const char *name = *c->node->call ? c->node->call : "dropout";
    for (int i = 0; i < rank; i++) order[i] = i == 0 ? axis : i == axis ? 0 : i;
    if (axis > 0 && p > 0) x = exported_permute(c->build, x, order);
    tri_value y = exported_as_float(c->build, &x);
    if (p > 0) y = draw(c->build->graph, name, y, p);
    x = exported_of_graph(y, exported_result_type(c, 0));
    exported_give(c, axis > 0 && p > 0 ? exported_permute(c->build, x, order) : x);
}

static void dropout(exported_call *c) { draw_by_sample(c, tri_dropout); }
static void dropout_channels(exported_call *c) { draw_by_sample(c, tri_dropout_channels); }
static void alpha_dropout(exported_call *c) { draw_by_sample(c, tri_alpha_dropout); }
static void alpha_channels(exported_call *c) { draw_by_sample(c, tri_feature_alpha_dropout); }

static void rrelu(exported_call *c) {
    const char *name = *c->node->call ? c->node->call : "rrelu";
    tri_value x = exported_tensor(c, 0);
    double lower = exported_real(c, 1), upper = exported_real(c, 2);
    exported_give_graph(c, exported_bool(c, 3)
                               ? tri_rrelu(c->build->graph, name, x, lower, upper)
                               : tri_leaky_relu(c->build->graph, x, (lower + upper) / 2));
}

// v times the size g over v's own, for each place along an axis, or of all of it (-1).
static void weight_norm(exported_call *c) {
    exported_build *b = c->build;
    exported_value v = exported_operand(c, 0);
    int rank = exported_rank(b, &v), axes[EXPORTED_MAX_RANK], count = 0;
    int64_t axis = exported_int(c, 2);
    for (int i = 0; i < rank; i++)
        if (i != axis) axes[count++] = i;
    tri_value value = exported_as_float(b, &v);
    exported_value in[] = {
        exported_of_graph(value, v.dtype), exported_operand(c, 1),
        exported_of_graph(tri_norm(b->graph, value, axes, count, true), v.dtype)};
    exported_give(c, exported_map_text(b, "v, g, n -> v * (g / n)", NULL, in, 3, v.dtype));
}

// A score this much lower than another one counts as nothing.
static const double LOWEST = -1e9;

// Whether a number of a mask lets a query see a key: what is added to scores is 0 then, and
// otherwise so low that softmax makes 0 of it.
static bool is_seen(double value, bool is_added) { return is_added ? value == 0 : value != 0; }

// Whether a mask [.., T, S] of the host lets each query see the keys up to its own, and nothing
// else.
static bool is_causal(const exported_host *mask, bool is_added) {
    int64_t index[EXPORTED_MAX_RANK] = {0};
    if (mask->rank < 2 || mask->sizes[mask->rank - 1] != mask->sizes[mask->rank - 2]) return false;
    exported_host one = *mask;
    for (int i = 0; i < one.rank - 2; i++)
        if (one.strides[i] == 0) one.sizes[i] = 1;
    do {
        bool sees = index[one.rank - 1] <= index[one.rank - 2];
        double value = exported_host_at(&one, index);
        if (is_seen(value, is_added) != sees || (is_added && !sees && !(value <= LOWEST)))
            return false;
    } while (exported_host_next(&one, index));
    return true;
}

static bool is_all_seen(const exported_host *mask, bool is_added) {
    int64_t index[EXPORTED_MAX_RANK] = {0};
    exported_host one = *mask;
    for (int i = 0; i < one.rank; i++)
        if (one.strides[i] == 0) one.sizes[i] = 1;
    do
        if (!is_seen(exported_host_at(&one, index), is_added)) return false;
    while (exported_host_next(&one, index));
    return true;
}

// As [N, H, T, D]: what lies before the heads becomes one axis; a tensor of 3 axes has one head.
static exported_value four_axes(exported_build *b, exported_value x) {
    int rank = exported_rank(b, &x);
    int64_t sizes[4] = {1, 1, 1, 1};
    for (int i = 0; i < rank; i++) {
        int to = rank == 3 && i == 0 ? 0 : i < rank - 4 ? 0 : i - (rank - 4);
        sizes[to] *= exported_size(b, &x, i);
    }
    return exported_reshape(b, x, sizes, 4);
}

// A mask of tensors of `rank` axes, other than 4, as one of 4.
static exported_value mask_of_four(exported_build *b, exported_value mask, exported_value q) {
    int rank = exported_rank(b, &q), own = exported_rank(b, &mask);
    int64_t sizes[EXPORTED_MAX_RANK];
    if (own <= 2) return mask;
    for (int i = 0; i < rank; i++) {
        int at = i - (rank - own);
        sizes[i] = i < rank - 3 || at < 0 ? exported_size(b, &q, i) : exported_size(b, &mask, at);
    }
    if (rank > 4 && own < rank - 2) sizes[rank - 3] = 1;
    return four_axes(b, exported_expand(b, mask, sizes, rank));
}

static tri_value heads_inside(exported_build *b, exported_value x) {
    x = exported_permute(b, x, (const int[]){0, 2, 1, 3});
    return exported_as_float(b, &x);
}

// Each query sees the keys up to its own number.
static exported_value causal_mask(exported_call *c, int64_t queries, int64_t keys) {
    double *data;
    exported_value mask =
        exported_host_new(c->build, (int64_t[]){queries, keys}, 2, TRI_PT2_BOOLEAN, &data);
    for (int64_t i = 0; mask.kind == EXPORTED_HOST && i < queries * keys; i++)
        data[i] = i % keys <= i / keys;
    mask.name = tri_name(c->build->graph, "%s.causal", exported_result_name(c));
    return mask;
}

// Whether a query sees no key.
static bool has_blind_query(const exported_host *mask) {
    int64_t index[EXPORTED_MAX_RANK] = {0}, keys = mask->rank ? mask->sizes[mask->rank - 1] : 1;
    exported_host one = *mask;
    for (int i = 0; i < one.rank - 1; i++)
        if (one.strides[i] == 0) one.sizes[i] = 1;
    bool sees = false;
    do {
        sees = sees || exported_host_at(&one, index) != 0;
        if (one.rank && index[one.rank - 1] < keys - 1) continue;
        if (!sees) return true;
        sees = false;
    } while (exported_host_next(&one, index));
    return false;
}

// query key value attn_mask dropout_p is_causal scale hidden low; all [.., H, T, D]. `hidden` is
// the opposite of a mask; `low`: what stood in place of the scores that a mask hides.
static void attention(exported_call *c) {
    exported_build *b = c->build;
    tri_attention_options o = {.causal = exported_bool(c, 5), .dropout = exported_real(c, 4)};
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1), exported_operand(c, 2)},
                   mask = exported_operand(c, 3), hidden = exported_operand(c, 7), whole = in[0];
    int rank = exported_rank(b, &whole);
    if (rank < 3 || exported_rank(b, &in[1]) != rank || exported_rank(b, &in[2]) != rank) {
        exported_fail(c, "attention of tensors that are not [.., H, T, D] is not supported");
        return;
    }
    if (hidden.kind != EXPORTED_NOTHING)
        mask = exported_map_text(b, "!x", NULL, &hidden, 1, TRI_PT2_BOOLEAN);
    if (rank != 4 && mask.kind != EXPORTED_NOTHING) mask = mask_of_four(b, mask, whole);
    for (int k = 0; k < 3 && rank != 4; k++) in[k] = four_axes(b, in[k]);
    int64_t queries = exported_size(b, &in[0], 2), keys = exported_size(b, &in[1], 2);
    if (o.causal && queries != keys) {
        o.causal = false;
        mask = causal_mask(c, queries, keys);
    }
    if (!exported_is_none(c, 6)) o.scale = exported_real(c, 6);
    bool is_host = mask.kind == EXPORTED_HOST, is_added = mask.dtype != TRI_PT2_BOOLEAN;
    if (is_host && !is_added && !exported_is_none(c, 8) && isfinite(exported_real(c, 8)) &&
        has_blind_query(&mask.host)) {
        exported_fail(c, "attention with a mask that lets a query see no key is not supported");
        return;
    }
    if (is_host && is_causal(&mask.host, is_added))
        o.causal = true;
    else if (mask.kind != EXPORTED_NOTHING && !(is_host && is_all_seen(&mask.host, is_added)))
        *(is_added ? &o.bias : &o.mask) =
            is_added ? exported_as_float(b, &mask) : exported_as_graph(b, &mask);
    const char *name =
        tri_name(b->graph, "%s.attention", *c->node->call ? c->node->call : "network");
    tri_share_layer(b->graph, name);
    tri_value y = tri_attention(b->graph, name, heads_inside(b, in[0]), heads_inside(b, in[1]),
                                heads_inside(b, in[2]), o);
    exported_value inside = exported_of_graph(y, exported_result_type(c, 0));
    inside = exported_permute(b, inside, (const int[]){0, 2, 1, 3});
    int64_t sizes[EXPORTED_MAX_RANK];
    for (int i = 0; i < rank; i++)
        sizes[i] = exported_size(b, i < rank - 1 ? &whole : &inside, i < rank - 1 ? i : 3);
    exported_give(c, rank == 4 ? inside : exported_reshape(b, inside, sizes, rank));
}

const exported_row exported_layer_rows[] = {
    ROW("aten.conv1d", "input weight bias=None stride=1 padding=0 dilation=1 groups=1",
        conv_forward),
    ROW("aten.conv2d", "input weight bias=None stride=1 padding=0 dilation=1 groups=1",
        conv_forward),
    ROW("aten.conv3d", "input weight bias=None stride=1 padding=0 dilation=1 groups=1",
        conv_forward),
    ROW("aten.conv_transpose1d",
        "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
        conv_backward),
    ROW("aten.conv_transpose2d",
        "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
        conv_backward),
    ROW("aten.conv_transpose3d",
        "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
        conv_backward),
    ROW("aten.convolution",
        "input weight bias stride padding dilation transposed output_padding groups", convolution),
    {"aten.batch_norm",
     "input weight=None bias=None running_mean=None running_var=None training momentum eps", NULL,
     batch_norm, "training", false},
    ROW("aten.layer_norm", "input normalized_shape weight=None bias=None eps=1e-05", layer_norm),
    ROW("aten.rms_norm", "input normalized_shape weight=None eps=None", rms_norm),
    ROW("aten.group_norm", "input num_groups weight=None bias=None eps=1e-05", group_norm),
    ROW("aten.instance_norm",
        "input weight=None bias=None running_mean=None running_var=None use_input_stats momentum "
        "eps",
        instance_norm),
    ROW("aten._weight_norm", "v g dim=0", weight_norm),
    ROW("aten._weight_norm_interface", "v g dim=0", weight_norm),
    DRAW("aten.dropout", "input p train", dropout, "train"),
    DRAW("aten.feature_dropout", "input p train", dropout_channels, "train"),
    DRAW("aten.alpha_dropout", "input p train", alpha_dropout, "train"),
    DRAW("aten.feature_alpha_dropout", "input p train", alpha_channels, "train"),
    DRAW("aten.rrelu", "self lower=0.125 upper=0.3333333333333333 training=False", rrelu, NULL),
    ROW("aten.scaled_dot_product_attention",
        "query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None hidden=None "
        "low=None",
        attention),
    {NULL, NULL, NULL, NULL, NULL, false},
};

// Operations with weights, and what else is a layer in nn.h. Weights are values: parameters, or
// what the network computes of them.
#include "nn/exported/build.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
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

// How ranks that share layers divide those of transformers, by the last part of their names in
// Hugging Face's models. strategy.tensor says otherwise.
static void divide(exported_call *c, const char *layer) {
    static const struct {
        const char *name;
        tri_split split;
    } rows[] = {{"q_proj", TRI_SPLIT_COLUMN},    {"k_proj", TRI_SPLIT_COLUMN},
                {"v_proj", TRI_SPLIT_COLUMN},    {"o_proj", TRI_SPLIT_ROW},
                {"gate_proj", TRI_SPLIT_COLUMN}, {"up_proj", TRI_SPLIT_COLUMN},
                {"down_proj", TRI_SPLIT_ROW}};
    const char *dot = strrchr(layer, '.');
    for (size_t i = 0; dot && i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(dot + 1, rows[i].name)) tri_split_layer(c->build->graph, layer, rows[i].split);
}

void exported_give_linear(exported_call *c, const char *layer, tri_linear_options o) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    tri_shape rows;
    if (!exported_has_rows(b, &x, &rows)) {
        exported_give_graph(c, tri_linear_with(b->graph, layer, exported_as_float(b, &x), o));
        return;
    }
    exported_value base = exported_of_graph(x.base, x.dtype);
    base = exported_reshape(b, base, rows.dims, rows.rank);
    tri_value y = tri_linear_with(b->graph, layer, exported_as_float(b, &base), o);
    if (b->graph->status == TRI_OK)
        exported_give(c, exported_of_rows(b, &x, y, exported_result_type(c, 0)));
}

static void linear(exported_call *c) {
    tri_linear_options o = {.features = size_of(c, 1, 0),
                            .weight_value = exported_tensor(c, 1),
                            .bias_value = exported_tensor(c, 2),
                            .no_bias = exported_is_none(c, 2)};
    const char *layer = exported_layer(c);
    exported_give_linear(c, layer, o);
    divide(c, layer);
}

static void matmul(exported_call *c) {
    exported_value a = exported_operand(c, 0), b = exported_operand(c, 1);
    exported_give_graph(c, tri_matmul(c->build->graph, exported_as_float(c->build, &a),
                                      exported_as_float(c->build, &b)));
}

static void addmm(exported_call *c) {
    exported_give_graph(c,
                        tri_addmm(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1),
                                  exported_tensor(c, 2), exported_real(c, 3), exported_real(c, 4)));
}

static void einsum(exported_call *c) {
    exported_value *values = TRI_NEW_ARRAY(c->build->graph->arena, exported_value, TRI_MAX_INPUTS);
    tri_value in[TRI_MAX_INPUTS];
    int count = exported_list(c, 1, values, TRI_MAX_INPUTS);
    for (int k = 0; k < count; k++) in[k] = exported_as_float(c->build, &values[k]);
    exported_give_graph(c, tri_einsum_values(c->build->graph, exported_text(c, 0), in, count));
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

// The full name of the parameter or buffer that argument k is; NULL: it is none.
static const char *full_name(const exported_call *c, int k) {
    const tri_pt2_argument *a = &c->arguments[k];
    const tri_pt2_port *port =
        a->kind == TRI_PT2_VALUE ? c->build->network->ports[a->number] : NULL;
    return port ? port->name : NULL;
}

// Whether argument k is the parameter or buffer LAYER.NAME.
static bool is_own(const exported_call *c, int k, const char *layer, const char *name) {
    const char *full = full_name(c, k);
    size_t length = strlen(layer);
    return full && !strncmp(full, layer, length) && full[length] == '.' &&
           !strcmp(full + length + 1, name);
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

// Batch norm keeps statistics, so it is a layer with PyTorch's names of parameters.
static void batch_norm(exported_call *c) {
    const char *mean = full_name(c, 3), *end = mean ? strrchr(mean, '.') : NULL;
    tri_graph *g = c->build->graph;
    bool is_plain = exported_is_none(c, 1) && exported_is_none(c, 2);
    const char *layer = end ? tri_name(g, "%.*s", (int)(end - mean), mean) : "";
    bool has_names = end && is_own(c, 3, layer, "running_mean") &&
                     is_own(c, 4, layer, "running_var") &&
                     (is_plain || (is_own(c, 1, layer, "weight") && is_own(c, 2, layer, "bias")));
    if (exported_is_none(c, 3) && exported_is_none(c, 4)) {
        norm_channels(c);
        return;
    }
    if (!has_names) {
        exported_fail(c, "batch norm without running statistics, weight and bias of its own module "
                         "is not supported");
        return;
    }
    tri_batch_norm_options o = {
        .eps = exported_real(c, 7), .plain = is_plain, .cumulative = exported_is_none(c, 6)};
    // Momentum 0 keeps the statistics as they are; of the layer it would mean the default.
    if (!o.cumulative) o.momentum = fmax(exported_real(c, 6), 1e-30);
    exported_give_graph(c, tri_batch_norm(g, layer, exported_tensor(c, 0), o));
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

static void layer_norm(exported_call *c) {
    norm_rows(c, &tri_op_layer_norm, as_row(c, 2), as_row(c, 3), exported_real(c, 4));
}

static void rms_norm(exported_call *c) {
    double eps = exported_is_none(c, 3) ? 0x1p-23 : exported_real(c, 3);
    tri_value weight = as_row(c, 2);
    if (exported_is_none(c, 2)) {
        exported_value x = exported_operand(c, 0);
        int64_t sizes[EXPORTED_MAX_RANK], width = 1;
        for (int k = exported_ints(c, 1, sizes, EXPORTED_MAX_RANK) - 1; k >= 0; k--)
            width *= sizes[k];
        exported_value ones = exported_host_fill(c->build, &width, 1, 1, x.dtype);
        ones.name = tri_name(c->build->graph, "ones.%lld", (long long)width);
        weight = exported_as_graph(c->build, &ones);
    }
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
    if (!exported_is_none(c, 3)) exported_fail(c, "instance norm with statistics is not supported");
    norm_groups(c, size_of(c, 0, 1), 1, 2, exported_real(c, 7));
}

static void embedding(exported_call *c) {
    exported_value ids = exported_operand(c, 1), table = exported_operand(c, 0);
    exported_build *b = c->build;
    int64_t padding = exported_int(c, 2);
    tri_value weight = exported_as_float(b, &table);
    if (padding >= 0) {
        // The row of the padding has no gradient.
        double *data, row = (double)padding;
        int64_t sizes[] = {exported_size(b, &table, 0), 1};
        exported_value number = exported_host_new(b, sizes, 2, TRI_PT2_LONG, &data);
        for (int64_t i = 0; number.kind == EXPORTED_HOST && i < sizes[0]; i++) data[i] = (double)i;
        exported_value is_row =
            exported_map_text(b, "i, k = 0 -> i == k", &row, &number, 1, TRI_PT2_BOOLEAN);
        is_row.name = tri_name(b->graph, "%s.padding", exported_layer(c));
        exported_value in[] = {exported_of_graph(weight, TRI_PT2_FLOAT32), is_row};
        exported_value kept =
            exported_map_text(b, "x, pads -> pads ? detach(x) : x", NULL, in, 2, TRI_PT2_FLOAT32);
        weight = kept.graph;
    }
    exported_give_graph(c, tri_node_add(b->graph, &tri_op_embedding,
                                        (tri_value[]){exported_as_graph(b, &ids), weight}, 2, NULL,
                                        exported_layer(c)));
}

static void dropout(exported_call *c) {
    double p = exported_real(c, 1);
    tri_value x = exported_tensor(c, 0);
    const char *name = *c->node->call ? c->node->call : "dropout";
    exported_give_graph(c, p > 0 ? tri_dropout(c->build->graph, name, x, p) : x);
}

static void dropout_channels(exported_call *c) {
    double p = exported_real(c, 1);
    tri_value x = exported_tensor(c, 0);
    const char *name = *c->node->call ? c->node->call : "dropout";
    exported_give_graph(c, p > 0 ? tri_dropout_channels(c->build->graph, name, x, p) : x);
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

static tri_value heads_inside(exported_call *c, int k) {
    exported_value x = exported_operand(c, k);
    x = exported_permute(c->build, x, (const int[]){0, 2, 1, 3});
    return exported_as_float(c->build, &x);
}

// query key value attn_mask dropout_p is_causal scale hidden; all [N, H, T, D]. `hidden` is the
// opposite of a mask.
static void attention(exported_call *c) {
    exported_build *b = c->build;
    tri_attention_options o = {.causal = exported_bool(c, 5), .dropout = exported_real(c, 4)};
    exported_value q = exported_operand(c, 0), k = exported_operand(c, 1);
    if (exported_rank(b, &q) != 4 || exported_rank(b, &k) != 4) {
        exported_fail(c, "attention of tensors that are not [N, H, T, D] is not supported");
        return;
    }
    if (o.causal && exported_size(b, &q, 2) != exported_size(b, &k, 2)) {
        exported_fail(c, "is_causal with other numbers of queries and keys is not supported");
        return;
    }
    if (!exported_is_none(c, 6)) o.scale = exported_real(c, 6);
    exported_value mask = exported_operand(c, 3), hidden = exported_operand(c, 7);
    if (hidden.kind != EXPORTED_NOTHING)
        mask = exported_map_text(b, "!x", NULL, &hidden, 1, TRI_PT2_BOOLEAN);
    bool is_host = mask.kind == EXPORTED_HOST, is_added = mask.dtype != TRI_PT2_BOOLEAN;
    if (is_host && is_causal(&mask.host, is_added))
        o.causal = true;
    else if (mask.kind != EXPORTED_NOTHING && !(is_host && is_all_seen(&mask.host, is_added)))
        *(is_added ? &o.bias : &o.mask) =
            is_added ? exported_as_float(b, &mask) : exported_as_graph(b, &mask);
    const char *name =
        tri_name(b->graph, "%s.attention", *c->node->call ? c->node->call : "network");
    tri_share_layer(b->graph, name);
    tri_value y = tri_attention(b->graph, name, heads_inside(c, 0), heads_inside(c, 1),
                                heads_inside(c, 2), o);
    exported_value inside = exported_of_graph(y, exported_result_type(c, 0));
    exported_give(c, exported_permute(b, inside, (const int[]){0, 2, 1, 3}));
}

const exported_row exported_layer_rows[] = {
    ROW("aten.linear", "input weight bias=None", linear),
    ROW("aten.matmul", "self other", matmul),
    ROW("aten.bmm", "self mat2", matmul),
    ROW("aten.mm", "self mat2", matmul),
    ROW("aten.mv", "self vec", matmul),
    ROW("aten.dot", "self tensor", matmul),
    ROW("aten.vdot", "self other", matmul),
    ROW("aten.addmm", "self mat1 mat2 beta=1 alpha=1", addmm),
    ROW("aten.baddbmm", "self batch1 batch2 beta=1 alpha=1", addmm),
    ROW("aten.einsum", "equation tensors path=None", einsum),
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
    ROW("aten.embedding", "weight indices padding_idx=-1", embedding),
    DRAW("aten.dropout", "input p train", dropout, "train"),
    DRAW("aten.feature_dropout", "input p train", dropout_channels, "train"),
    ROW("aten.scaled_dot_product_attention",
        "query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None hidden=None",
        attention),
    {NULL, NULL, NULL, NULL, NULL, false},
};

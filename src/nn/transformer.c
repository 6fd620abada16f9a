// Attention with its projections, and the layers of transformers, made of the layers of nn.h.
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>
#include <trireme/transformer.h>

// The projections of q, k and v. If all have the width E, the three weights are one parameter.
typedef struct projections {
    tri_graph *graph;
    const char *name;
    bool joined;
    int64_t width; // E
    tri_value weights[3], bias;
} projections;

static tri_value own(const projections *p, const char *what, tri_shape shape, tri_init_kind kind) {
    return tri_parameter(p->graph, nn_parameter_name(p->graph, p->name, what), shape,
                         (tri_init){.kind = kind});
}

static projections projections_of(tri_graph *g, const char *name, const tri_value in[3],
                                  bool no_bias) {
    static const char *const names[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    projections p = {.graph = g, .name = name, .joined = true};
    p.width = tri_value_shape(g, in[0]).dims[2];
    for (int i = 1; i < 3; i++) p.joined = p.joined && tri_value_shape(g, in[i]).dims[2] == p.width;
    if (p.joined)
        p.weights[0] =
            own(&p, "in_proj_weight", tri_shape_of(3 * p.width, p.width), TRI_INIT_XAVIER_UNIFORM);
    for (int i = 0; !p.joined && i < 3; i++)
        p.weights[i] = own(&p, names[i], tri_shape_of(p.width, tri_value_shape(g, in[i]).dims[2]),
                           TRI_INIT_XAVIER_UNIFORM);
    if (!no_bias) p.bias = own(&p, "in_proj_bias", tri_shape_of(3 * p.width), TRI_INIT_ZEROS);
    return p;
}

// Projects x to `count` of q, k and v, from number `first` on.
static tri_value project(const projections *p, tri_value x, int64_t first, int64_t count) {
    tri_linear_attr attr = {.axes = 1};
    tri_value weight = p->weights[p->joined ? 0 : first], bias = p->bias;
    int64_t from = first * p->width, to = (first + count) * p->width;
    if (p->joined && count < 3) weight = tri_slice(p->graph, weight, 0, from, to, 1);
    if (tri_value_is(bias) && count < 3) bias = tri_slice(p->graph, bias, 0, from, to, 1);
    return tri_node_add(p->graph, &tri_op_linear, (tri_value[]){x, weight, bias}, 3, &attr,
                        p->name);
}

// Part `part` of `parts` projections, as heads [N, T, H, D].
static tri_value heads_of(tri_graph *g, tri_value x, int64_t parts, int64_t part, int64_t heads) {
    tri_shape shape = tri_value_shape(g, x);
    if (parts > 1) x = tri_chunk(g, x, 2, parts, part);
    return tri_reshape(g, x, tri_shape_of(shape.dims[0], shape.dims[1], heads, -1));
}

// Whether q, k and v are [N, T, E], [N, S, ..] and [N, S, ..], and the heads take equal slices of
// E.
static bool fits(tri_graph *g, const char *name, const tri_value in[3], int64_t heads) {
    tri_shape shapes[3];
    for (int i = 0; i < 3; i++) {
        if (!tri_graph_check_input(g, "multihead_attention", name, in[i])) return false;
        shapes[i] = tri_value_shape(g, in[i]);
    }
    const int64_t *q = shapes[0].dims, *k = shapes[1].dims, *v = shapes[2].dims;
    char text[3][128];
    for (int i = 0; i < 3; i++) tri_shape_text(&shapes[i], text[i], sizeof text[i]);
    if (shapes[0].rank == 3 && shapes[1].rank == 3 && shapes[2].rank == 3 && q[0] == k[0] &&
        q[0] == v[0] && k[1] == v[1] && q[2] > 0 && heads > 0 && q[2] % heads == 0)
        return true;
    tri_graph_fail(
        g,
        "multihead_attention %s: q [N, T, E], k [N, S, ..] and v [N, S, ..] are %s, %s and %s; E "
        "must be a multiple of the %" PRId64 " heads",
        name, text[0], text[1], text[2], heads);
    return false;
}

// Adds one more key or value behind the others: a parameter, or zeros.
static tri_value with_own(const projections *p, const char *what, tri_value heads) {
    tri_shape shape = tri_value_shape(p->graph, heads);
    tri_value row = own(p, what, tri_shape_of(1, 1, p->width), TRI_INIT_XAVIER_NORMAL);
    row = tri_reshape(p->graph, row, tri_shape_of(1, 1, shape.dims[2], shape.dims[3]));
    shape.dims[1] = 1;
    return tri_concat(p->graph, (tri_value[]){heads, tri_expand(p->graph, row, shape)}, 2, 1);
}

// A mask or bias of S keys for `more` others behind them, which all queries see.
static tri_value for_more(tri_graph *g, tri_value x, int64_t keys, int64_t more, double value) {
    if (!tri_value_is(x)) return x;
    tri_shape shape = tri_value_shape(g, x);
    if (shape.rank > 0 && shape.dims[shape.rank - 1] == 1 && keys > 1) {
        shape.dims[shape.rank - 1] = keys;
        x = tri_expand(g, x, shape);
    }
    return tri_pad_constant(g, x, -1, 0, more, value);
}

// The options where keys that are no part of the sequence stand behind it.
static tri_attention_options options_for_more(tri_graph *g, tri_attention_options o,
                                              int64_t queries, int64_t keys, int64_t more) {
    if (more == 0 || g->status != TRI_OK) return o;
    o.mask = for_more(g, o.mask, keys, more, 1);
    o.bias = for_more(g, o.bias, keys, more, 0);
    if (!o.causal) return o;
    const char *formula =
        tri_name(g, "i, j -> j <= i + %" PRId64 " || j >= %" PRId64, keys - queries, keys);
    tri_value seen = tri_mask(g, formula, tri_unsqueeze(g, tri_arange(g, queries), 1),
                              tri_arange(g, keys + more));
    o.mask = tri_value_is(o.mask) ? tri_mask(g, "a, b -> a != 0 && b != 0", o.mask, seen) : seen;
    o.causal = false;
    return o;
}

tri_value tri_multihead_attention(tri_graph *graph, const char *name, tri_value q, tri_value k,
                                  tri_value v, tri_multihead_options o) {
    const tri_value in[] = {q, k, v};
    tri_value heads[3];
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!fits(graph, name, in, o.heads)) return (tri_value){0};
    tri_shape shape = tri_value_shape(graph, q);
    int64_t keys = tri_value_shape(graph, k).dims[1];
    projections p = projections_of(graph, name, in, o.no_bias);
    // Ranks that divide layers share the heads of self-attention.
    bool is_self = q.id == k.id && k.id == v.id && !o.own_key && !o.zero_key;
    if (is_self) tri_split_fused_layer(graph, name, 3);
    // Values that are the same are projected by one product.
    for (int i = 0, count; i < 3; i += count) {
        for (count = 1; p.joined && i + count < 3 && in[i + count].id == in[i].id;) count++;
        tri_value y = project(&p, in[i], i, count);
        for (int part = 0; part < count; part++)
            heads[i + part] = heads_of(graph, y, count, part, o.heads);
    }
    for (int i = 1; i < 3; i++) {
        if (o.own_key) heads[i] = with_own(&p, i == 1 ? "bias_k" : "bias_v", heads[i]);
        if (o.zero_key) heads[i] = tri_pad(graph, heads[i], 1, 0, 1);
    }
    tri_value y = tri_attention(
        graph, tri_name(graph, "%s.attention", name), heads[0], heads[1], heads[2],
        options_for_more(graph, o.attention, shape.dims[1], keys, o.own_key + o.zero_key));
    const char *out = tri_name(graph, "%s.out_proj", name);
    y = tri_linear_with(graph, out, tri_reshape(graph, y, shape),
                        (tri_linear_options){.features = p.width,
                                             .no_bias = o.no_bias,
                                             .bias_init = {.kind = TRI_INIT_ZEROS}});
    if (is_self) tri_split_layer(graph, out, TRI_SPLIT_ROW);
    return y;
}

// One layer that is being made.
typedef struct layer {
    tri_graph *graph;
    const char *name;
    tri_transformer_options o;
} layer;

static tri_value drop(const layer *l, const char *which, tri_value x) {
    if (l->o.dropout == 0) return x;
    return tri_dropout(l->graph, nn_parameter_name(l->graph, l->name, which), x, l->o.dropout);
}

static tri_value norm(const layer *l, const char *which, tri_value x) {
    return tri_layer_norm(l->graph, nn_parameter_name(l->graph, l->name, which), x,
                          (tri_layer_norm_options){.eps = l->o.eps});
}

static tri_value attend(const layer *l, const char *which, tri_value x, tri_value memory,
                        bool causal, tri_value mask) {
    tri_multihead_options o = {
        .heads = l->o.heads,
        .attention = {.causal = causal, .mask = mask, .dropout = l->o.dropout}};
    return tri_multihead_attention(l->graph, nn_parameter_name(l->graph, l->name, which), x, memory,
                                   memory, o);
}

static tri_value feed_forward(const layer *l, tri_value x) {
    tri_graph *g = l->graph;
    tri_shape shape = tri_value_shape(g, x);
    int64_t between = l->o.feedforward ? l->o.feedforward : 2048;
    if (shape.rank < 1) return x; // the graph has failed
    const char *one = nn_parameter_name(g, l->name, "linear1"),
               *two = nn_parameter_name(g, l->name, "linear2");
    tri_value y = tri_linear(g, one, x, between);
    tri_split_layer(g, one, TRI_SPLIT_COLUMN);
    tri_value (*activation)(tri_graph *, tri_value) = l->o.activation;
    if (!activation) activation = l->o.gelu ? tri_gelu : tri_relu;
    y = drop(l, "dropout", activation(g, y));
    y = tri_linear(g, two, y, shape.dims[shape.rank - 1]);
    tri_split_layer(g, two, TRI_SPLIT_ROW);
    return y;
}

// Adds part `number` of a layer to x: self-attention, attention to `memory`, or if `attention` is
// NULL the linear layers.
static tri_value add_part(const layer *l, int number, const char *attention, tri_value x,
                          const tri_value *memory) {
    tri_graph *g = l->graph;
    const char *norm_name = tri_name(g, "norm%d", number),
               *drop_name = tri_name(g, "dropout%d", number);
    tri_value from = l->o.norm_first ? norm(l, norm_name, x) : x, y;
    if (!attention)
        y = feed_forward(l, from);
    else if (memory)
        y = attend(l, attention, from, *memory, false, l->o.memory_mask);
    else
        y = attend(l, attention, from, from, l->o.causal, l->o.mask);
    y = tri_add(g, x, drop(l, drop_name, y));
    return l->o.norm_first ? y : norm(l, norm_name, y);
}

tri_value tri_transformer_encoder_layer(tri_graph *graph, const char *name, tri_value x,
                                        tri_transformer_options options) {
    layer l = {graph, name, options};
    x = add_part(&l, 1, "self_attn", x, NULL);
    return add_part(&l, 2, NULL, x, NULL);
}

tri_value tri_transformer_decoder_layer(tri_graph *graph, const char *name, tri_value x,
                                        tri_value memory, tri_transformer_options options) {
    layer l = {graph, name, options};
    x = add_part(&l, 1, "self_attn", x, NULL);
    x = add_part(&l, 2, "multihead_attn", x, &memory);
    return add_part(&l, 3, NULL, x, NULL);
}

static tri_value layers_of(tri_graph *g, const char *name, tri_value x, const tri_value *memory,
                           int64_t layers, bool final_norm, tri_transformer_options o) {
    if (layers < 1) {
        tri_graph_fail(g, "transformer %s: needs at least one layer, not %" PRId64, name, layers);
        return (tri_value){0};
    }
    for (int64_t i = 0; i < layers; i++) {
        const char *one = tri_name(g, "%s.layers.%d", name, (int)i);
        tri_block(g, one);
        x = memory ? tri_transformer_decoder_layer(g, one, x, *memory, o)
                   : tri_transformer_encoder_layer(g, one, x, o);
    }
    layer l = {g, name, o};
    return final_norm ? norm(&l, "norm", x) : x;
}

tri_value tri_transformer_encoder(tri_graph *graph, const char *name, tri_value x, int64_t layers,
                                  bool final_norm, tri_transformer_options options) {
    return layers_of(graph, name, x, NULL, layers, final_norm, options);
}

tri_value tri_transformer_decoder(tri_graph *graph, const char *name, tri_value x, tri_value memory,
                                  int64_t layers, bool final_norm,
                                  tri_transformer_options options) {
    return layers_of(graph, name, x, &memory, layers, final_norm, options);
}

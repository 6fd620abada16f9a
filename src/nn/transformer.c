// Attention with its projections, and the layers of transformers, made of the layers of nn.h.
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <trireme/functions.h>
#include <trireme/nn.h>
#include <trireme/transformer.h>

// Parts [first, first + count) of the three that the projections of q, k and v are joined of.
static tri_value project(tri_graph *g, const char *name, tri_value x, tri_value weight,
                         tri_value bias, int64_t first, int64_t count) {
    tri_linear_attr attr = {.axes = 1};
    int64_t width = tri_value_shape(g, weight).dims[1];
    if (count < 3) {
        weight = tri_slice(g, weight, 0, first * width, (first + count) * width, 1);
        if (tri_value_is(bias))
            bias = tri_slice(g, bias, 0, first * width, (first + count) * width, 1);
    }
    return tri_node_add(g, &tri_op_linear, (tri_value[]){x, weight, bias}, 3, &attr, name);
}

// Part `part` of `parts` projections, as heads [N, T, H, D].
static tri_value heads_of(tri_graph *g, tri_value x, int64_t parts, int64_t part, int64_t heads) {
    tri_shape shape = tri_value_shape(g, x);
    if (parts > 1) x = tri_chunk(g, x, 2, parts, part);
    return tri_reshape(g, x, tri_shape_of(shape.dims[0], shape.dims[1], heads, -1));
}

// Whether q, k and v are [N, T, E] and [N, S, E], of which the heads take equal slices.
static bool fits(tri_graph *g, const char *name, const tri_value in[3], int64_t heads) {
    tri_shape shapes[3];
    for (int i = 0; i < 3; i++) {
        if (!tri_graph_check_input(g, "multihead_attention", name, in[i])) return false;
        shapes[i] = tri_value_shape(g, in[i]);
    }
    const int64_t *q = shapes[0].dims, *k = shapes[1].dims;
    char text[3][128];
    for (int i = 0; i < 3; i++) tri_shape_text(&shapes[i], text[i], sizeof text[i]);
    if (shapes[0].rank == 3 && shapes[1].rank == 3 && tri_shape_equal(&shapes[1], &shapes[2]) &&
        q[0] == k[0] && q[2] == k[2] && q[2] > 0 && heads > 0 && q[2] % heads == 0)
        return true;
    tri_graph_fail(
        g,
        "multihead_attention %s: q [N, T, E], k and v [N, S, E] are %s, %s and %s; E must "
        "be a multiple of the %" PRId64 " heads",
        name, text[0], text[1], text[2], heads);
    return false;
}

tri_value tri_multihead_attention(tri_graph *graph, const char *name, tri_value q, tri_value k,
                                  tri_value v, tri_multihead_options o) {
    const tri_value in[] = {q, k, v};
    tri_value bias = {0}, heads[3];
    if (!tri_layer_begin(graph, name)) return bias;
    if (!fits(graph, name, in, o.heads)) return bias;
    tri_shape shape = tri_value_shape(graph, q);
    int64_t width = shape.dims[2];
    tri_value weight =
        tri_parameter(graph, nn_parameter_name(graph, name, "in_proj_weight"),
                      tri_shape_of(3 * width, width), (tri_init){.kind = TRI_INIT_XAVIER_UNIFORM});
    if (!o.no_bias)
        bias = tri_parameter(graph, nn_parameter_name(graph, name, "in_proj_bias"),
                             tri_shape_of(3 * width), (tri_init){.kind = TRI_INIT_ZEROS});
    // Values that are the same are projected by one product.
    for (int i = 0, count; i < 3; i += count) {
        for (count = 1; i + count < 3 && in[i + count].id == in[i].id;) count++;
        tri_value y = project(graph, name, in[i], weight, bias, i, count);
        for (int part = 0; part < count; part++)
            heads[i + part] = heads_of(graph, y, count, part, o.heads);
    }
    tri_value y = tri_attention(graph, tri_name(graph, "%s.attention", name), heads[0], heads[1],
                                heads[2], o.attention);
    return tri_linear_with(
        graph, tri_name(graph, "%s.out_proj", name), tri_reshape(graph, y, shape),
        (tri_linear_options){
            .features = width, .no_bias = o.no_bias, .bias_init = {.kind = TRI_INIT_ZEROS}});
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
    tri_value y = tri_linear(g, nn_parameter_name(g, l->name, "linear1"), x, between);
    y = drop(l, "dropout", (l->o.gelu ? tri_gelu : tri_relu)(g, y));
    return tri_linear(g, nn_parameter_name(g, l->name, "linear2"), y, shape.dims[shape.rank - 1]);
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

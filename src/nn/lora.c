// Low-rank adapters of linear layers: two small layers beside one whose weight stays as it is.
// Names, initial values and formula are peft's: A [rank, in] as PyTorch's linear layers begin, B
// [out, rank] zero, so that training begins with what the model computes without adapters.
#include "nn/lora.h"

#include "nn/layers.h"
#include "ops/ops.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

// The part of a name behind its last dot.
static const char *last_word(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool is_match(const char *pattern, const char *layer) {
    size_t length = strlen(layer), end = strlen(pattern);
    bool ends = length > end && layer[length - end - 1] == '.';
    return fnmatch(pattern, layer, 0) == 0 || (ends && !strcmp(layer + length - end, pattern));
}

static bool is_adapted(const tri_lora *lora, const char *layer) {
    for (int i = 0; i < lora->match.count; i++)
        if (is_match(lora->match.items[i], layer)) return true;
    return false;
}

// Adds a linear layer with one matrix of an adapter.
static tri_value multiply(tri_graph *g, const char *name, tri_value x, tri_value weight,
                          tri_shape shape, tri_init init, tri_split follows) {
    if (!tri_layer_begin(g, name)) return (tri_value){0};
    tri_value matrix = tri_parameter_of_role(g, nn_parameter_name(g, name, "weight"),
                                             g->options.dtype, shape, init, TRI_ROLE_TRAINED, 0);
    if (g->status != TRI_OK) return (tri_value){0};
    tri_parameter_info *info = &g->parameters[tri_value_get(g, matrix)->index];
    info->adapts = 1 + tri_value_get(g, weight)->index;
    info->follows = follows;
    return tri_node_add(g, &tri_op_linear, (tri_value[]){x, matrix}, 2,
                        &(tri_linear_attr){.axes = 1}, name);
}

tri_value nn_adapt(tri_graph *graph, const char *layer, tri_value x, tri_value weight,
                   tri_value y) {
    const tri_lora *lora = &graph->options.lora;
    if (graph->status != TRI_OK || !is_adapted(lora, layer)) return y;
    tri_shape shape = tri_value_shape(graph, weight);
    int64_t out = shape.dims[0], in = shape.dims[1], rank = lora->rank;
    if (rank > in || rank > out) {
        tri_graph_fail(graph,
                       "lora.rank: %" PRId64 " is more than the layer %s has, of %" PRId64
                       " inputs and %" PRId64 " outputs",
                       rank, layer, in, out);
        return y;
    }
    x = nn_dropout(graph, nn_parameter_name(graph, layer, "lora_dropout"), x, lora->dropout);
    x = multiply(graph, nn_parameter_name(graph, layer, "lora_A"), x, weight,
                 tri_shape_of(rank, in), nn_fan_in_uniform(in), TRI_SPLIT_ROW);
    x = multiply(graph, nn_parameter_name(graph, layer, "lora_B"), x, weight,
                 tri_shape_of(out, rank), (tri_init){.kind = TRI_INIT_ZEROS}, TRI_SPLIT_COLUMN);
    return tri_add(graph, y, tri_mul_scalar(graph, x, lora->alpha / (double)rank));
}

// The layer of parameter `index`.
static const char *layer_of(const tri_graph *g, int index) {
    const char *name = g->parameters[index].name;
    return tri_arena_printf(g->arena, "%.*s", (int)tri_parameter_layer(name), name);
}

// The names of the layers that can have an adapter.
static int list_linear(const tri_graph *g, const char **out) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (node->op != &tri_op_linear || !*node->name) continue;
        const tri_value_info *weight = tri_value_get(g, node->inputs[1]);
        if (weight->kind != TRI_VALUE_PARAMETER || g->parameters[weight->index].adapts) continue;
        const char *layer = layer_of(g, weight->index);
        if (!strcmp(layer, node->name)) out[count++] = layer;
    }
    return count;
}

static bool finds_adapter(const tri_graph *g, const char *pattern) {
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].adapts && is_match(pattern, layer_of(g, g->parameters[i].adapts - 1)))
            return true;
    return false;
}

// Reports a pattern that has found no layer.
static tri_status refuse(const tri_graph *g, const char *pattern) {
    for (int i = 0; i < g->layer_count; i++)
        if (is_match(pattern, g->layers[i].name))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "lora.match: '%s' matches %s, which is no linear layer with a weight "
                            "of its own: only such layers have adapters",
                            pattern, g->layers[i].name);
    const char **layers = TRI_NEW_ARRAY(g->arena, const char *, g->node_count);
    const char **words = TRI_NEW_ARRAY(g->arena, const char *, g->node_count);
    int count = list_linear(g, layers);
    for (int i = 0; i < count; i++) words[i] = last_word(layers[i]);
    const char *near = tri_option_nearest(pattern, layers, count);
    const char *word = near ? NULL : tri_option_nearest(last_word(pattern), words, count);
    for (int i = 0; i < count && !near; i++)
        if (word == words[i]) near = layers[i];
    if (count == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "lora.match: '%s' matches no layer: the model has no linear "
                        "layer",
                        pattern);
    return TRI_FAIL(TRI_BAD_INPUT, "lora.match: '%s' matches no layer; %s is '%s'", pattern,
                    near ? "the nearest" : "the first linear one", near ? near : layers[0]);
}

tri_status tri_lora_check(const tri_graph *graph) {
    const tri_strings *match = &graph->options.lora.match;
    for (int i = 0; i < match->count; i++)
        if (!finds_adapter(graph, match->items[i])) TRI_TRY(refuse(graph, match->items[i]));
    return TRI_OK;
}

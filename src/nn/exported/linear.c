// Linear layers: how ranks divide them, and their adapters.
#include "nn/exported/build.h"
#include "nn/layers.h"

#include <string.h>
#include <trireme/nn.h>

// How ranks that share layers divide those of transformers, by the last part of their names in
// Hugging Face's models. strategy.tensor says otherwise. A layer is several beside each other, if
// it may be and is as many times as wide as its input.
static void divide(exported_call *c, const char *layer, int64_t in, int64_t out) {
    static const struct {
        const char *name;
        tri_split split;
        bool is_fused;
    } rows[] = {{"q_proj", TRI_SPLIT_COLUMN, false},    {"k_proj", TRI_SPLIT_COLUMN, false},
                {"v_proj", TRI_SPLIT_COLUMN, false},    {"o_proj", TRI_SPLIT_ROW, false},
                {"gate_proj", TRI_SPLIT_COLUMN, false}, {"up_proj", TRI_SPLIT_COLUMN, false},
                {"down_proj", TRI_SPLIT_ROW, false},    {"c_attn", TRI_SPLIT_COLUMN, true},
                {"c_fc", TRI_SPLIT_COLUMN, false},      {"c_proj", TRI_SPLIT_ROW, false}};
    const char *dot = strrchr(layer, '.');
    for (size_t i = 0; dot && i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(dot + 1, rows[i].name) != 0) continue;
        if (!rows[i].is_fused)
            tri_split_layer(c->build->graph, layer, rows[i].split);
        else if (out == 2 * in || out == 3 * in)
            tri_split_fused_layer(c->build->graph, layer, (int)(out / in));
    }
}

const char *exported_full_name(const exported_call *c, int k) {
    const tri_pt2_argument *a = &c->arguments[k];
    const tri_pt2_port *port =
        a->kind == TRI_PT2_VALUE ? c->build->network->ports[a->number] : NULL;
    return port ? port->name : NULL;
}

bool exported_is_own(const exported_call *c, int k, const char *layer, const char *name) {
    const char *full = exported_full_name(c, k);
    size_t length = strlen(layer);
    return full && !strncmp(full, layer, length) && full[length] == '.' &&
           !strcmp(full + length + 1, name);
}

// Whether that parameter has no other name, under which it is known (a tied weight).
static bool is_first_name(const exported_call *c, int k) {
    const nn_exported *n = c->build->network;
    const tri_pt2_port *port = n->ports[c->arguments[k].number];
    return exported_parameter_name(n, port) == port->name;
}

// What a linear layer makes of x, with an adapter if the recipe wants one. As in peft, only a
// module has one whose weight is its own.
static tri_value multiply(exported_call *c, const char *layer, tri_value x, tri_linear_options o) {
    tri_graph *g = c->build->graph;
    tri_value y = tri_linear_with(g, layer, x, o);
    bool is_own_weight = exported_is_own(c, 1, layer, "weight") && is_first_name(c, 1);
    return is_own_weight ? nn_adapt(g, layer, x, o.weight_value, y) : y;
}

// Gives what a linear layer makes of the first argument. A call with its weights in `o`.
static void give_linear(exported_call *c, const char *layer, tri_linear_options o) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    tri_shape rows;
    if (!exported_has_rows(b, &x, &rows)) {
        exported_give_graph(c, multiply(c, layer, exported_as_float(b, &x), o));
        return;
    }
    exported_value base = exported_of_graph(x.base, x.dtype);
    base = exported_reshape(b, base, rows.dims, rows.rank);
    tri_value y = multiply(c, layer, exported_as_float(b, &base), o);
    if (b->graph->status == TRI_OK)
        exported_give(c, exported_of_rows(b, &x, y, exported_result_type(c, 0)));
}

static void linear(exported_call *c) {
    exported_value weight = exported_operand(c, 1);
    int rank = exported_rank(c->build, &weight);
    tri_linear_options o = {.features = rank > 0 ? exported_size(c->build, &weight, 0) : 0,
                            .weight_value = exported_tensor(c, 1),
                            .bias_value = exported_tensor(c, 2),
                            .no_bias = exported_is_none(c, 2)};
    const char *layer = exported_layer(c);
    give_linear(c, layer, o);
    divide(c, layer, rank > 1 ? exported_size(c->build, &weight, 1) : 0, o.features);
}

// x weight bias: the weight [in, out] of a linear layer is kept as [out, in], and files have it
// transposed.
static void conv1d(exported_call *c) {
    exported_build *b = c->build;
    tri_graph *g = b->graph;
    tri_value weight = exported_tensor(c, 1);
    if (g->status != TRI_OK) return;
    tri_value_info *value = &g->values[weight.id];
    tri_parameter_info *info = &g->parameters[value->index];
    int64_t in = info->shape.dims[0], out = info->shape.dims[1];
    info->stored_transposed = true;
    info->shape = value->shape = tri_shape_of(out, in);
    tri_linear_options o = {
        .features = out, .weight_value = weight, .bias_value = exported_tensor(c, 2)};
    const char *layer = exported_layer(c);
    give_linear(c, layer, o);
    divide(c, layer, in, out);
}

const exported_row exported_linear_rows[] = {
    ROW("aten.linear", "input weight bias=None", linear),
    ROW("fused.conv1d", "x weight bias", conv1d),
    {NULL, NULL, NULL, NULL, NULL, false},
};

// Recurrent layers, and their single steps.
#include "nn/exported/build.h"

#include <string.h>
#include <trireme/nn.h>
#include <trireme/recurrent.h>

// Recurrent layers are built by the names of their parameters.
typedef tri_value recurrent_function(tri_graph *, const char *, tri_value, tri_recurrent_options,
                                     tri_recurrent_states *);

// The states [layers, N, H] of argument k, with the samples first; none, if they are zeros.
static tri_value state_of(exported_call *c, exported_value state) {
    if (state.kind == EXPORTED_HOST && exported_count(c->build, &state) > 0) {
        exported_host one = state.host;
        for (int i = 0; i < one.rank; i++)
            if (one.strides[i] == 0) one.sizes[i] = 1;
        int64_t index[EXPORTED_MAX_RANK] = {0};
        bool is_zero = true;
        do is_zero = is_zero && exported_host_at(&one, index) == 0;
        while (exported_host_next(&one, index));
        if (is_zero) return (tri_value){0};
    }
    state = exported_permute(c->build, state, (const int[]){1, 0, 2});
    return exported_as_float(c->build, &state);
}

// input hx params has_biases num_layers dropout train bidirectional batch_first
static void recurrent(exported_call *c, recurrent_function *function, bool has_cells, bool relu) {
    exported_build *b = c->build;
    const tri_pt2_argument *params = &c->arguments[2];
    const tri_pt2_argument *first =
        params->kind == TRI_PT2_LIST && params->count > 1 ? &params->items[1] : NULL;
    const tri_pt2_port *port =
        first && first->kind == TRI_PT2_VALUE ? b->network->ports[first->number] : NULL;
    static const char END[] = ".weight_hh_l0";
    size_t length = port ? strlen(port->name) : 0, tail = sizeof END - 1;
    if (length < tail || strcmp(port->name + length - tail, END) != 0) {
        exported_fail(c, "the weights of a recurrent layer have to be its own parameters");
        return;
    }
    const int64_t *hh = b->network->file.values[first->number].sizes,
                  *ih = hh ? b->network->file.values[params->items[0].number].sizes : NULL;
    int64_t gates = has_cells ? 4 : function == tri_gru ? 3 : 1;
    exported_value states[2];
    tri_recurrent_options o = {.hidden = ih ? ih[0] / gates : 0,
                               .layers = exported_int(c, 4),
                               .bidirectional = exported_bool(c, 7),
                               .no_bias = !exported_bool(c, 3),
                               .dropout = exported_real(c, 5),
                               .relu = relu};
    if (hh && hh[1] != o.hidden) o.projection = hh[1];
    bool is_list = c->arguments[1].kind == TRI_PT2_LIST;
    int count = is_list ? exported_list(c, 1, states, 2) : 1;
    if (!is_list) states[0] = exported_operand(c, 1);
    o.h = state_of(c, states[0]);
    if (count > 1) o.c = state_of(c, states[1]);
    exported_value x = exported_operand(c, 0);
    bool batch_first = exported_bool(c, 8);
    if (!batch_first) x = exported_permute(b, x, (const int[]){1, 0, 2});
    tri_recurrent_states last;
    const char *name = tri_name(b->graph, "%.*s", (int)(length - tail), port->name);
    tri_share_layer(b->graph, name);
    tri_value y = function(b->graph, name, exported_as_float(b, &x), o, &last);
    exported_value result = exported_of_graph(y, x.dtype);
    exported_give_at(c, 0,
                     batch_first ? result : exported_permute(b, result, (const int[]){1, 0, 2}));
    for (int k = 0; k < (has_cells ? 2 : 1); k++) {
        exported_value state = exported_of_graph(k ? last.c : last.h, x.dtype);
        exported_give_at(c, 1 + k, exported_permute(b, state, (const int[]){1, 0, 2}));
    }
}

static void lstm(exported_call *c) { recurrent(c, tri_lstm, true, false); }
static void gru(exported_call *c) { recurrent(c, tri_gru, false, false); }
static void rnn_tanh(exported_call *c) { recurrent(c, tri_rnn, false, false); }
static void rnn_relu(exported_call *c) { recurrent(c, tri_rnn, false, true); }

// The sums of a cell's gates, [N, gates · H], of the input and of the state.
static void gates_of(exported_call *c, exported_value h, exported_value *out) {
    exported_build *b = c->build;
    exported_value in[] = {exported_operand(c, 0), h};
    for (int k = 0; k < 2; k++) {
        exported_value weight = exported_operand(c, 2 + k);
        tri_linear_options o = {.features = exported_size(b, &weight, 0),
                                .weight_value = exported_tensor(c, 2 + k),
                                .bias_value = exported_tensor(c, 4 + k),
                                .no_bias = exported_is_none(c, 4 + k)};
        tri_value y = tri_linear_with(b->graph, exported_layer(c), exported_as_float(b, &in[k]), o);
        out[k] = exported_of_graph(y, exported_result_type(c, 0));
    }
}

// A cell's result by a formula of its gates, then the gates of the state where they are given
// apart, then the state.
static exported_value cell(exported_call *c, const char *formula, const exported_value *sums,
                           int tensors, int gates, exported_value state) {
    exported_build *b = c->build;
    exported_value in[TRI_FORMULA_INPUTS];
    int inputs = 0;
    for (int k = 0; k < tensors; k++)
        for (int i = 0; i < gates; i++) {
            int64_t width = exported_size(b, &sums[k], 1) / gates;
            in[inputs++] = exported_slice(b, sums[k], 1, i * width, (i + 1) * width, 1);
        }
    if (state.kind != EXPORTED_NOTHING) in[inputs++] = state;
    return exported_map_text(b, formula, NULL, in, inputs, exported_result_type(c, 0));
}

// The gates, those of the input and of the state added up.
static exported_value gates_in_all(exported_call *c, exported_value h) {
    exported_value sums[2];
    gates_of(c, h, sums);
    return exported_map_text(c->build, "a, b -> a + b", NULL, sums, 2, exported_result_type(c, 0));
}

static void lstm_cell(exported_call *c) {
    exported_value states[2];
    if (exported_list(c, 1, states, 2) != 2) return;
    exported_value sums = gates_in_all(c, states[0]);
    int64_t width = exported_size(c->build, &sums, 1) / 4;
    exported_value first = exported_slice(c->build, sums, 1, 0, 3 * width, 1),
                   last = exported_slice(c->build, sums, 1, 3 * width, 4 * width, 1),
                   next = cell(c, "i, f, g, c -> sigmoid(f) * c + sigmoid(i) * tanh(g)", &first, 1,
                               3, states[1]);
    exported_give(c, cell(c, "o, c -> sigmoid(o) * tanh(c)", &last, 1, 1, next));
    exported_give_at(c, 1, next);
}

static void gru_cell(exported_call *c) {
    exported_value state = exported_operand(c, 1), sums[2];
    gates_of(c, state, sums);
    exported_give(c, cell(c,
                          "r, z, n, a, b, d, h, m = tanh(n + sigmoid(r + a) * d) "
                          "-> m + sigmoid(z + b) * (h - m)",
                          sums, 2, 3, state));
}

static void simple_cell(exported_call *c, const char *formula) {
    exported_value sums = gates_in_all(c, exported_operand(c, 1));
    exported_give(c,
                  exported_map_text(c->build, formula, NULL, &sums, 1, exported_result_type(c, 0)));
}

static void tanh_cell(exported_call *c) { simple_cell(c, "tanh(x)"); }
static void relu_cell(exported_call *c) { simple_cell(c, "relu(x)"); }

#define RECURRENT                                                                                  \
    "input hx params has_biases num_layers dropout train bidirectional batch_first=False"
#define CELL "input hx w_ih w_hh b_ih=None b_hh=None"

const exported_row exported_recurrent_rows[] = {
    ROW("aten.lstm.input", RECURRENT, lstm),
    ROW("aten.gru.input", RECURRENT, gru),
    ROW("aten.rnn_tanh.input", RECURRENT, rnn_tanh),
    ROW("aten.rnn_relu.input", RECURRENT, rnn_relu),
    ROW("aten.lstm_cell", CELL, lstm_cell),
    ROW("aten.gru_cell", CELL, gru_cell),
    ROW("aten.rnn_tanh_cell", CELL, tanh_cell),
    ROW("aten.rnn_relu_cell", CELL, relu_cell),
    {NULL, NULL, NULL, NULL, NULL, false},
};

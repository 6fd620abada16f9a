// Recurrent layers over whole sequences.
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

#define RECURRENT                                                                                  \
    "input hx params has_biases num_layers dropout train bidirectional batch_first=False"

const exported_row exported_recurrent_rows[] = {
    ROW("aten.lstm.input", RECURRENT, lstm),
    ROW("aten.gru.input", RECURRENT, gru),
    ROW("aten.rnn_tanh.input", RECURRENT, rnn_tanh),
    ROW("aten.rnn_relu.input", RECURRENT, rnn_relu),
    {NULL, NULL, NULL, NULL, NULL},
};

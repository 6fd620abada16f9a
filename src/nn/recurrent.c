// Recurrent layers. What x adds to the gates of all steps is one linear layer; the steps themselves
// are one op for each layer and direction.
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/nn.h>
#include <trireme/recurrent.h>

// What is the same for all layers and directions of one call.
typedef struct context {
    tri_graph *graph;
    const char *op, *name;
    tri_recurrent_options o;
    tri_recurrent_attr attr;
    int64_t samples, directions;
    bool is_cell; // its parameters have no number of a layer
    bool wants_last;
    // Of sequences that have lengths, all [N, steps, 1]: 1 before the end of each; the steps of the
    // opposite direction, of which those behind the end stay; and the last one.
    tri_value inside, flipped, end;
} context;

static tri_value parameter(const context *c, const char *what, int64_t layer, bool reverse,
                           tri_shape shape, tri_init init) {
    double bound = 1 / sqrt((double)c->o.hidden);
    tri_init uniform = {.kind = TRI_INIT_UNIFORM, .low = -bound, .high = bound};
    const char *name = c->is_cell ? nn_parameter_name(c->graph, c->name, what)
                                  : tri_name(c->graph, "%s.%s_l%d%s", c->name, what, (int)layer,
                                             reverse ? "_reverse" : "");
    return tri_parameter(c->graph, name, shape, nn_init_or(init, uniform));
}

static tri_value bias(const context *c, const char *what, int64_t layer, bool reverse) {
    int64_t width = tri_recurrent_gates(c->attr.kind) * c->o.hidden;
    if (c->o.no_bias) return (tri_value){0};
    return parameter(c, what, layer, reverse, tri_shape_of(width), c->o.bias_init);
}

// The size of h, which an LSTM may project.
static int64_t state_size(const context *c) {
    return c->o.projection ? c->o.projection : c->o.hidden;
}

static tri_value only_inside(const context *c, tri_value x) {
    return tri_map(c->graph, "x, inside -> inside ? x : 0", x, c->inside);
}

// Finds what sequences with lengths need. x [N, T, in].
static void find_ends(context *c, tri_value x) {
    tri_graph *g = c->graph;
    int64_t steps = tri_value_shape(g, x).dims[1];
    tri_value t = tri_reshape(g, tri_arange(g, steps), tri_shape_of(1, steps, 1));
    const char *within = tri_name(g, "n -> min(max(n, 1), %" PRId64 ")", steps);
    tri_value n = tri_reshape(g, tri_map(g, within, c->o.lengths), tri_shape_of(c->samples, 1, 1));
    c->inside = tri_mask(g, "t, n -> t < n", t, n);
    c->flipped = tri_map(g, "t, n -> t < n ? n - 1 - t : t", t, n);
    c->end = tri_map(g, "n - 1", n);
}

// Lets the cells of an LSTM stay as they are behind the end of a sequence: far from 0, the input's
// gate is 0 and that of forgetting 1.
static tri_value hold_cells(const context *c, tri_value gates) {
    enum { FAR = 10000 };
    int64_t hidden = c->o.hidden, width = 4 * hidden;
    float *values = TRI_NEW_ARRAY(c->graph->arena, float, width);
    for (int64_t i = 0; i < 2 * hidden; i++) values[i] = i < hidden ? -FAR : FAR;
    tri_value held =
        tri_constant(c->graph, tri_name(c->graph, "%s.held", c->name), tri_shape_of(width), values);
    return tri_map(c->graph, "x, inside, held -> inside ? x : x + held", gates, c->inside, held);
}

// What the first h [N, projection] adds to the gates of the first step, those of all others being
// 0. steps: the gates' shape.
static tri_value first_gates(const context *c, tri_value h, tri_value weight, bool reverse,
                             const tri_shape *steps) {
    int axis = c->o.time_first ? 0 : 1;
    int64_t others = steps->dims[axis] - 1;
    tri_value gates = tri_node_add(c->graph, &tri_op_linear, (tri_value[]){h, weight, {0}}, 3,
                                   &(tri_linear_attr){.axes = 1}, c->name);
    return tri_pad(c->graph, tri_unsqueeze(c->graph, gates, axis), axis, reverse ? others : 0,
                   reverse ? 0 : others);
}

// One layer in one direction. Adds its last states to the lists h and c.
//
// With a projection R, a step reads W·h where h = R·u and u is what an LSTM without one has as its
// state. So it is such an LSTM with the weight W·R, and R is applied to all steps at once.
static tri_value direction(const context *c, tri_value x, int64_t layer, bool reverse,
                           tri_value *last_h, tri_value *last_c) {
    tri_graph *g = c->graph;
    tri_shape shape = tri_value_shape(g, x);
    int64_t width = tri_recurrent_gates(c->attr.kind) * c->o.hidden, in = shape.dims[2];
    tri_recurrent_attr attr = c->attr;
    tri_linear_attr linear = {.axes = 1};
    tri_value states[2] = {c->o.h, c->o.c};
    bool has_ends = tri_value_is(c->inside), flips = has_ends && reverse;
    attr.reverse = reverse && !has_ends;
    if (flips) x = tri_take_along(g, x, 1, c->flipped);
    tri_value input =
        parameter(c, "weight_ih", layer, reverse, tri_shape_of(width, in), c->o.weight_init);
    tri_value weight = parameter(c, "weight_hh", layer, reverse, tri_shape_of(width, state_size(c)),
                                 c->o.weight_init);
    tri_value of_input = bias(c, "bias_ih", layer, reverse);
    tri_value of_state = bias(c, "bias_hh", layer, reverse), projection = {0};
    tri_value gates =
        tri_node_add(g, &tri_op_linear, (tri_value[]){x, input, of_input}, 3, &linear, c->name);
    for (int i = 0; i < 2; i++)
        if (tri_value_is(states[i]))
            states[i] = tri_select(g, states[i], 1, layer * c->directions + reverse);
    if (c->o.projection) {
        tri_shape steps = tri_value_shape(g, gates);
        projection = parameter(c, "weight_hr", layer, reverse,
                               tri_shape_of(c->o.projection, c->o.hidden), c->o.weight_init);
        if (tri_value_is(states[0]))
            gates = tri_add(g, gates, first_gates(c, states[0], weight, attr.reverse, &steps));
        states[0] = (tri_value){0};
        weight = tri_matmul(g, weight, projection);
    }
    if (has_ends && c->wants_last && attr.kind == TRI_RECURRENT_LSTM) gates = hold_cells(c, gates);
    tri_value y = tri_node_add(g, &tri_op_recurrent,
                               (tri_value[]){gates, weight, of_state, states[0], states[1]}, 5,
                               &attr, c->name);
    if (!tri_value_is(y)) return y;
    *last_h = tri_node_output(g, y, 1);
    *last_c = tri_node_output(g, y, 2);
    tri_value ends[2] = {y, *last_h};
    for (int i = 0; i < 2 && c->o.projection; i++)
        ends[i] = tri_node_add(g, &tri_op_linear, (tri_value[]){ends[i], projection, {0}}, 3,
                               &linear, c->name);
    y = ends[0];
    *last_h = has_ends ? tri_squeeze(g, tri_take_along(g, y, 1, c->end), 1) : ends[1];
    if (has_ends) y = only_inside(c, y);
    return flips ? tri_take_along(g, y, 1, c->flipped) : y;
}

// Dropout between layers. Its random numbers are those of samples, so these become the first axis.
static tri_value drop(const context *c, tri_value y, int64_t layer) {
    const char *name = tri_name(c->graph, "%s.dropout_l%d", c->name, (int)layer);
    if (c->o.dropout == 0) return y;
    if (!c->o.time_first) return tri_dropout(c->graph, name, y, c->o.dropout);
    y = tri_dropout(c->graph, name, tri_transpose(c->graph, y, 0, 1), c->o.dropout);
    return tri_transpose(c->graph, y, 0, 1);
}

static bool check_state(const context *c, const char *what, tri_value state, int64_t size) {
    tri_shape want = tri_shape_of(c->samples, c->o.layers * c->directions, size);
    char is[128], wanted[128];
    if (!tri_value_is(state)) return true;
    if (!tri_graph_takes_value(c->graph, c->op, c->name, state)) return false;
    tri_shape shape = tri_value_shape(c->graph, state);
    if (tri_shape_equal(&shape, &want)) return true;
    tri_graph_fail(c->graph, "%s %s: %s must be [N, layers * directions, %s] %s, but is %s", c->op,
                   c->name, what, size == c->o.hidden ? "hidden" : "projection",
                   tri_shape_text(&want, wanted, sizeof wanted),
                   tri_shape_text(&shape, is, sizeof is));
    return false;
}

static bool check(context *c, tri_value x) {
    if (!tri_graph_check_input(c->graph, c->op, c->name, x)) return false;
    tri_shape shape = tri_value_shape(c->graph, x);
    char text[128];
    if (shape.rank != 3 || tri_shape_count(&shape) < 1) {
        tri_graph_fail(c->graph, "%s %s: x must be [%s, in] without an empty axis, but is %s",
                       c->op, c->name, c->o.time_first ? "T, N" : "N, T",
                       tri_shape_text(&shape, text, sizeof text));
        return false;
    }
    c->samples = shape.dims[c->o.time_first];
    if (c->o.layers == 0) c->o.layers = 1;
    if (c->o.hidden < 1 || c->o.layers < 1 || c->o.layers > 1000) {
        tri_graph_fail(c->graph, "%s %s: needs hidden > 0 and 1 to 1000 layers", c->op, c->name);
        return false;
    }
    if (tri_value_is(c->o.lengths)) {
        if (!tri_graph_takes_value(c->graph, c->op, c->name, c->o.lengths)) return false;
        tri_shape of = tri_value_shape(c->graph, c->o.lengths), want = tri_shape_of(c->samples);
        if (!tri_shape_equal(&of, &want) ||
            tri_value_get(c->graph, c->o.lengths)->dtype != TRI_I64) {
            tri_graph_fail(c->graph, "%s %s: lengths must be I64 [%" PRId64 "], but are %s", c->op,
                           c->name, c->samples, tri_shape_text(&of, text, sizeof text));
            return false;
        }
    }
    if (tri_value_is(c->o.c) && c->attr.kind != TRI_RECURRENT_LSTM) {
        tri_graph_fail(c->graph, "%s %s: only an LSTM has a state c", c->op, c->name);
        return false;
    }
    if (c->o.projection != 0 && (c->attr.kind != TRI_RECURRENT_LSTM || c->o.projection < 0 ||
                                 c->o.projection >= c->o.hidden)) {
        tri_graph_fail(c->graph,
                       "%s %s: only an LSTM has a projection, which must be above 0 and below its "
                       "%" PRId64 " hidden units, not %" PRId64,
                       c->op, c->name, c->o.hidden, c->o.projection);
        return false;
    }
    return check_state(c, "h", c->o.h, state_size(c)) && check_state(c, "c", c->o.c, c->o.hidden);
}

static tri_value build(context c, tri_value x, tri_recurrent_states *last) {
    tri_graph *g = c.graph;
    if (last) *last = (tri_recurrent_states){{0}, {0}};
    if (!tri_layer_begin(g, c.name) || !check(&c, x)) return (tri_value){0};
    bool turns = c.o.time_first && tri_value_is(c.o.lengths);
    c.wants_last = last != NULL;
    if (turns) {
        x = tri_transpose(g, x, 0, 1);
        c.o.time_first = c.attr.time_first = false;
    }
    if (tri_value_is(c.o.lengths)) {
        find_ends(&c, x);
        x = only_inside(&c, x);
    }
    int64_t count = c.o.layers * c.directions;
    tri_value *h = TRI_NEW_ARRAY(g->arena, tri_value, count);
    tri_value *cells = TRI_NEW_ARRAY(g->arena, tri_value, count), y[2] = {x};
    for (int64_t layer = 0; layer < c.o.layers; layer++) {
        x = y[0];
        if (layer > 0) x = drop(&c, x, layer - 1);
        for (int64_t d = 0; d < c.directions; d++) {
            int64_t i = layer * c.directions + d;
            y[d] = direction(&c, x, layer, d == 1, &h[i], &cells[i]);
        }
        if (c.directions == 2) y[0] = tri_concat(g, y, 2, 2);
    }
    if (last) last->h = tri_stack(g, h, (int)count, 1);
    if (last && c.attr.kind == TRI_RECURRENT_LSTM) last->c = tri_stack(g, cells, (int)count, 1);
    return turns ? tri_transpose(g, y[0], 0, 1) : y[0];
}

static context context_of(tri_graph *g, const char *op, const char *name, tri_recurrent_options o,
                          tri_recurrent_kind kind) {
    return (context){.graph = g,
                     .op = op,
                     .name = name,
                     .o = o,
                     .attr = {.kind = kind, .time_first = o.time_first, .keeps = tri_training(g)},
                     .directions = o.bidirectional ? 2 : 1};
}

tri_value tri_lstm(tri_graph *graph, const char *name, tri_value x, tri_recurrent_options options,
                   tri_recurrent_states *last) {
    return build(context_of(graph, "lstm", name, options, TRI_RECURRENT_LSTM), x, last);
}

tri_value tri_gru(tri_graph *graph, const char *name, tri_value x, tri_recurrent_options options,
                  tri_recurrent_states *last) {
    return build(context_of(graph, "gru", name, options, TRI_RECURRENT_GRU), x, last);
}

tri_value tri_rnn(tri_graph *graph, const char *name, tri_value x, tri_recurrent_options options,
                  tri_recurrent_states *last) {
    tri_recurrent_kind kind = options.relu ? TRI_RECURRENT_RELU : TRI_RECURRENT_TANH;
    return build(context_of(graph, "rnn", name, options, kind), x, last);
}

// One step is a sequence of one.
static tri_value cell(tri_graph *g, const char *op, const char *name, tri_value x, tri_value h,
                      tri_value *c, tri_recurrent_options o, tri_recurrent_kind kind) {
    tri_recurrent_options one = {.hidden = o.hidden,
                                 .no_bias = o.no_bias,
                                 .relu = o.relu,
                                 .weight_init = o.weight_init,
                                 .bias_init = o.bias_init};
    tri_recurrent_states last;
    if (!tri_graph_check_input(g, op, name, x)) return (tri_value){0};
    if (tri_value_shape(g, x).rank != 2) {
        tri_graph_fail(g, "%s %s: x must be [N, in]", op, name);
        return (tri_value){0};
    }
    if (tri_value_is(h)) one.h = tri_unsqueeze(g, h, 1);
    if (c && tri_value_is(*c)) one.c = tri_unsqueeze(g, *c, 1);
    context of = context_of(g, op, name, one, kind);
    of.is_cell = true;
    tri_value y = build(of, tri_unsqueeze(g, x, 1), &last);
    if (!tri_value_is(y)) return y;
    if (c) *c = tri_squeeze(g, last.c, 1);
    return tri_squeeze(g, y, 1);
}

tri_value tri_lstm_cell(tri_graph *graph, const char *name, tri_value x, tri_value h, tri_value *c,
                        tri_recurrent_options options) {
    return cell(graph, "lstm_cell", name, x, h, c, options, TRI_RECURRENT_LSTM);
}

tri_value tri_gru_cell(tri_graph *graph, const char *name, tri_value x, tri_value h,
                       tri_recurrent_options options) {
    return cell(graph, "gru_cell", name, x, h, NULL, options, TRI_RECURRENT_GRU);
}

tri_value tri_rnn_cell(tri_graph *graph, const char *name, tri_value x, tri_value h,
                       tri_recurrent_options options) {
    tri_recurrent_kind kind = options.relu ? TRI_RECURRENT_RELU : TRI_RECURRENT_TANH;
    return cell(graph, "rnn_cell", name, x, h, NULL, options, kind);
}

// Compares recurrent layers with PyTorch (recurrent_tables.h) and with the same layers made of
// products and functions: outputs, last states and all gradients, on `ref`, `cpu` and the emulated
// GPU. Also checks what they refuse.
#include "support/torch_check.h"

#include <trireme/recurrent.h>

#include "grad/recurrent_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// A vector of all elements of values.
static tri_value joined(tri_graph *g, const tri_value *values, int count) {
    tri_value flat[3];
    for (int i = 0; i < count; i++)
        flat[i] = tri_reshape(g, values[i], (tri_shape){.rank = 1, .dims = {-1}});
    return count == 1 ? flat[0] : tri_concat(g, flat, count, 0);
}

static tri_value recurrent(tri_graph *g, const char *name, tri_value x, tri_recurrent_options o,
                           int states) {
    tri_recurrent_states last;
    tri_shape shape = tri_value_shape(g, x);
    int64_t rows = (o.layers ? o.layers : 1) * (o.bidirectional ? 2 : 1);
    tri_shape state = tri_shape_of(shape.dims[o.time_first], rows, o.hidden), of_h = state;
    if (o.projection) of_h.dims[2] = o.projection;
    if (states > 0) o.h = tri_parameter(g, "h", of_h, (tri_init){0});
    if (states > 1) o.c = tri_parameter(g, "c", state, (tri_init){0});
    if (strstr(name, "packed")) {
        const char *below = tri_name(g, "index below %d", (int)shape.dims[!o.time_first]);
        tri_shape samples = tri_shape_of(state.dims[0]);
        o.lengths = tri_map(g, "n + 1", tri_input(g, below, TRI_I64, samples));
    }
    if (name[0] == 'l') {
        tri_value y = tri_lstm(g, "l", x, o, &last);
        return joined(g, (tri_value[]){y, last.h, last.c}, 3);
    }
    tri_value y = (name[0] == 'g' ? tri_gru : tri_rnn)(g, "l", x, o, &last);
    return joined(g, (tri_value[]){y, last.h}, 2);
}

// One step, of x [N, in].
static tri_value one_cell(tri_graph *g, const char *name, tri_value x, int states, int64_t hidden) {
    tri_recurrent_options o = {.hidden = hidden};
    tri_shape state = tri_shape_of(tri_value_shape(g, x).dims[0], hidden);
    tri_value h = {0}, c = {0};
    if (states > 0) h = tri_parameter(g, "h", state, (tri_init){0});
    if (states > 1) c = tri_parameter(g, "c", state, (tri_init){0});
    if (name[0] != 'l') {
        h = (name[0] == 'g' ? tri_gru_cell : tri_rnn_cell)(g, "l", x, h, o);
        return joined(g, &h, 1);
    }
    h = tri_lstm_cell(g, "l", x, h, &c, o);
    return joined(g, (tri_value[]){h, c}, 2);
}

// What each row of torch_recurrent is here.
static tri_value layer(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, states, ...)                                                                    \
    if (!strcmp(name, text))                                                                       \
        return recurrent(g, name, x, (tri_recurrent_options){.hidden = __VA_ARGS__}, states);
    const char *found = strstr(name, " cell");
    if (found && name[0] == 'l') return one_cell(g, name, x, found[5] ? 0 : 2, found[5] ? 2 : 5);
    if (found) return one_cell(g, name, x, 1, name[0] == 'g' ? 5 : 4);
    CASE("lstm", 0, 6)
    CASE("lstm of one", 0, 1)
    CASE("lstm without bias", 0, 5, .no_bias = true)
    CASE("lstm of layers", 0, 5, .layers = 3)
    CASE("lstm both ways", 2, 4, .layers = 2, .bidirectional = true)
    CASE("lstm from a state", 2, 7)
    CASE("lstm time first", 2, 6, .bidirectional = true, .time_first = true)
    CASE("lstm of blocks", 0, 32)
    CASE("lstm of many", 2, 19)
    CASE("lstm projected", 0, 6, .projection = 3)
    CASE("lstm projected to one", 2, 2, .projection = 1)
    CASE("lstm projected both ways", 0, 5, .layers = 2, .bidirectional = true, .projection = 2,
         .no_bias = true)
    CASE("lstm projected of states", 2, 5, .bidirectional = true, .projection = 4)
    CASE("lstm projected time first", 2, 3, .projection = 2, .time_first = true)
    CASE("lstm packed", 0, 3)
    CASE("lstm packed of one", 0, 1)
    CASE("lstm packed both ways", 2, 4, .layers = 2, .bidirectional = true)
    CASE("lstm packed projected", 2, 5, .bidirectional = true, .projection = 2, .time_first = true)
    CASE("gru packed", 1, 3)
    CASE("gru packed both ways", 1, 4, .layers = 2, .bidirectional = true, .time_first = true)
    CASE("rnn packed both ways", 1, 4, .bidirectional = true)
    CASE("gru", 0, 6)
    CASE("gru of one", 0, 1)
    CASE("gru without bias", 0, 5, .no_bias = true)
    CASE("gru both ways", 1, 4, .layers = 2, .bidirectional = true)
    CASE("gru from a state", 1, 7)
    CASE("gru time first", 1, 6, .time_first = true)
    CASE("gru of blocks", 0, 64)
    CASE("rnn", 0, 6)
    CASE("rnn of one", 0, 1)
    CASE("rnn both ways", 1, 4, .layers = 2, .bidirectional = true)
    CASE("rnn relu", 1, 2, .relu = true)
    CASE("rnn relu without bias", 0, 3, .relu = true, .layers = 2, .no_bias = true)
#undef CASE
    fail_msg("there is no case for %s", name);
    return x;
}

static void test_torch(void **state) {
    for (size_t i = 0; i < COUNT(torch_recurrent); i++)
        torch_check_devices(&torch_recurrent[i], layer, 1e-10, 1e-4);
}

// Finite differences, of all kinds, from states that are trained too.
static void test_differences(void **state) {
    for (int kind = 0; kind < TRI_RECURRENT_KINDS; kind++) {
        subject s = begin();
        int64_t width = 2 * tri_recurrent_gates(kind);
        tri_recurrent_attr attr = {.kind = kind, .reverse = kind % 2, .keeps = true};
        tri_value in[5] = {trained(&s, "gates", tri_shape_of(3, 4, width)),
                           trained(&s, "weight", tri_shape_of(width, 2)),
                           trained(&s, "bias", tri_shape_of(width)),
                           trained(&s, "h", tri_shape_of(3, 2))};
        if (kind == TRI_RECURRENT_LSTM) in[4] = trained(&s, "c", tri_shape_of(3, 2));
        tri_value y = tri_node_add(s.graph, &tri_op_recurrent, in, 5, &attr, "");
        tri_value all[] = {y, tri_node_output(s.graph, y, 1), tri_node_output(s.graph, y, 2)};
        check(&s, distance(&s, joined(s.graph, all, kind == TRI_RECURRENT_LSTM ? 3 : 2)));
    }
}

// One step of an LSTM or a GRU as a user would write it: gates of x and of h are products.
static tri_value one_step(tri_graph *g, bool is_gru, tri_value of_x, tri_value of_h, tri_value h,
                          tri_value *c) {
    tri_value x[4], p[4];
    for (int k = 0; k < (is_gru ? 3 : 4); k++) {
        x[k] = tri_chunk(g, of_x, 1, is_gru ? 3 : 4, k);
        p[k] = tri_chunk(g, of_h, 1, is_gru ? 3 : 4, k);
    }
    if (is_gru) {
        tri_value r = tri_sigmoid(g, tri_add(g, x[0], p[0]));
        tri_value z = tri_sigmoid(g, tri_add(g, x[1], p[1]));
        tri_value n = tri_map(g, "x, r, p -> tanh(x + r * p)", x[2], r, p[2]);
        return tri_lerp(g, n, h, z);
    }
    tri_value i = tri_sigmoid(g, tri_add(g, x[0], p[0]));
    tri_value f = tri_sigmoid(g, tri_add(g, x[1], p[1]));
    tri_value cell = tri_tanh(g, tri_add(g, x[2], p[2]));
    tri_value o = tri_sigmoid(g, tri_add(g, x[3], p[3]));
    *c = tri_map(g, "f, c, i, cell -> f * c + i * cell", f, *c, i, cell);
    return tri_mul(g, o, tri_tanh(g, *c));
}

static tri_value own(tri_graph *g, const char *name, tri_shape shape) {
    return tri_parameter(g, name, shape, (tri_init){0});
}

// The layer of the name, made of primitives, with the same parameters in the same order.
static tri_value composed(tri_graph *g, const char *name, tri_value x) {
    enum { UNITS = 7 };
    bool is_gru = name[0] == 'g';
    tri_shape shape = tri_value_shape(g, x);
    int64_t samples = shape.dims[0], width = (is_gru ? 3 : 4) * UNITS;
    tri_shape state = tri_shape_of(samples, 1, UNITS);
    tri_value h = tri_squeeze(g, own(g, "h", state), 1), c = {0}, y = {0};
    if (!is_gru) c = tri_squeeze(g, own(g, "c", state), 1);
    tri_value of_x = own(g, "x weight", tri_shape_of(width, shape.dims[2]));
    tri_value of_h = own(g, "h weight", tri_shape_of(width, UNITS));
    tri_value x_bias = own(g, "x bias", tri_shape_of(width));
    tri_value h_bias = own(g, "h bias", tri_shape_of(width));
    for (int64_t t = 0; t < shape.dims[1]; t++) {
        tri_value now = tri_select(g, x, 1, t);
        tri_value a = tri_add(g, tri_matmul(g, now, tri_transpose(g, of_x, 0, 1)), x_bias);
        tri_value b = tri_add(g, tri_matmul(g, h, tri_transpose(g, of_h, 0, 1)), h_bias);
        h = one_step(g, is_gru, a, b, h, &c);
        tri_value step = tri_unsqueeze(g, h, 1);
        y = t == 0 ? step : tri_concat(g, (tri_value[]){y, step}, 2, 1);
    }
    return joined(g, (tri_value[]){y, h, c}, is_gru ? 2 : 3);
}

// The same layer made of primitives: it has the same results as the op.
static void test_composed(void **state) {
    for (size_t i = 0; i < COUNT(torch_recurrent); i++) {
        if (!strstr(torch_recurrent[i].name, "from a state")) continue;
        torch_check_devices(&torch_recurrent[i], composed, 1e-10, 1e-4);
    }
}

// Only the last state is wanted: y has no gradient.
static void test_last_state_alone(void **state) {
    for (int kind = 0; kind < 2; kind++) {
        subject s = begin();
        tri_value x = trained(&s, "x", tri_shape_of(2, 3, 4));
        tri_recurrent_states last;
        tri_recurrent_options o = {.hidden = 3, .layers = 2, .bidirectional = true};
        (kind ? tri_gru : tri_lstm)(s.graph, "l", x, o, &last);
        check(&s, distance(&s, kind ? last.h : last.c));
    }
}

// The names and sizes of PyTorch's state dict, in its order, and the range of initial weights.
static void test_names(void **state) {
    static const char *const names[] = {
        "l.weight_ih_l0",         "l.weight_hh_l0",         "l.bias_ih_l0",
        "l.bias_hh_l0",           "l.weight_ih_l0_reverse", "l.weight_hh_l0_reverse",
        "l.bias_ih_l0_reverse",   "l.bias_hh_l0_reverse",   "l.weight_ih_l1",
        "l.weight_hh_l1",         "l.bias_ih_l1",           "l.bias_hh_l1",
        "l.weight_ih_l1_reverse", "l.weight_hh_l1_reverse", "l.bias_ih_l1_reverse",
        "l.bias_hh_l1_reverse"};
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 3, 4));
    tri_recurrent_options o = {.hidden = 16, .layers = 2, .bidirectional = true};
    tri_value y = tri_lstm(g, "l", x, o, NULL);
    tri_shape shape = tri_value_shape(g, y), want = tri_shape_of(2, 3, 32);
    assert_true(tri_shape_equal(&shape, &want));
    assert_int_equal(g->parameter_count, COUNT(names));
    for (size_t i = 0; i < COUNT(names); i++) {
        const tri_parameter_info *p = &g->parameters[i];
        assert_string_equal(p->name, names[i]);
        assert_int_equal(p->shape.dims[0], 64);
        if (i % 4 < 2) assert_int_equal(p->shape.dims[1], i % 4 == 1 ? 16 : i < 8 ? 4 : 32);
        assert_int_equal(p->init.kind, TRI_INIT_UNIFORM);
        assert_true(p->init.low == -0.25 && p->init.high == 0.25);
    }
    op_graph_close(g);
}

static void test_refuses(void **state) {
    tri_recurrent_attr lstm = {.kind = TRI_RECURRENT_LSTM}, gru = {.kind = TRI_RECURRENT_GRU};
#define OF(...) tri_parameter(g, "p", tri_shape_of(__VA_ARGS__), (tri_init){0})
#define NODE(attr, ...)                                                                            \
    tri_node_add(g, &tri_op_recurrent, (tri_value[5]){__VA_ARGS__}, 5, &(attr), "")
    tri_value none = {0};
    tri_shape gates = tri_shape_of(2, 3, 12);
    OP_REFUSED("recurrent|gates|3 axes", tri_shape_of(2, 12), NODE(lstm, x, OF(12, 3)));
    OP_REFUSED("recurrent|weight|[16, 4]|[12, 4]", gates, NODE(lstm, x, OF(12, 4)));
    OP_REFUSED("recurrent|gates|[2, 3, 16]|[2, 3, 12]", gates, NODE(lstm, x, OF(16, 4)));
    OP_REFUSED("recurrent|bias|[12]|[3]", gates,
               NODE(lstm, x, OF(12, 3), tri_constant(g, "c", tri_shape_of(3), (float[3]){0})));
    OP_REFUSED("recurrent|h must be|[2, 4]|[2, 3, 12]", gates, NODE(gru, x, OF(12, 4), none, x));
    OP_REFUSED("recurrent|c must be|[2, 3]", gates, NODE(lstm, x, OF(12, 3), none, none, x));
    OP_REFUSED("recurrent|state c", gates, NODE(gru, x, OF(12, 4), none, none, x));
    OP_REFUSED("recurrent|empty", tri_shape_of(2, 0, 12), NODE(lstm, x, OF(12, 3)));
    lstm.kind = 4;
    OP_REFUSED("recurrent|kind 4", gates, NODE(lstm, x, OF(12, 3)));
    tri_shape good = tri_shape_of(2, 3, 4);
#define LAYER(kind, ...) tri_##kind(g, "l", x, (tri_recurrent_options){__VA_ARGS__}, NULL)
    OP_REFUSED("lstm l|[N, T, in]|[2, 3]", tri_shape_of(2, 3), LAYER(lstm, .hidden = 3));
    OP_REFUSED("gru l|[T, N, in]|[2]", tri_shape_of(2),
               LAYER(gru, .hidden = 3, .time_first = true));
    OP_REFUSED("rnn l|[2, 0, 4]", tri_shape_of(2, 0, 4), LAYER(rnn, .hidden = 3));
    OP_REFUSED("gru l|lengths|I64 [2]|[3]", good,
               LAYER(gru, .hidden = 3, .lengths = tri_arange(g, 3)));
    OP_REFUSED("lstm l|lengths|I64 [2]|[2]", good, LAYER(lstm, .hidden = 3, .lengths = OF(2)));
    OP_REFUSED("lstm l|hidden", good, LAYER(lstm, .hidden = 0));
    OP_REFUSED("gru l|layers", good, LAYER(gru, .hidden = 3, .layers = -1));
    OP_REFUSED("gru l|state c", good, LAYER(gru, .hidden = 3, .c = x));
    OP_REFUSED("lstm l|h must be|[2, 1, 3]|[2, 3, 4]", good, LAYER(lstm, .hidden = 3, .h = x));
    OP_REFUSED("lstm l|c must be|[2, 4, 3]|[2, 3, 4]", good,
               LAYER(lstm, .hidden = 3, .layers = 2, .bidirectional = true, .c = x));
    OP_REFUSED("lstm l|projection|3 hidden|not 3", good, LAYER(lstm, .hidden = 3, .projection = 3));
    OP_REFUSED("lstm l|projection|-1", good, LAYER(lstm, .hidden = 3, .projection = -1));
    OP_REFUSED("gru l|projection", good, LAYER(gru, .hidden = 3, .projection = 2));
    OP_REFUSED("lstm l|h must be|projection|[2, 1, 2]", good,
               LAYER(lstm, .hidden = 3, .projection = 2, .h = x));
    OP_REFUSED("dropout l.dropout_l0|1.5", good,
               LAYER(lstm, .hidden = 3, .layers = 2, .dropout = 1.5));
    OP_REFUSED("'l'", good, (LAYER(lstm, .hidden = 3), LAYER(gru, .hidden = 3)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),    cmocka_unit_test(test_differences),
        cmocka_unit_test(test_composed), cmocka_unit_test(test_last_state_alone),
        cmocka_unit_test(test_names),    cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

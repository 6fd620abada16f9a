// Builds random graphs of recurrent layers with their gradients.
#include "support/op_families.h"

#include <math.h>

void op_build_recurrent(op_case *c) {
    tri_recurrent_attr a = {.kind = op_draw(c, 0, TRI_RECURRENT_KINDS - 1),
                            .reverse = op_chance(c, 40),
                            .time_first = op_chance(c, 40),
                            .keeps = true};
    int64_t samples = op_draw(c, 1, 9), steps = op_draw(c, 1, 8);
    int64_t units = op_chance(c, 40) ? 16 * op_draw(c, 1, 8) : op_draw(c, 1, 40);
    if (op_chance(c, 20)) samples = op_draw(c, 10, 40);
    int64_t width = tri_recurrent_gates(a.kind) * units;
    tri_shape state = tri_shape_of(samples, units), sequence = tri_shape_of(samples, steps, width);
    if (a.time_first) sequence = tri_shape_of(steps, samples, width);
    double bound = 1 / sqrt((double)units); // larger weights would double rounding errors each step
    bool is_lstm = a.kind == TRI_RECURRENT_LSTM;
    tri_value in[5] = {op_numbers(c, sequence, -2, 2),
                       op_numbers(c, tri_shape_of(width, units), -bound, bound)};
    if (op_chance(c, 70)) in[2] = op_numbers(c, tri_shape_of(width), -1, 1);
    if (op_chance(c, 60)) in[3] = op_numbers(c, state, -1, 1);
    if (is_lstm && op_chance(c, 60)) in[4] = op_numbers(c, state, -1, 1);
    tri_value y = tri_node_add(c->graph, &tri_op_recurrent, in, 5, &a, "");
    tri_value out_grads[TRI_MAX_OUTPUTS] = {{0}}, in_grads[TRI_MAX_INPUTS] = {{0}};
    sequence.dims[2] = units;
    if (op_chance(c, 80)) out_grads[0] = op_numbers(c, sequence, -1, 1);
    if (op_chance(c, 40)) out_grads[1] = op_numbers(c, state, -1, 1);
    if (is_lstm && op_chance(c, 40)) out_grads[2] = op_numbers(c, state, -1, 1);
    const bool wanted[TRI_MAX_INPUTS] = {true, true, tri_value_is(in[2]), true, is_lstm};
    tri_node node = *tri_value_node(c->graph, y); // nodes may move while more are added
    node.op->gradient(c->graph, &node, out_grads, wanted, in_grads);
    a.keeps = false; // as in evaluation
    tri_node_add(c->graph, &tri_op_recurrent, in, 5, &a, "");
}

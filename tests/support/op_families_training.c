// Random graphs of what training adds to a model, which op_compare runs on two devices: optimizer
// updates; the ops that compute sums over gradients and losses, and step_numbers, which turns these
// sums into the learning rate and factors of the update; and a network with its backward pass.
#include "support/op_families.h"

#include "pass/pass.h"

#include <trireme/nn.h>

void op_build_update(op_case *c) {
    tri_shape shape = tri_shape_of(op_chance(c, 50) ? op_draw(c, 1, 40) : op_draw(c, 100, 5000));
    double decay = op_chance(c, 50) ? 0.01 : 0;
    double factor = op_chance(c, 50) ? 1 : 0.3;
    tri_sgd_attr sgd = {.lr_factor = factor, .momentum = 0.9, .weight_decay = decay};
    sgd.nesterov = op_chance(c, 30);
    if (!sgd.nesterov && op_chance(c, 50)) sgd.dampening = 0.5;
    if (!sgd.nesterov && op_chance(c, 30)) sgd.momentum = 0;
    tri_adam_attr adam = {
        .lr_factor = factor, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = decay};
    adam.decoupled = op_chance(c, 50);
    tri_adadelta_attr adadelta = {
        .lr_factor = factor, .rho = 0.9, .eps = 1e-6, .weight_decay = decay};
    tri_value in[TRI_MAX_INPUTS] = {op_wide_unit(c, shape), op_wide_unit(c, shape),
                                    op_step_scalars(c, (int)op_draw(c, 1, 3), op_chance(c, 15)),
                                    op_wide(c, shape, 0, 1), op_wide(c, shape, 0, 1)};
    static const char *const rules[] = {
        "p, g, k, lr -> p - lr * sign(g * k)",
        "p, g, k, lr, m -> p - lr * (0.9 * m + g * k), 0.8 * m + 0.2 * g * k",
        "p, g, k, lr, m, u, t -> p + lr / expm1(t * -0.1) * m / (u + 0.01), m + g * k, max(u, "
        "abs(g))"};
    int rule = (int)op_draw(c, 0, 2);
    tri_map_update_attr mapped = {.lr_factor = factor};
    TRI_ASSERT(tri_formula_parse(rules[rule], NULL, &mapped.formula) == TRI_OK);
    switch (op_draw(c, 0, 5)) {
    case 0:
        if (sgd.momentum == 0) in[3] = (tri_value){0};
        op_add(c, &tri_op_sgd, in, &sgd);
        break;
    case 1:
        op_add(c, &tri_op_adam, in, &adam);
        break;
    case 2:
        op_add(c, &tri_op_adadelta, in, &adadelta);
        break;
    case 3:
        for (int k = rule; k < 2; k++) in[3 + k] = (tri_value){0};
        op_add(c, &tri_op_map_update, in, &mapped);
        break;
    case 4:
        op_add(c, &tri_op_average_weights, in, NULL);
        break;
    default:
        op_add(c, &tri_op_moving_average, in,
               &(tri_moving_average_attr){op_chance(c, 50) ? 0.1 : 0});
    }
}

void op_build_step_numbers(op_case *c) {
    int64_t chunk = op_chance(c, 50) ? op_draw(c, 1, 4096) : 0, chunks = op_draw(c, 1, 9);
    int64_t count = chunk ? chunk * chunks : op_draw(c, 1, 40000);
    tri_sum_of_squares_attr squares = {.chunk = chunk};
    tri_value x = op_wide_unit(c, tri_shape_of(count));
    tri_value rows = op_double(c, tri_shape_of(op_draw(c, 1, 9), op_draw(c, 1, 40)), -1, 1);
    op_add(c, &tri_op_sum_of_squares, &x, &squares);
    op_add(c, &tri_op_sum_rows, &rows, NULL);
    int64_t losses = op_draw(c, 1, 3), stride = op_draw(c, 2, 8), first = op_draw(c, 0, 5);
    int64_t width = first + losses * stride;
    tri_step_numbers_attr attr = {.loss = first, .losses = losses, .stride = stride};
    attr.count = op_chance(c, 50) ? first + 1 : -1;
    // The carried numbers (what one step hands to the next on the device) are all 0, or none is. If
    // none is 0, TRI_CARRIED_HALTED is set too, so the step is skipped.
    int most = op_chance(c, 30) ? 64 : 0;
    tri_value carried = op_double(c, tri_shape_of(TRI_CARRIED_COUNT), most / 64, most);
    tri_value in[] = {
        carried, op_double(c, tri_shape_of(TRI_STEP_CONTROL_COUNT), op_chance(c, 50), 1),
        op_double(c, tri_shape_of(width), -0.5, 2), op_double(c, tri_shape_of(1), 0, 100)};
    op_add(c, &tri_op_loss_seeds,
           (tri_value[]){carried, op_double(c, tri_shape_of(op_draw(c, 1, 5), 2), -0.5, 2)}, NULL);
    op_add(c, &tri_op_step_numbers, in, &attr);
}

// A whole small network with its backward pass, so that several layouts are combined. It uses leaky
// ReLU with a slope of 0.9: a result near 0 may have another sign on the device than on `ref`, and
// then ReLU's gradient would be 0 in place of 1, but that of leaky ReLU 0.9.
void op_build_network(op_case *c) {
    tri_graph *g = c->graph;
    int64_t n = op_draw(c, 1, 4), wide = 16 * op_draw(c, 1, 2), size = op_draw(c, 14, 20);
    tri_value x = tri_input(g, "images", TRI_F32, tri_shape_of(n, 1, size, size));
    c->sources[c->source_count++] = (op_source){x, OP_SOURCE_NUMBERS, 0, 1};
    tri_conv2d_options conv = {.channels = wide, .kernel = 3, .padding = op_draw(c, 0, 1)};
    tri_value h = tri_leaky_relu(g, tri_conv2d(g, "conv1", x, conv), 0.9);
    conv.channels = 16 * op_draw(c, 1, 3);
    h = tri_conv2d(g, "conv2", h, conv);
    h = tri_max_pool2d(g, h, (tri_pool2d_options){.kernel = 2});
    h = tri_dropout(g, "drop", h, 0.25);
    h = tri_linear(g, "fc1", tri_flatten(g, h), 64);
    h = tri_linear(g, "fc2", tri_leaky_relu(g, h, 0.9), 10);
    tri_value labels = op_labels(c, tri_shape_of(n), 10);
    op_position(c);
    for (int i = 0; i < g->parameter_count; i++)
        c->sources[c->source_count++] =
            (op_source){g->parameters[i].value, OP_SOURCE_NUMBERS, -0.1, 0.1};
    tri_loss(g, tri_cross_entropy(g, h, labels));
    tri_precision precision = c->dtype == TRI_BF16  ? TRI_PRECISION_BF16_MIXED
                              : c->dtype == TRI_F16 ? TRI_PRECISION_16_MIXED
                                                    : TRI_PRECISION_32_TRUE;
    if (tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF) != TRI_OK ||
        tri_pass_precision(g, precision) != TRI_OK || tri_pass_autodiff(g) != TRI_OK)
        tri_graph_fail(g, "%s", tri_error_message());
}

#include "base/limits.h"
#include "base/philox.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <trireme/nn.h>

// "conv1" and "weight" make "conv1.weight".
static const char *join(tri_graph *g, const char *layer, const char *parameter) {
    return tri_arena_printf(g->arena, "%s.%s", layer, parameter);
}

// PyTorch's default for linear and convolution: Kaiming uniform with a = √5 comes to ±1/√fan_in,
// for the weight and for the bias.
static tri_init fan_in_uniform(int64_t fan_in) {
    double bound = fan_in > 0 ? 1.0 / sqrt((double)fan_in) : 0;
    return (tri_init){.kind = TRI_INIT_UNIFORM, .a = -bound, .b = bound};
}

static tri_value one_input(tri_graph *g, const tri_op *op, tri_value x, const void *attr,
                           const char *name) {
    return tri_node_add(g, op, &x, 1, attr, name);
}

tri_value tri_linear(tri_graph *graph, const char *name, tri_value x, int64_t features) {
    if (graph->status != TRI_OK) return (tri_value){0};
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 1 || features < 1) {
        tri_graph_fail(graph, "linear %s: needs an input with an axis and features > 0", name);
        return (tri_value){0};
    }
    int64_t in = shape.dims[shape.rank - 1];
    tri_init init = fan_in_uniform(in);
    tri_value weight =
        tri_parameter(graph, join(graph, name, "weight"), tri_shape_of(features, in), init);
    tri_value bias = tri_parameter(graph, join(graph, name, "bias"), tri_shape_of(features), init);
    tri_linear_attr attr = {.axes = 1};
    return tri_node_add(graph, &tri_op_linear, (tri_value[]){x, weight, bias}, 3, &attr, name);
}

static int64_t or_one(int64_t value) { return value ? value : 1; }

tri_value tri_conv2d(tri_graph *graph, const char *name, tri_value x, tri_conv2d_options o) {
    if (graph->status != TRI_OK) return (tri_value){0};
    tri_shape shape = tri_value_shape(graph, x);
    int64_t groups = or_one(o.groups), stride = or_one(o.stride), dilation = or_one(o.dilation);
    if (shape.rank != 4 || o.channels < 1 || o.kernel < 1 || groups < 1 || shape.dims[1] % groups ||
        o.channels % groups) {
        char text[128];
        tri_graph_fail(graph,
                       "conv2d %s: needs [N, C, H, W] with C and channels divisible by groups, "
                       "not %s with channels %lld, kernel %lld, groups %lld",
                       name, tri_shape_text(&shape, text, sizeof text), (long long)o.channels,
                       (long long)o.kernel, (long long)groups);
        return (tri_value){0};
    }
    int64_t in = shape.dims[1] / groups;
    tri_init init = fan_in_uniform(in * o.kernel * o.kernel);
    tri_value weight = tri_parameter(graph, join(graph, name, "weight"),
                                     tri_shape_of(o.channels, in, o.kernel, o.kernel), init);
    tri_value bias = {0};
    if (!o.no_bias)
        bias = tri_parameter(graph, join(graph, name, "bias"), tri_shape_of(o.channels), init);
    tri_conv2d_attr attr = {.stride = {stride, stride},
                            .padding = {o.padding, o.padding},
                            .dilation = {dilation, dilation},
                            .groups = groups,
                            .direct = graph->options.direct_convolution};
    return tri_node_add(graph, &tri_op_conv2d, (tri_value[]){x, weight, bias}, 3, &attr, name);
}

tri_value tri_max_pool2d(tri_graph *graph, tri_value x, tri_pool2d_options o) {
    int64_t stride = o.stride ? o.stride : o.kernel;
    tri_max_pool2d_attr attr = {.kernel = {o.kernel, o.kernel},
                                .stride = {stride, stride},
                                .padding = {o.padding, o.padding}};
    return one_input(graph, &tri_op_max_pool2d, x, &attr, "");
}

tri_value tri_batch_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_batch_norm_options o) {
    if (graph->status != TRI_OK) return (tri_value){0};
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 2) {
        tri_graph_fail(graph, "batch_norm %s: needs [N, C, ...]", name);
        return (tri_value){0};
    }
    double momentum = o.momentum > 0 ? o.momentum : 0.1;
    tri_batch_norm_attr attr = {.eps = o.eps > 0 ? o.eps : 1e-5};
    tri_shape channels = tri_shape_of(shape.dims[1]);
    tri_init zero = {.kind = TRI_INIT_ZERO}, one = {.kind = TRI_INIT_CONSTANT, .a = 1};
    tri_dtype type = graph->options.dtype;
    tri_value weight = tri_parameter(graph, join(graph, name, "weight"), channels, one);
    tri_value bias = tri_parameter(graph, join(graph, name, "bias"), channels, zero);
    tri_value mean = tri_parameter_of_role(graph, join(graph, name, "running_mean"), type, channels,
                                           zero, TRI_ROLE_STATISTIC, momentum);
    tri_value var = tri_parameter_of_role(graph, join(graph, name, "running_var"), type, channels,
                                          one, TRI_ROLE_STATISTIC, momentum);
    tri_parameter_of_role(graph, join(graph, name, "num_batches_tracked"), TRI_I64, (tri_shape){0},
                          zero, TRI_ROLE_COUNTER, 0);
    if (!graph->options.training)
        return tri_node_add(graph, &tri_op_batch_norm_inference,
                            (tri_value[]){x, weight, bias, mean, var}, 5, &attr, name);
    tri_value y =
        tri_node_add(graph, &tri_op_batch_norm, (tri_value[]){x, weight, bias}, 3, &attr, name);
    if (graph->status != TRI_OK) return y;
    int mean_index = tri_value_get(graph, mean)->index,
        var_index = tri_value_get(graph, var)->index;
    if (tri_value_is(tri_gradient_of(graph, mean_index))) {
        tri_graph_fail(graph, "batch_norm %s: used twice, but it has one pair of statistics", name);
        return y;
    }
    // What FORWARD makes of the statistics travels as their gradient; STEP applies it.
    tri_gradient_add(graph, mean_index, tri_node_output(graph, y, 3));
    tri_gradient_add(graph, var_index, tri_node_output(graph, y, 4));
    return y;
}

tri_value tri_relu(tri_graph *graph, tri_value x) {
    return one_input(graph, &tri_op_relu, x, NULL, "");
}

tri_value tri_leaky_relu(tri_graph *graph, tri_value x, double slope) {
    if (slope <= 0) tri_graph_fail(graph, "leaky_relu: the slope must be positive, not %g", slope);
    return one_input(graph, &tri_op_leaky_relu, x, &(tri_leaky_relu_attr){slope}, "");
}

tri_value tri_dropout(tri_graph *graph, const char *name, tri_value x, double p) {
    if (graph->options.has_dropout) p = graph->options.dropout;
    if (p < 0 || p >= 1)
        tri_graph_fail(graph, "dropout %s: the rate must lie in [0, 1), not %g", name, p);
    if (!graph->options.training || p == 0 || graph->status != TRI_OK) return x;
    tri_dropout_attr attr = {.p = p, .key = tri_philox_key(graph->options.seed, name)};
    return tri_node_add(graph, &tri_op_dropout, (tri_value[]){x, tri_position(graph)}, 2, &attr,
                        name);
}

tri_value tri_reshape(tri_graph *graph, tri_value x, tri_shape shape) {
    return one_input(graph, &tri_op_reshape, x, &(tri_reshape_attr){shape}, "");
}

tri_value tri_flatten(tri_graph *graph, tri_value x) {
    if (graph->status != TRI_OK) return (tri_value){0};
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 1) {
        tri_graph_fail(graph, "flatten: needs an input with a first axis");
        return (tri_value){0};
    }
    if (shape.rank == 2) return x;
    int64_t rest = 1;
    for (int i = 1; i < shape.rank; i++) rest *= shape.dims[i];
    return tri_reshape(graph, x, tri_shape_of(shape.dims[0], rest));
}

tri_value tri_add(tri_graph *graph, tri_value a, tri_value b) {
    return tri_node_add(graph, &tri_op_add, (tri_value[]){a, b}, 2, NULL, "");
}

tri_value tri_log_softmax(tri_graph *graph, tri_value x) {
    return one_input(graph, &tri_op_log_softmax, x, NULL, "");
}

// The layers that normalise: batch norm, RMS norm, layer norm, group norm, and instance norm, which
// is group norm with a group for each channel.
#include "base/quantity.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/nn.h>

static const tri_init zero = {.kind = TRI_INIT_ZEROS}, one = {.kind = TRI_INIT_ONES};

typedef struct affine {
    tri_value weight, bias;
} affine;

// Makes the weight and the bias of a norm, one number for each element of `shape`.
static affine make_affine(tri_graph *g, const char *name, tri_shape shape, tri_init weight,
                          tri_init bias) {
    return (affine){
        tri_parameter(g, nn_parameter_name(g, name, "weight"), shape, nn_init_or(weight, one)),
        tri_parameter(g, nn_parameter_name(g, name, "bias"), shape, nn_init_or(bias, zero))};
}

tri_value tri_batch_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_batch_norm_options o) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "batch_norm", name, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 2) {
        tri_graph_fail(graph, "batch_norm %s: needs [N, C, ...]", name);
        return (tri_value){0};
    }
    if (!(o.momentum >= 0 && o.momentum <= 1) || !(o.eps >= 0 && isfinite(o.eps))) {
        tri_graph_fail(graph,
                       "batch_norm %s: momentum must lie in [0, 1] and eps be at least 0, not %g "
                       "and %g",
                       name, o.momentum, o.eps);
        return (tri_value){0};
    }
    // Statistics count the samples of the first axis, which a step has as a whole.
    int64_t samples = tri_graph_samples(graph);
    if (samples > 0 && shape.dims[0] != samples) {
        char text[128];
        tri_graph_fail(graph,
                       "batch_norm %s: the first axis of %s has to be the %s of a micro-batch; "
                       "what else is to be averaged comes behind the channels: [N, C, ...]",
                       name, tri_shape_text(&shape, text, sizeof text),
                       tri_counted(samples, "sample"));
        return (tri_value){0};
    }
    double momentum = o.momentum > 0 ? o.momentum : 0.1;
    tri_batch_norm_attr attr = {.eps = o.eps > 0 ? o.eps : 1e-5};
    tri_shape channels = tri_shape_of(shape.dims[1]);
    tri_dtype type = graph->options.dtype;
    affine own = make_affine(graph, name, channels, o.weight_init, o.bias_init);
    tri_value mean = tri_parameter_of_role(graph, nn_parameter_name(graph, name, "running_mean"),
                                           type, channels, zero, TRI_ROLE_STATISTIC, momentum);
    tri_value var = tri_parameter_of_role(graph, nn_parameter_name(graph, name, "running_var"),
                                          type, channels, one, TRI_ROLE_STATISTIC, momentum);
    tri_parameter_of_role(graph, nn_parameter_name(graph, name, "num_batches_tracked"), TRI_I64,
                          (tri_shape){0}, zero, TRI_ROLE_COUNTER, 0);
    if (!graph->options.training)
        return tri_node_add(graph, &tri_op_batch_norm_inference,
                            (tri_value[]){x, own.weight, own.bias, mean, var}, 5, &attr, name);
    tri_value y = tri_node_add(graph, &tri_op_batch_norm, (tri_value[]){x, own.weight, own.bias}, 3,
                               &attr, name);
    if (graph->status != TRI_OK) return y;
    int mean_index = tri_value_get(graph, mean)->index,
        var_index = tri_value_get(graph, var)->index;
    if (tri_value_is(tri_gradient_of(graph, mean_index))) {
        tri_graph_fail(
            graph,
            "batch_norm %s: used twice, but it has only one running mean and variance: "
            "give each use a name of its own, or normalise both inputs at once, joined by "
            "tri_concat behind the channels; group and layer norms can be shared",
            name);
        return y;
    }
    // Outputs 3 and 4 are the micro-batch's means and variances, times its number of samples. They
    // take the place of gradients of the running statistics: they are summed over micro-batches and
    // ranks together with the gradients, and the update then moves the running statistics towards
    // the means of these sums.
    tri_gradient_add(graph, mean_index, tri_node_output(graph, y, 3));
    tri_gradient_add(graph, var_index, tri_node_output(graph, y, 4));
    return y;
}

// The shape [D] of x [.., D], which the weights of norms have. It is an error of the graph if x has
// no axis.
static tri_shape last_axis(tri_graph *g, const char *layer, const char *name, tri_value x) {
    tri_shape shape = tri_value_shape(g, x);
    if (!tri_graph_check_input(g, layer, name, x)) return shape;
    if (shape.rank > 0) return tri_shape_of(shape.dims[shape.rank - 1]);
    tri_graph_fail(g, "%s %s: needs an input with an axis", layer, name);
    return shape;
}

tri_value tri_rms_norm(tri_graph *graph, const char *name, tri_value x, double eps) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    tri_shape width = last_axis(graph, "rms_norm", name, x);
    tri_value weight = tri_parameter(graph, nn_parameter_name(graph, name, "weight"), width, one);
    return tri_node_add(graph, &tri_op_rms_norm, (tri_value[]){x, weight}, 2,
                        &(tri_norm_attr){.eps = eps}, name);
}

static bool check_eps(tri_graph *g, const char *layer, const char *name, double eps) {
    if (eps >= 0 && isfinite(eps)) return true;
    tri_graph_fail(g, "%s %s: eps must be at least 0, not %g", layer, name, eps);
    return false;
}

// Adds the op that normalises the last axis of x.
static tri_value normalised(tri_graph *g, const char *name, tri_value x, affine own, double eps) {
    return tri_node_add(g, &tri_op_layer_norm, (tri_value[]){x, own.weight, own.bias}, 3,
                        &(tri_norm_attr){.eps = eps > 0 ? eps : 1e-5}, name);
}

tri_value tri_layer_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_layer_norm_options o) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "layer_norm", name, x)) return x;
    tri_shape shape = tri_value_shape(graph, x), widths = {0}, rows = shape;
    int axes = o.axes ? o.axes : 1;
    if (axes < 1 || axes > shape.rank) {
        tri_graph_fail(graph, "layer_norm %s: cannot normalise over %s of %d", name,
                       tri_counted(axes, "axis"), shape.rank);
        return x;
    }
    if (!check_eps(graph, "layer_norm", name, o.eps)) return x;
    rows.rank = shape.rank - axes;
    for (int i = rows.rank; i < shape.rank; i++) widths.dims[widths.rank++] = shape.dims[i];
    tri_shape width = tri_shape_of(tri_shape_count(&widths));
    rows.dims[rows.rank++] = width.dims[0];
    for (int i = rows.rank; i < TRI_MAX_RANK; i++) rows.dims[i] = 0;
    affine own = {{0}, {0}};
    if (!o.plain) own = make_affine(graph, name, widths, o.weight_init, o.bias_init);
    if (axes == 1) return normalised(graph, name, x, own, o.eps);
    if (!o.plain)
        own = (affine){tri_reshape(graph, own.weight, width), tri_reshape(graph, own.bias, width)};
    x = normalised(graph, name, tri_reshape(graph, x, rows), own, o.eps);
    return tri_reshape(graph, x, shape);
}

// A norm over the channels of each of `groups` groups and their pixels.
static tri_value grouped(tri_graph *g, const char *layer, const char *name, tri_value x,
                         tri_group_norm_options o) {
    int64_t groups = o.groups;
    char text[128];
    tri_shape shape = tri_value_shape(g, x), channels = tri_shape_of(shape.dims[1]);
    bool fits = shape.rank >= 2 && groups >= 1 && shape.dims[1] % groups == 0;
    if (!fits || tri_shape_count(&shape) == 0) {
        tri_graph_fail(g,
                       "%s %s: needs [N, C, ...] with C divisible by groups and without an empty "
                       "axis, not %s with groups %" PRId64,
                       layer, name, tri_shape_text(&shape, text, sizeof text), groups);
        return x;
    }
    if (!check_eps(g, layer, name, o.eps)) return x;
    affine own = {{0}, {0}};
    if (!o.plain) own = make_affine(g, name, channels, o.weight_init, o.bias_init);
    tri_group_norm_attr attr = {.norm.eps = o.eps > 0 ? o.eps : 1e-5, .groups = groups};
    return tri_node_add(g, &tri_op_group_norm, (tri_value[]){x, own.weight, own.bias}, 3, &attr,
                        name);
}

tri_value tri_group_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_group_norm_options o) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "group_norm", name, x)) return x;
    return grouped(graph, "group_norm", name, x, o);
}

tri_value tri_instance_norm(tri_graph *graph, const char *name, tri_value x,
                            tri_instance_norm_options o) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "instance_norm", name, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    int64_t channels = shape.rank < 2 ? 0 : shape.dims[1];
    return grouped(graph, "instance_norm", name, x,
                   (tri_group_norm_options){.groups = channels,
                                            .eps = o.eps,
                                            .plain = !o.affine,
                                            .weight_init = o.weight_init,
                                            .bias_init = o.bias_init});
}

// The layers that normalise: batch norm, RMS norm, layer norm, group norm, and instance norm, which
// is group norm with a group for each channel.
#include "base/quantity.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

static const tri_init zero = {.kind = TRI_INIT_ZEROS}, one = {.kind = TRI_INIT_ONES};

typedef struct affine {
    tri_value weight, bias;
} affine;

// Makes the parameter NAME.what, which begins as `begin`; of a norm that has none, a constant.
static tri_value make_parameter(tri_graph *g, const char *name, const char *what, tri_shape shape,
                                bool is_constant, tri_init given, tri_init begin) {
    name = nn_parameter_name(g, name, what);
    if (!is_constant) return tri_parameter(g, name, shape, nn_init_or(given, begin));
    int64_t count = tri_shape_count(&shape);
    float *values = TRI_NEW_ARRAY(g->arena, float, count);
    for (int64_t i = 0; i < count; i++) values[i] = begin.kind == TRI_INIT_ONES;
    return tri_constant(g, name, shape, values);
}

static tri_value make_weight(tri_graph *g, const char *name, tri_shape shape, bool is_constant,
                             tri_init init) {
    return make_parameter(g, name, "weight", shape, is_constant, init, one);
}

static tri_value make_bias(tri_graph *g, const char *name, tri_shape shape, bool is_constant,
                           tri_init init) {
    return make_parameter(g, name, "bias", shape, is_constant, init, zero);
}

// The running mean and variance that a norm uses in evaluation.
typedef struct running {
    tri_value mean, var;
} running;

// Checks how a norm's running statistics move, and finds their momentum. False: the graph has
// failed.
static bool find_momentum(tri_graph *g, const char *layer, const char *name, double given,
                          bool cumulative, double eps, double *momentum) {
    if (!(given >= 0 && given <= 1) || !(eps >= 0 && isfinite(eps))) {
        tri_graph_fail(g, "%s %s: momentum must lie in [0, 1] and eps be at least 0, not %g and %g",
                       layer, name, given, eps);
        return false;
    }
    if (cumulative && given > 0) {
        tri_graph_fail(g, "%s %s: a cumulative average has no momentum", layer, name);
        return false;
    }
    *momentum = cumulative ? 0 : given > 0 ? given : 0.1;
    return true;
}

// Statistics count the samples of the first axis, which a step has as a whole. False: x has other
// ones, and the graph has failed.
static bool check_samples(tri_graph *g, const char *layer, const char *name, const tri_shape *x) {
    int64_t samples = tri_graph_samples(g);
    char text[128];
    if (samples <= 0 || x->dims[0] == samples) return true;
    tri_graph_fail(g,
                   "%s %s: the first axis of %s has to be the %s of a micro-batch; what else is to "
                   "be averaged comes behind the channels: [N, C, ...]",
                   layer, name, tri_shape_text(x, text, sizeof text),
                   tri_counted(samples, "sample"));
    return false;
}

static running make_running(tri_graph *g, const char *name, int64_t channels,
                            tri_parameter_role role, double momentum) {
    tri_dtype type = g->options.dtype;
    tri_shape shape = tri_shape_of(channels);
    running made = {tri_parameter_of_role(g, nn_parameter_name(g, name, "running_mean"), type,
                                          shape, zero, role, momentum),
                    tri_parameter_of_role(g, nn_parameter_name(g, name, "running_var"), type, shape,
                                          one, role, momentum)};
    tri_parameter_of_role(g, nn_parameter_name(g, name, "num_batches_tracked"), TRI_I64,
                          (tri_shape){0}, zero, TRI_ROLE_COUNTER, 0);
    return made;
}

// How much one of several uses of a layer counts. Each use moves the statistics by `momentum`, the
// later ones what the earlier ones have left: all together move them by `all` towards a mean of
// theirs, of which the next use has the part `part`.
typedef struct use {
    double all, part;
    bool is_again;
} use;

static use next_use(tri_graph *g, const char *name, int64_t uses, double momentum) {
    if (uses < 2) return (use){.all = momentum, .part = 1};
    int64_t number = tri_layer_count(g, tri_name(g, "%s.uses", name));
    double all = 1 - pow(1 - momentum, (double)uses);
    double part = momentum * pow(1 - momentum, (double)(uses - 1 - number)) / all;
    return (use){all, part, number > 0};
}

// Adds the statistic of one use to that of those before, in the same block.
static void join_uses(tri_graph *g, const char *name, int parameter, const use *u, tri_value sum) {
    tri_value part = u->part == 1 ? sum : tri_map(g, tri_name(g, "%.17g * x", u->part), sum);
    for (int i = 0; u->is_again && i < g->gradient_count; i++) {
        tri_gradient_info *known = &g->gradients[i];
        if (known->parameter != parameter) continue;
        known->value = tri_add(g, known->value, part);
        if (known->block == g->block) return;
        tri_graph_fail(g, "%s: all uses of its statistics have to lie in one block", name);
    }
    tri_gradient_add(g, parameter, part);
}

// Updates the statistics with means and variances of the micro-batch, times its number of samples.
// They take the place of gradients of the running statistics: they are summed over micro-batches
// and ranks together with the gradients, and the update then moves the running statistics towards
// the means of these sums.
static void keep_running(tri_graph *g, const char *layer, const char *name, const running *r,
                         const use *u, tri_value mean_sum, tri_value var_sum) {
    if (g->status != TRI_OK) return;
    int mean = tri_value_get(g, r->mean)->index, var = tri_value_get(g, r->var)->index;
    if (!u->is_again && tri_value_is(tri_gradient_of(g, mean))) {
        tri_graph_fail(g,
                       "%s %s: used twice, but it has only one running mean and variance: give "
                       "each use a name of its own, or normalise both inputs at once, joined by "
                       "tri_concat behind the channels; group and layer norms can be shared",
                       layer, name);
        return;
    }
    join_uses(g, name, mean, u, mean_sum);
    join_uses(g, name, var, u, var_sum);
}

// Normalises by the running statistics, as evaluation does.
static tri_value norm_by_running(tri_graph *g, const char *name, tri_value x, affine own,
                                 const running *r, double eps) {
    return tri_node_add(g, &tri_op_batch_norm_inference,
                        (tri_value[]){x, own.weight, own.bias, r->mean, r->var}, 5,
                        &(tri_batch_norm_attr){.eps = eps}, name);
}

tri_value tri_batch_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_batch_norm_options o) {
    double momentum;
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "batch_norm", name, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 2) {
        tri_graph_fail(graph, "batch_norm %s: needs [N, C, ...]", name);
        return (tri_value){0};
    }
    if (!find_momentum(graph, "batch_norm", name, o.momentum, o.cumulative, o.eps, &momentum))
        return (tri_value){0};
    if (!check_samples(graph, "batch_norm", name, &shape)) return (tri_value){0};
    tri_batch_norm_attr attr = {.eps = o.eps > 0 ? o.eps : 1e-5};
    tri_shape channels = tri_shape_of(shape.dims[1]);
    affine own = {make_weight(graph, name, channels, o.plain, o.weight_init),
                  make_bias(graph, name, channels, o.plain, o.bias_init)};
    if (o.uses > 1 && o.cumulative) {
        tri_graph_fail(graph, "batch_norm %s: a layer that is used several times needs a momentum",
                       name);
        return (tri_value){0};
    }
    use u = next_use(graph, name, o.uses, momentum);
    running r = make_running(graph, name, shape.dims[1], TRI_ROLE_STATISTIC, u.all);
    if (!graph->options.training) return norm_by_running(graph, name, x, own, &r, attr.eps);
    tri_value y = tri_node_add(graph, &tri_op_batch_norm, (tri_value[]){x, own.weight, own.bias}, 3,
                               &attr, name);
    keep_running(graph, "batch_norm", name, &r, &u, tri_node_output(graph, y, 3),
                 tri_node_output(graph, y, 4));
    return y;
}

// The last axes of x, over which a norm takes all elements together.
typedef struct last_axes {
    tri_shape x, sizes; // of x, and of these axes
    tri_shape rows;     // x with one axis in their place
} last_axes;

// axes: how many; 0 means 1. False: the graph has failed.
static bool find_last_axes(tri_graph *g, const char *layer, const char *name, tri_value x, int axes,
                           last_axes *out) {
    if (!tri_graph_check_input(g, layer, name, x)) return false;
    tri_shape shape = tri_value_shape(g, x);
    *out = (last_axes){.x = shape, .rows = shape};
    if (axes == 0) axes = 1;
    if (axes < 1 || axes > shape.rank) {
        tri_graph_fail(g, "%s %s: cannot normalise over %s of %d", layer, name,
                       tri_counted(axes, "axis"), shape.rank);
        return false;
    }
    out->rows.rank = shape.rank - axes;
    for (int i = out->rows.rank; i < shape.rank; i++) {
        out->sizes.dims[out->sizes.rank++] = shape.dims[i];
        out->rows.dims[i] = 0;
    }
    out->rows.dims[out->rows.rank++] = tri_shape_count(&out->sizes);
    return true;
}

// A parameter of the axes' sizes, as the norm of rows reads it.
static tri_value as_width(tri_graph *g, const last_axes *axes, tri_value parameter) {
    if (axes->sizes.rank == 1) return parameter;
    return tri_reshape(g, parameter, tri_shape_of(tri_shape_count(&axes->sizes)));
}

// Adds a norm of the last axis, to an x that has all axes in one.
static tri_value norm_rows(tri_graph *g, const char *name, const last_axes *axes, const tri_op *op,
                           tri_value x, affine own, double eps) {
    bool several = axes->sizes.rank > 1;
    if (several) x = tri_reshape(g, x, axes->rows);
    x = tri_node_add(g, op, (tri_value[]){x, own.weight, own.bias}, op->input_count,
                     &(tri_norm_attr){.eps = eps}, name);
    return several ? tri_reshape(g, x, axes->x) : x;
}

static bool check_eps(tri_graph *g, const char *layer, const char *name, double eps) {
    if (eps >= 0 && isfinite(eps)) return true;
    tri_graph_fail(g, "%s %s: eps must be at least 0, not %g", layer, name, eps);
    return false;
}

tri_value tri_rms_norm_with(tri_graph *graph, const char *name, tri_value x,
                            tri_rms_norm_options o) {
    last_axes axes;
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!find_last_axes(graph, "rms_norm", name, x, o.axes, &axes) ||
        !check_eps(graph, "rms_norm", name, o.eps))
        return x;
    tri_value weight = make_weight(graph, name, axes.sizes, o.plain, o.weight_init);
    affine own = {as_width(graph, &axes, weight), {0}};
    return norm_rows(graph, name, &axes, &tri_op_rms_norm, x, own, o.eps > 0 ? o.eps : FLT_EPSILON);
}

tri_value tri_rms_norm(tri_graph *graph, const char *name, tri_value x, double eps) {
    if (eps == 0) {
        tri_graph_fail(graph, "rms_norm %s: eps must be above 0", name);
        return x;
    }
    return tri_rms_norm_with(graph, name, x, (tri_rms_norm_options){.eps = eps});
}

tri_value tri_layer_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_layer_norm_options o) {
    last_axes axes;
    affine own = {{0}, {0}};
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!find_last_axes(graph, "layer_norm", name, x, o.axes, &axes) ||
        !check_eps(graph, "layer_norm", name, o.eps))
        return x;
    if (!o.plain) {
        own.weight = make_weight(graph, name, axes.sizes, false, o.weight_init);
        own.bias = make_bias(graph, name, axes.sizes, o.no_bias, o.bias_init);
        own = (affine){as_width(graph, &axes, own.weight), as_width(graph, &axes, own.bias)};
    }
    return norm_rows(graph, name, &axes, &tri_op_layer_norm, x, own, o.eps > 0 ? o.eps : 1e-5);
}

// A norm over the channels of each of `groups` groups and their pixels.
static tri_value norm_groups(tri_graph *g, const char *layer, const char *name, tri_value x,
                             int64_t groups, affine own, double eps) {
    tri_group_norm_attr attr = {.norm.eps = eps > 0 ? eps : 1e-5, .groups = groups};
    if (!check_eps(g, layer, name, eps)) return x;
    return tri_node_add(g, &tri_op_group_norm, (tri_value[]){x, own.weight, own.bias}, 3, &attr,
                        name);
}

// Checks that x is [N, C, ...] with C divisible by groups; groups 0: by C. Returns C; 0: the graph
// has failed.
static int64_t find_channels(tri_graph *g, const char *layer, const char *name, tri_value x,
                             const int64_t *groups) {
    char text[128];
    if (!tri_layer_begin(g, name) || !tri_graph_check_input(g, layer, name, x)) return 0;
    tri_shape shape = tri_value_shape(g, x);
    int64_t by = groups ? *groups : shape.rank < 2 ? 0 : shape.dims[1];
    bool fits = shape.rank >= 2 && by >= 1 && shape.dims[1] % by == 0;
    if (fits && tri_shape_count(&shape) > 0) return shape.dims[1];
    tri_graph_fail(g,
                   "%s %s: needs [N, C, ...] with C divisible by groups and without an empty "
                   "axis, not %s with groups %" PRId64,
                   layer, name, tri_shape_text(&shape, text, sizeof text), by);
    return 0;
}

tri_value tri_group_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_group_norm_options o) {
    affine own = {{0}, {0}};
    int64_t channels = find_channels(graph, "group_norm", name, x, &o.groups);
    if (channels == 0) return x;
    if (!o.plain)
        own = (affine){make_weight(graph, name, tri_shape_of(channels), false, o.weight_init),
                       make_bias(graph, name, tri_shape_of(channels), false, o.bias_init)};
    return norm_groups(graph, "group_norm", name, x, o.groups, own, o.eps);
}

// Instance norm with running statistics: the means and variances of all channels of a sample, of
// which those of all samples are averaged. The variance is unbiased, and so needs two pixels.
static tri_value track_instances(tri_graph *g, const char *name, tri_value x, affine own,
                                 double momentum, double eps) {
    tri_shape shape = tri_value_shape(g, x);
    int64_t channels = shape.dims[1], pixels = tri_shape_count(&shape) / shape.dims[0] / channels;
    running r = make_running(g, name, channels, TRI_ROLE_SAMPLE_STATISTIC, momentum);
    if (!tri_training(g)) return norm_by_running(g, name, x, own, &r, eps);
    if (pixels < 2) {
        tri_graph_fail(g, "instance_norm %s: the variance of a channel needs more than 1 pixel",
                       name);
        return x;
    }
    tri_value y = norm_groups(g, "instance_norm", name, x, channels, own, eps);
    int samples = 0;
    const char *variance = tri_name(g, "s -> %.17g * (1 / (s * s) - %.17g)",
                                    (double)pixels / (double)(pixels - 1), eps);
    tri_value var = tri_map(g, variance, tri_node_output(g, y, 2));
    keep_running(g, "instance_norm", name, &r, &(use){.part = 1},
                 tri_sum(g, tri_node_output(g, y, 1), &samples, 1, false),
                 tri_sum(g, var, &samples, 1, false));
    return y;
}

tri_value tri_instance_norm(tri_graph *graph, const char *name, tri_value x,
                            tri_instance_norm_options o) {
    affine own = {{0}, {0}};
    double momentum, eps = o.eps > 0 ? o.eps : 1e-5;
    int64_t channels = find_channels(graph, "instance_norm", name, x, NULL);
    if (channels == 0) return x;
    // Evaluation with running statistics reads a weight and a bias in any case.
    if (o.affine || o.tracks)
        own = (affine){make_weight(graph, name, tri_shape_of(channels), !o.affine, o.weight_init),
                       make_bias(graph, name, tri_shape_of(channels), !o.affine, o.bias_init)};
    if (!o.tracks) return norm_groups(graph, "instance_norm", name, x, channels, own, o.eps);
    tri_shape shape = tri_value_shape(graph, x);
    if (!find_momentum(graph, "instance_norm", name, o.momentum, o.cumulative, o.eps, &momentum) ||
        !check_samples(graph, "instance_norm", name, &shape))
        return x;
    return track_instances(graph, name, x, own, momentum, eps);
}

// The layers, activations and shape operations of nn.h: each adds its parameters and nodes to the
// graph.
#include "nn/layers.h"
#include "base/limits.h"
#include "base/philox.h"
#include "base/quantity.h"
#include "graph/loss.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

const char *nn_parameter_name(tri_graph *g, const char *layer, const char *parameter) {
    return tri_name(g, "%s.%s", layer, parameter);
}

tri_init nn_fan_in_uniform(int64_t fan_in) {
    double bound = fan_in > 0 ? 1.0 / sqrt((double)fan_in) : 0;
    if (bound == 0) return (tri_init){0};
    return (tri_init){.kind = TRI_INIT_UNIFORM, .low = -bound, .high = bound};
}

tri_init nn_init_or(tri_init given, tri_init otherwise) {
    return given.kind == TRI_INIT_DEFAULT ? otherwise : given;
}

static tri_value one_input(tri_graph *g, const tri_op *op, tri_value x, const void *attr,
                           const char *name) {
    return tri_node_add(g, op, &x, 1, attr, name);
}

static tri_init normal(double std) { return (tri_init){.kind = TRI_INIT_NORMAL, .std = std}; }

// The weight [features, in]: the layer's own, a shared one, or one that functions make.
static tri_value linear_weight(tri_graph *graph, const char *name, const tri_linear_options *o,
                               int64_t in, tri_init init) {
    tri_shape shape = tri_shape_of(o->features, in);
    bool is_made = tri_value_is(o->weight_value);
    if (is_made && (o->weight || o->stored_transposed))
        tri_graph_fail(graph, "linear %s: has %s and weight_value", name,
                       o->weight ? "both weight" : "stored_transposed");
    init = nn_init_or(o->weight_init, init);
    int known = graph->parameter_count;
    tri_value weight = o->weight ? tri_parameter(graph, o->weight, shape, init)
                                 : nn_weight(graph, "linear", name, o->weight_value, shape, init);
    if (graph->status != TRI_OK || is_made) return weight;
    tri_parameter_info *info = &graph->parameters[tri_value_get(graph, weight)->index];
    if (o->weight) info->alias = nn_parameter_name(graph, name, "weight");
    if (graph->parameter_count == known && info->stored_transposed != o->stored_transposed)
        tri_graph_fail(graph,
                       "linear %s: only one of the layers that share %s stores it transposed", name,
                       info->name);
    info->stored_transposed = o->stored_transposed;
    return weight;
}

tri_value tri_linear_with(tri_graph *graph, const char *name, tri_value x, tri_linear_options o) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "linear", name, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 1 || o.features < 1) {
        tri_graph_fail(graph, "linear %s: needs an input with an axis and features > 0", name);
        return (tri_value){0};
    }
    if (!(o.std >= 0 && isfinite(o.std))) {
        tri_graph_fail(graph, "linear %s: std must be a number of at least 0, not %g", name, o.std);
        return (tri_value){0};
    }
    int64_t in = shape.dims[shape.rank - 1];
    tri_init init = o.std > 0 ? normal(o.std) : nn_fan_in_uniform(in), zero = {0};
    tri_value weight = linear_weight(graph, name, &o, in, init);
    if (graph->status != TRI_OK) return weight;
    tri_value bias = {0};
    if (!o.no_bias)
        bias = nn_bias(graph, "linear", name, o.bias_value, tri_shape_of(o.features),
                       nn_init_or(o.bias_init, o.std > 0 ? zero : init));
    tri_linear_attr attr = {.axes = 1};
    tri_value y =
        tri_node_add(graph, &tri_op_linear, (tri_value[]){x, weight, bias}, 3, &attr, name);
    bool has_own_weight = !o.weight && !tri_value_is(o.weight_value);
    return has_own_weight ? nn_adapt(graph, name, x, weight, y) : y;
}

tri_value tri_linear(tri_graph *graph, const char *name, tri_value x, int64_t features) {
    return tri_linear_with(graph, name, x, (tri_linear_options){.features = features});
}

tri_value tri_embedding(tri_graph *graph, const char *name, tri_value ids,
                        tri_embedding_options o) {
    if (o.tokens < 1 || o.features < 1)
        tri_graph_fail(graph, "embedding %s: needs tokens and features > 0", name);
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    tri_value weight = tri_parameter(graph, nn_parameter_name(graph, name, "weight"),
                                     tri_shape_of(o.tokens, o.features),
                                     nn_init_or(o.weight_init, normal(o.std > 0 ? o.std : 1)));
    return tri_node_add(graph, &tri_op_embedding, (tri_value[]){ids, weight}, 2, NULL, name);
}

tri_value tri_rotary(tri_graph *graph, tri_value x, double theta) {
    return tri_rotary_with(graph, x, (tri_rotary_options){.theta = theta});
}

tri_value tri_rotary_with(tri_graph *graph, tri_value x, tri_rotary_options o) {
    tri_rotary_attr attr = {.theta = o.theta,
                            .scaling = {.factor = o.factor,
                                        .low = o.low_freq_factor,
                                        .high = o.high_freq_factor,
                                        .length = (double)o.original_positions}};
    if (!tri_graph_check_input(graph, "rotary", "", x)) return (tri_value){0};
    return tri_node_add(graph, &tri_op_rotary, (tri_value[]){x, o.spans},
                        tri_value_is(o.spans) ? 2 : 1, &attr, "");
}

tri_value tri_next_token(tri_graph *graph, tri_value ids) {
    // Only losses read these labels, and a graph without them may have none.
    if (graph->drops_losses && !tri_value_is(ids)) return ids;
    return one_input(graph, &tri_op_next_token, ids, NULL, "");
}

// If one axis of the shape is given as -1, computes its size, so that the shape has as many
// elements as x.
static void infer_size(tri_graph *g, tri_value x, tri_shape *shape) {
    tri_shape from = tri_value_shape(g, x), known = *shape;
    int unknown = -1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] != -1) continue;
        if (unknown >= 0) {
            char text[128];
            tri_graph_fail(g, "reshape: %s has more than one size of -1",
                           tri_shape_text(shape, text, sizeof text));
            return;
        }
        unknown = i;
        known.dims[i] = 1;
    }
    int64_t count = tri_shape_count(&from), rest = tri_shape_count(&known);
    if (unknown < 0) return;
    if (rest > 0 && count % rest == 0) {
        shape->dims[unknown] = count / rest;
        return;
    }
    char to[128], is[128];
    tri_graph_fail(g, "reshape: no size in place of -1 gives %s as many elements as %s",
                   tri_shape_text(shape, to, sizeof to), tri_shape_text(&from, is, sizeof is));
}

tri_value tri_reshape(tri_graph *graph, tri_value x, tri_shape shape) {
    if (!tri_graph_check_input(graph, "reshape", NULL, x)) return (tri_value){0};
    if (shape.rank < 0 || shape.rank > TRI_MAX_RANK) {
        tri_graph_fail(graph, "reshape: a shape has 0 to %d axes, not %d", TRI_MAX_RANK,
                       shape.rank);
        return (tri_value){0};
    }
    infer_size(graph, x, &shape);
    return one_input(graph, &tri_op_reshape, x, &(tri_reshape_attr){shape}, "");
}

tri_value tri_flatten(tri_graph *graph, tri_value x) {
    if (!tri_graph_check_input(graph, "flatten", NULL, x)) return (tri_value){0};
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

tri_value tri_concat(tri_graph *graph, const tri_value *values, int count, int axis) {
    if (count < 1) {
        tri_graph_fail(graph, "concat: needs at least one value");
        return (tri_value){0};
    }
    if (!tri_graph_check_input(graph, "concat", NULL, values[0])) return (tri_value){0};
    int rank = tri_value_shape(graph, values[0]).rank;
    tri_concat_attr attr = {.dim = axis < 0 ? axis + rank : axis};
    tri_value sum = values[0];
    for (int done = 1; done < count;) { // one concat node joins at most TRI_MAX_INPUTS values
        tri_value in[TRI_MAX_INPUTS] = {sum};
        int taken = 1;
        while (taken < TRI_MAX_INPUTS && done < count) {
            if (!tri_graph_check_input(graph, "concat", NULL, values[done])) return (tri_value){0};
            in[taken++] = values[done++];
        }
        sum = tri_node_add(graph, &tri_op_concat, in, taken, &attr, "");
    }
    return sum;
}

tri_value tri_add(tri_graph *graph, tri_value a, tri_value b) {
    if (!tri_graph_takes_value(graph, "add", "", a) || !tri_graph_takes_value(graph, "add", "", b))
        return (tri_value){0};
    bool both = tri_value_is(a) && tri_value_is(b);
    if (both && (tri_value_is_loss(graph, a) || tri_value_is_loss(graph, b)))
        return tri_loss_combine(graph, a, 1, b);
    tri_shape of_a = tri_value_shape(graph, a), of_b = tri_value_shape(graph, b);
    bool integers = both && !tri_dtype_is_float(tri_value_get(graph, a)->dtype);
    if (integers || (both && !tri_shape_equal(&of_a, &of_b)))
        return tri_map(graph, "a, b -> a + b", a, b);
    return tri_node_add(graph, &tri_op_add, (tri_value[]){a, b}, 2, NULL, "");
}

tri_value tri_log_softmax(tri_graph *graph, tri_value x) {
    return one_input(graph, &tri_op_log_softmax, x, NULL, "");
}

// Weights of layers that are made of other parameters: weight norm and spectral norm.
#include "nn/layers.h"
#include "ops/ops.h"

#include <trireme/functions.h>
#include <trireme/nn.h>

static tri_value given_or_own(tri_graph *graph, const char *layer, const char *name,
                              const char *what, tri_value given, tri_shape shape, tri_init init) {
    char is[128], wanted[128];
    if (!tri_value_is(given))
        return tri_parameter(graph, nn_parameter_name(graph, name, what), shape, init);
    if (!tri_graph_takes_value(graph, layer, name, given)) return (tri_value){0};
    tri_shape got = tri_value_shape(graph, given);
    if (tri_shape_equal(&got, &shape)) return given;
    tri_graph_fail(graph, "%s %s: %s_value must be %s, but is %s", layer, name, what,
                   tri_shape_text(&shape, wanted, sizeof wanted),
                   tri_shape_text(&got, is, sizeof is));
    return (tri_value){0};
}

tri_value nn_weight(tri_graph *graph, const char *layer, const char *name, tri_value given,
                    tri_shape shape, tri_init init) {
    return given_or_own(graph, layer, name, "weight", given, shape, init);
}

tri_value nn_bias(tri_graph *graph, const char *layer, const char *name, tri_value given,
                  tri_shape shape, tri_init init) {
    return given_or_own(graph, layer, name, "bias", given, shape, init);
}

// Checks that the shape is that of a weight with the axis `dim`, which may be -1 if `all`. False:
// the graph has failed.
static bool check(tri_graph *g, const char *rule, const char *name, const tri_shape *shape, int dim,
                  bool all) {
    char text[128];
    if (!tri_graph_takes_name(g, rule, name)) return false;
    bool fits = shape->rank >= 1 && shape->rank <= TRI_MAX_RANK && tri_shape_count(shape) > 0;
    if (fits && dim >= (all ? -1 : 0) && dim < shape->rank) return true;
    tri_graph_fail(g, "%s %s: needs a shape without empty axes and one of its axes, not %s and %d",
                   rule, name,
                   fits ? tri_shape_text(shape, text, sizeof text) : "an impossible one", dim);
    return false;
}

// PyTorch's default for convolutions and linear layers, which takes axis 1 for the inputs.
static tri_init default_init(const tri_shape *shape) {
    int64_t fan_in = 1;
    for (int i = 1; i < shape->rank; i++) fan_in *= shape->dims[i];
    return nn_fan_in_uniform(fan_in);
}

// The sum over all axes but `dim`, which stay with the size 1.
static tri_value sum_along(tri_graph *g, tri_value x, int rank, int dim) {
    int axes[TRI_MAX_RANK], count = 0;
    for (int i = 0; i < rank; i++)
        if (i != dim) axes[count++] = i;
    return count > 0 ? tri_sum(g, x, axes, count, true) : x;
}

tri_value tri_weight_norm(tri_graph *graph, const char *name, tri_shape shape, int dim,
                          tri_init init) {
    if (!check(graph, "weight_norm", name, &shape, dim, true)) return (tri_value){0};
    tri_value v = tri_parameter(graph, nn_parameter_name(graph, name, "weight_v"), shape,
                                nn_init_or(init, default_init(&shape)));
    tri_value length =
        tri_parameter_of_norms(graph, nn_parameter_name(graph, name, "weight_g"), v, dim);
    tri_value squares = sum_along(graph, tri_square(graph, v), shape.rank, dim);
    return tri_map(graph, "v, g, s -> v * (g / sqrt(s))", v, length, squares);
}

// A matrix of the spectral norm: the weight as it is, whose axis `dim` counts the rows. Vectors of
// as many elements as it has rows (`u`) or columns are broadcast to its shape.
typedef struct matrix {
    tri_graph *graph;
    tri_value weight;
    tri_shape shape;
    int dim;
    double eps;
} matrix;

static tri_value broadcast(const matrix *m, tri_value vector, bool is_u) {
    tri_shape shape = m->shape;
    for (int i = 0; i < shape.rank; i++)
        if ((i == m->dim) != is_u) shape.dims[i] = 1;
    return tri_reshape(m->graph, vector, shape);
}

// One half of a step of the power method: the product of the matrix and the other vector, with the
// length 1.
static tri_value next(const matrix *m, tri_value other, bool is_u) {
    tri_value product = tri_mul(m->graph, m->weight, broadcast(m, other, !is_u));
    product = is_u ? sum_along(m->graph, product, m->shape.rank, m->dim)
                   : tri_sum(m->graph, product, &m->dim, 1, true);
    product = tri_reshape(m->graph, product, (tri_shape){.rank = 1, .dims = {-1}});
    return tri_detach(m->graph, tri_normalize(m->graph, product, 0, m->eps));
}

// Makes the vector that of the buffer after the step. The buffer's "gradient" is summed over all
// micro-batches and divided by the samples, so that each adds the vector as often as it has
// samples. If weights are shared, the first call does this for all.
static void keep(tri_graph *g, tri_value buffer, tri_value vector) {
    if (g->status != TRI_OK) return;
    int index = tri_value_get(g, buffer)->index, first = 0;
    int64_t samples = tri_graph_samples(g);
    if (tri_value_is(tri_gradient_of(g, index))) return;
    tri_shape rows = tri_shape_of(samples > 0 ? samples : 1, tri_value_shape(g, vector).dims[0]);
    tri_gradient_add(g, index, tri_sum(g, tri_expand(g, vector, rows), &first, 1, false));
}

tri_value tri_spectral_norm(tri_graph *graph, const char *name, tri_shape shape,
                            tri_spectral_norm_options o) {
    if (!check(graph, "spectral_norm", name, &shape, o.dim, false)) return (tri_value){0};
    if (o.iterations < 0 || !(o.eps >= 0)) {
        tri_graph_fail(graph, "spectral_norm %s: iterations and eps must be at least 0", name);
        return (tri_value){0};
    }
    matrix m = {.graph = graph, .shape = shape, .dim = o.dim, .eps = o.eps};
    const tri_init unit = {.kind = TRI_INIT_ORTHOGONAL};
    int64_t rows = shape.dims[o.dim], columns = tri_shape_count(&shape) / rows;
    tri_value kept[2], u, v;
    m.weight = tri_parameter(graph, nn_parameter_name(graph, name, "weight_orig"), shape,
                             nn_init_or(o.init, default_init(&shape)));
    for (int i = 0; i < 2; i++)
        kept[i] = tri_parameter_of_role(
            graph, nn_parameter_name(graph, name, i ? "weight_v" : "weight_u"),
            graph->options.dtype, tri_shape_of(i ? columns : rows), unit, TRI_ROLE_ITERATE, 1);
    u = kept[0], v = kept[1];
    for (int64_t i = 0; tri_training(graph) && i < (o.iterations ? o.iterations : 1); i++) {
        v = next(&m, u, false);
        u = next(&m, v, true);
    }
    if (tri_training(graph)) {
        keep(graph, kept[0], u);
        keep(graph, kept[1], v);
    }
    tri_value parts = tri_map(graph, "w, u, v -> w * u * v", m.weight, broadcast(&m, u, true),
                              broadcast(&m, v, false));
    return tri_map(graph, "w, sigma -> w / sigma", m.weight,
                   sum_along(graph, parts, shape.rank, -1));
}

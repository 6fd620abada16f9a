// Functions of elements by their expressions, and reductions. include/trireme/functions.h lists
// them.
#include "base/quantity.h"
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <trireme/functions.h>
#include <trireme/nn.h>

static tri_value map_into(tri_graph *graph, const char *name, const char *expression,
                          const tri_value *values, int count, const double *parameters, bool mask,
                          int outputs) {
    tri_map_attr attr = {.mask = mask};
    for (int i = 0; i < count; i++)
        if (!tri_graph_check_input(graph, name, NULL, values[i])) return (tri_value){0};
    if (tri_formula_parse(expression, parameters, &attr.formula) != TRI_OK) {
        tri_graph_fail(graph, "%s", tri_error_message());
        return (tri_value){0};
    }
    if (count != attr.formula.input_count) {
        tri_graph_fail(graph, "map \"%s\" has %s, but %d were given", expression,
                       tri_counted(attr.formula.input_count, "input"), count);
        return (tri_value){0};
    }
    if (attr.formula.output_count != outputs) {
        tri_graph_fail(graph, "map \"%s\" has %s, but %s", expression,
                       tri_counted(attr.formula.output_count, "expression"),
                       outputs == 1
                           ? "only one is allowed"
                           : tri_name(graph, "%s are wanted", tri_counted(outputs, "value")));
        return (tri_value){0};
    }
    return tri_node_add(graph, &tri_op_map, values, count, &attr, "");
}

static tri_value map_of(tri_graph *graph, const char *name, const char *expression,
                        const tri_value *values, int count, const double *parameters) {
    return map_into(graph, name, expression, values, count, parameters, false, 1);
}

static tri_value map_given(tri_graph *graph, const char *expression, const tri_value *values,
                           int count, bool mask, int outputs) {
    if (count < 1 || count > TRI_FORMULA_INPUTS) {
        tri_graph_fail(graph, "map \"%s\": takes 1 to %d values, not %d", expression,
                       TRI_FORMULA_INPUTS, count);
        return (tri_value){0};
    }
    return map_into(graph, "map", expression, values, count, NULL, mask, outputs);
}

tri_value tri_map_values(tri_graph *graph, const char *expression, const tri_value *values,
                         int count) {
    return map_given(graph, expression, values, count, false, 1);
}

tri_value tri_mask_values(tri_graph *graph, const char *expression, const tri_value *values,
                          int count) {
    return map_given(graph, expression, values, count, true, 1);
}

void tri_map_several(tri_graph *graph, const char *expressions, const tri_value *values, int count,
                     tri_value *results, int result_count) {
    tri_value first = map_given(graph, expressions, values, count, false, result_count);
    for (int k = 0; k < result_count; k++)
        results[k] = k && graph->status == TRI_OK ? tri_node_output(graph, first, k) : first;
}

// The 0 behind the parameters is there because a list may not be empty.
#define COUNT(values) (int)(sizeof(values) / sizeof(tri_value))
#define X(name, declared, values, parameters, expression, doc)                                     \
    tri_value tri_##name(tri_graph *graph, TRI_UNPACKED_ declared) {                               \
        const tri_value given[] = {TRI_UNPACKED_ values};                                          \
        return map_of(graph, #name, expression, given, COUNT(given),                               \
                      (const double[]){TRI_UNPACKED_ parameters 0});                               \
    }
TRI_FUNCTION_LIST(X)
#undef X

// The name is that of the metric if the loss is one of a sum.
static tri_value mean_of(tri_graph *graph, const char *name, tri_value x) {
    if (!tri_graph_check_input(graph, name, NULL, x)) return x;
    return tri_node_add(graph, &tri_op_mean_loss, &x, 1, NULL, name);
}

// gaussian_nll_loss alone has a variance; its target and variance may be broadcast, as in PyTorch.
static bool check_targets(tri_graph *graph, const char *name, const tri_value *values, int count) {
    static const char *const words[] = {"the prediction", "the target", "the variance"};
    for (int i = 1; i < count; i++)
        if (!nn_check_target(graph, name, words[i], values[i], values[0],
                             count > 2 ? NN_WITHIN : NN_SAME))
            return false;
    return true;
}

tri_value tri_mean_loss(tri_graph *graph, tri_value x) {
    bool is_one = tri_value_is(x) && tri_graph_has(graph, x) && tri_value_shape(graph, x).rank == 0;
    return mean_of(graph, "mean_loss", is_one ? tri_reshape(graph, x, tri_shape_of(1)) : x);
}

#define X(name, declared, values, parameters, expression, doc)                                     \
    tri_value tri_##name(tri_graph *graph, TRI_UNPACKED_ declared) {                               \
        const tri_value given[] = {TRI_UNPACKED_ values};                                          \
        if (graph->drops_losses)                                                                   \
            return nn_stand_in(graph,                                                              \
                               tri_value_is(given[0]) ? given[0] : given[COUNT(given) - 1]);       \
        if (!check_targets(graph, #name, given, COUNT(given))) return (tri_value){0};              \
        return mean_of(graph, #name,                                                               \
                       map_of(graph, #name, expression, given, COUNT(given),                       \
                              (const double[]){TRI_UNPACKED_ parameters 0}));                      \
    }
TRI_LOSS_LIST(X)
#undef X

// Sets the bits of the axes. False: the graph has failed.
static bool bits_of(tri_graph *graph, const char *name, const tri_shape *shape, const int *axes,
                    int count, int64_t *bits) {
    *bits = count == 0 ? ((int64_t)1 << shape->rank) - 1 : 0;
    for (int i = 0; i < count; i++) {
        int axis = axes[i] < 0 ? axes[i] + shape->rank : axes[i];
        if (axis < 0 || axis >= shape->rank || *bits >> axis & 1) {
            tri_graph_fail(graph, "%s: axis %d is %s of %s", name, axes[i],
                           axis < 0 || axis >= shape->rank ? "none" : "there twice",
                           tri_counted(shape->rank, "axis"));
            return false;
        }
        *bits |= (int64_t)1 << axis;
    }
    return true;
}

static tri_value reduce(tri_graph *graph, const char *name, tri_reduction kind, tri_value x,
                        const int *axes, int count, bool keep) {
    tri_reduce_attr attr = {.kind = kind};
    if (!tri_graph_check_input(graph, name, NULL, x)) return x;
    tri_shape shape = tri_value_shape(graph, x), left = {0};
    if (!bits_of(graph, name, &shape, axes, count, &attr.axes)) return x;
    tri_value y = tri_node_add(graph, &tri_op_reduce, &x, 1, &attr, "");
    for (int i = 0; i < shape.rank; i++)
        if (!(attr.axes >> i & 1)) left.dims[left.rank++] = shape.dims[i];
    if (keep || attr.axes == 0) return y;
    return tri_node_add(graph, &tri_op_reshape, &y, 1, &(tri_reshape_attr){.shape = left}, "");
}

static tri_value softmax(tri_graph *graph, const tri_op *op, tri_value x, int axis) {
    int64_t bits = 0;
    tri_softmax_attr attr = {0};
    if (!tri_graph_check_input(graph, op->name, NULL, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    if (!bits_of(graph, op->name, &shape, &axis, 1, &bits)) return x;
    attr.behind = shape.rank - 1 - (axis < 0 ? axis + shape.rank : axis);
    return tri_node_add(graph, op, &x, 1, &attr, "");
}

tri_value tri_softmax(tri_graph *graph, tri_value x, int axis) {
    return softmax(graph, &tri_op_softmax, x, axis);
}

tri_value tri_log_softmax_along(tri_graph *graph, tri_value x, int axis) {
    return softmax(graph, &tri_op_log_softmax, x, axis);
}

tri_value tri_sum(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "sum", TRI_REDUCTION_SUM, x, axes, count, keep);
}

tri_value tri_mean(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    tri_value sum = reduce(graph, "mean", TRI_REDUCTION_SUM, x, axes, count, keep);
    if (graph->status == TRI_OK && !tri_dtype_is_float(tri_value_get(graph, x)->dtype))
        tri_graph_fail(graph, "mean: integers have no mean: make them F32 (tri_cast)");
    tri_shape from = tri_value_shape(graph, x), to = tri_value_shape(graph, sum);
    int64_t elements = tri_shape_count(&from), means = tri_shape_count(&to);
    return tri_mul_scalar(graph, sum, elements > 0 ? (double)means / (double)elements : 0);
}

tri_value tri_amax(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "amax", TRI_REDUCTION_MAX, x, axes, count, keep);
}

tri_value tri_amin(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "amin", TRI_REDUCTION_MIN, x, axes, count, keep);
}

tri_value tri_cast(tri_graph *graph, tri_value x, tri_dtype dtype) {
    if (!tri_graph_check_input(graph, "cast", NULL, x)) return x;
    if (dtype != TRI_F32 && dtype != TRI_I64 && dtype != TRI_I32 && dtype != TRI_U8) {
        tri_graph_fail(graph, "cast: takes F32, I64, I32 or U8, not %s", tri_dtype_name(dtype));
        return x;
    }
    tri_cast_attr attr = {.dtype = dtype == TRI_F32 ? graph->options.dtype : dtype};
    if (tri_value_get(graph, x)->dtype == (tri_dtype)attr.dtype) return x;
    return tri_node_add(graph, &tri_op_cast, &x, 1, &attr, "");
}

tri_value tri_prod(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "prod", TRI_REDUCTION_PROD, x, axes, count, keep);
}

// 1 where x is not 0, 0 elsewhere, also of integers.
static tri_value truth_of(tri_graph *graph, tri_value x) {
    return tri_cast(graph, tri_map(graph, "x != 0", x), TRI_F32);
}

tri_value tri_any(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "any", TRI_REDUCTION_MAX, truth_of(graph, x), axes, count, keep);
}

tri_value tri_all(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "all", TRI_REDUCTION_MIN, truth_of(graph, x), axes, count, keep);
}

tri_value tri_var(tri_graph *graph, tri_value x, const int *axes, int count, int64_t correction,
                  bool keep) {
    tri_value sum = reduce(graph, "var", TRI_REDUCTION_SQUARES, x, axes, count, keep);
    if (graph->status != TRI_OK) return sum;
    tri_shape from = tri_value_shape(graph, x), to = tri_value_shape(graph, sum);
    int64_t of_each = tri_shape_count(&from) / (tri_shape_count(&to) ? tri_shape_count(&to) : 1);
    if (correction < 0 || of_each <= correction) {
        tri_graph_fail(graph, "var: a correction of %lld needs more than %s", (long long)correction,
                       tri_counted(of_each, "element"));
        return sum;
    }
    return tri_mul_scalar(graph, sum, 1 / (double)(of_each - correction));
}

// The root of a sum of squares, with the gradient 0 at 0.
#define ROOT_OF "s -> s == 0 ? 0 : sqrt(s)"

tri_value tri_std(tri_graph *graph, tri_value x, const int *axes, int count, int64_t correction,
                  bool keep) {
    return tri_map(graph, ROOT_OF, tri_var(graph, x, axes, count, correction, keep));
}

tri_value tri_norm(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return tri_map(graph, ROOT_OF, tri_sum(graph, tri_square(graph, x), axes, count, keep));
}

tri_value tri_logsumexp(tri_graph *graph, tri_value x, const int *axes, int count, bool keep) {
    return reduce(graph, "logsumexp", TRI_REDUCTION_LOGSUMEXP, x, axes, count, keep);
}

tri_value tri_normalize(tri_graph *graph, tri_value x, int axis, double eps) {
    tri_value in[] = {x, tri_sum(graph, tri_square(graph, x), &axis, 1, true)};
    return map_of(graph, "normalize", "x, s, eps = 1 -> x / max(s == 0 ? 0 : sqrt(s), eps)", in, 2,
                  (const double[]){eps > 0 ? eps : 1e-12});
}

tri_value tri_cosine_similarity(tri_graph *graph, tri_value a, tri_value b, int axis, double eps) {
    tri_value in[] = {tri_sum(graph, tri_mul(graph, a, b), &axis, 1, false),
                      tri_norm(graph, a, &axis, 1, false), tri_norm(graph, b, &axis, 1, false)};
    return map_of(graph, "cosine_similarity", "p, a, b, eps = 1 -> p / (max(a, eps) * max(b, eps))",
                  in, 3, (const double[]){eps > 0 ? eps : 1e-8});
}

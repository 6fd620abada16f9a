// Attention: the fused op where it can compute what is asked for, else products of matrices with a
// softmax between them.
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <math.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

// The sizes of q [N, T, H, D], k [N, S, K, D] and v [N, S, K, E]; a head of k and v is read by
// H / K heads of q.
typedef struct sizes {
    int64_t n, t, h, d, s, k, e;
} sizes;

// Checks the shapes, as the fused op does, but v may have heads of another size.
static bool sizes_of(tri_graph *graph, const char *name, const tri_value in[3], sizes *z) {
    tri_shape shapes[3];
    char text[3][160];
    for (int i = 0; i < 3; i++) {
        if (!tri_graph_check_input(graph, "attention", name, in[i])) return false;
        shapes[i] = tri_value_shape(graph, in[i]);
        tri_shape_text(&shapes[i], text[i], sizeof text[i]);
    }
    const int64_t *q = shapes[0].dims, *k = shapes[1].dims, *v = shapes[2].dims;
    *z = (sizes){.n = q[0], .t = q[1], .h = q[2], .d = q[3], .s = k[1], .k = k[2], .e = v[3]};
    bool fits = shapes[0].rank == 4 && shapes[1].rank == 4 && shapes[2].rank == 4 && k[0] == z->n &&
                v[0] == z->n && v[1] == z->s && v[2] == z->k && k[3] == z->d && z->k > 0 &&
                z->h % z->k == 0;
    if (!fits)
        tri_graph_fail(graph,
                       "attention %s: q [N, T, H, D], k [N, S, K, D] and v [N, S, K, E], with H a "
                       "multiple of K, are %s, %s and %s",
                       name, text[0], text[1], text[2]);
    return fits;
}

// Multiplies operands of the axes [N, position, K, H / K, width], of which the heads are the batch
// axes. y is F32 if it is `wide`; `order`: how the axes of a, b and y lie.
static tri_value multiply(tri_graph *graph, const char *name, tri_value a, tri_value b, bool wide,
                          const int8_t orders[TRI_MATMUL_OPERANDS][5]) {
    tri_matmul_attr attr = {.permuted = 7, .wide = wide};
    for (int k = 0; k < TRI_MATMUL_OPERANDS; k++)
        for (int i = 0; i < 5; i++) attr.axes[k][i] = orders[k][i];
    return tri_node_add(graph, &tri_op_matmul, (tri_value[]){a, b}, 2, &attr, name);
}

// Applies an expression of the scores and another value, which is broadcast to their shape.
static tri_value with(tri_graph *graph, const char *name, const char *expression,
                      const double *parameters, tri_value scores, tri_value other) {
    tri_map_attr attr = {.expands = true, .shape = tri_value_shape(graph, scores)};
    if (!tri_value_is(other)) return scores;
    if (tri_formula_parse(expression, parameters, &attr.formula) != TRI_OK)
        tri_graph_fail(graph, "%s", tri_error_message());
    return tri_node_add(graph, &tri_op_map, (tri_value[]){scores, other}, 2, &attr, name);
}

static tri_value composed(tri_graph *graph, const char *name, const tri_value in[3], const sizes *z,
                          double scale, const tri_attention_options *o) {
    static const int8_t scores_of[][5] = {{0, 2, 3, 1, 4}, {0, 2, 3, 4, 1}, {0, 1, 2, 3, 4}};
    static const int8_t mean_of[][5] = {{0, 1, 2, 3, 4}, {0, 2, 3, 1, 4}, {0, 2, 3, 1, 4}};
    int64_t group = z->h / z->k;
    tri_softmax_attr softmax = {.causal = o->causal, .empty = true};
    // q is scaled rather than the scores, of which there are more.
    tri_value q = tri_mul_scalar(graph, in[0], scale);
    q = tri_reshape(graph, q, tri_shape_of(z->n, z->t, z->k, group, z->d));
    tri_value k = tri_reshape(graph, in[1], tri_shape_of(z->n, z->s, z->k, 1, z->d));
    tri_value v = tri_reshape(graph, in[2], tri_shape_of(z->n, z->s, z->k, 1, z->e));
    tri_value p = multiply(graph, name, q, k, true, scores_of);
    p = tri_reshape(graph, p, tri_shape_of(z->n, z->h, z->t, z->s));
    p = with(graph, name, "x, bias -> x + bias", NULL, p, o->bias);
    p = with(graph, name, "x, mask, low = 0 -> mask != 0 ? x : low", &(double){-INFINITY}, p,
             o->mask);
    p = tri_node_add(graph, &tri_op_softmax, &p, 1, &softmax, name);
    if (o->dropout > 0) p = nn_dropout(graph, tri_name(graph, "%s.dropout", name), p, o->dropout);
    p = tri_reshape(graph, p, tri_shape_of(z->n, z->k, group, z->t, z->s));
    tri_value y = multiply(graph, name, p, v, false, mean_of);
    return tri_reshape(graph, y, tri_shape_of(z->n, z->t, z->h, z->e));
}

// Which of S keys each of T queries has in its window, [T, S]: 1 or 0. The last ones stand side by
// side.
static tri_value window_mask(tri_graph *graph, const sizes *z, int64_t window) {
    tri_value t = tri_unsqueeze(graph, tri_arange(graph, z->t), 1), s = tri_arange(graph, z->s);
    const char *formula =
        tri_name(graph, "t, s -> t + %lld - s < %lld", (long long)(z->s - z->t), (long long)window);
    return tri_cast(graph, tri_map(graph, formula, t, s), TRI_F32);
}

tri_value tri_attention(tri_graph *graph, const char *name, tri_value q, tri_value k, tri_value v,
                        tri_attention_options o) {
    const tri_value in[] = {q, k, v};
    sizes z;
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    // Also asked for in evaluation, because a key that no layer asks for is refused.
    double given = o.dropout > 0 ? tri_model_float(graph, "dropout", o.dropout) : o.dropout;
    if (!o.own_rate || given == 0) o.dropout = given;
    if (o.dropout < 0 || o.dropout >= 1)
        tri_graph_fail(graph, "attention %s: the rate of dropout must lie in [0, 1), not %g", name,
                       o.dropout);
    if (o.window < 0 || (o.window > 0 && !o.causal))
        tri_graph_fail(graph, "attention %s: a window is at least 1 and needs `causal`, not %lld",
                       name, (long long)o.window);
    bool drops = o.dropout > 0 && graph->options.training;
    tri_shape of_q = tri_value_shape(graph, q), of_v = tri_value_shape(graph, v);
    bool has_window = o.window > 0 && of_v.rank == 4 && o.window < of_v.dims[1];
    bool is_plain = !tri_value_is(o.bias) && !tri_value_is(o.mask) && !drops && !has_window;
    double scale = o.scale != 0 ? o.scale : 1 / sqrt((double)of_q.dims[3]);
    if (is_plain && of_v.dims[3] == of_q.dims[3]) {
        tri_attention_attr attr = {.scale = scale, .causal = o.causal};
        return tri_node_add(graph, &tri_op_attention, in, 3, &attr, name);
    }
    if (!sizes_of(graph, name, in, &z)) return (tri_value){0};
    if (has_window) {
        tri_value near = window_mask(graph, &z, o.window);
        o.mask =
            tri_value_is(o.mask) ? tri_map(graph, "a, b -> a != 0 && b != 0", o.mask, near) : near;
    }
    return composed(graph, name, in, &z, scale, &o);
}

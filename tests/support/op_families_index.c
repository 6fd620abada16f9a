// Builds random graphs of the ops that work along one axis by the numbers of its elements, with
// their gradients.
#include "support/op_families.h"

#include <trireme/functions.h>
#include <trireme/nn.h>
#include <trireme/own_op.h>

static tri_shape draw_shape(op_case *c) {
    tri_shape shape = {.rank = (int)op_draw(c, 1, 4)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = op_draw(c, 1, 7);
    if (op_chance(c, 20)) shape.dims[op_draw(c, 0, shape.rank - 1)] = op_draw(c, 60, 300);
    return shape;
}

// Adds the gradients of all inputs of the node that made y, whose further outputs have none.
static void add_gradients(op_case *c, tri_value y) {
    tri_value out_grads[TRI_MAX_OUTPUTS] = {op_numbers(c, tri_value_shape(c->graph, y), -1, 1)};
    tri_value in_grads[TRI_MAX_INPUTS] = {{0}};
    bool wanted[TRI_MAX_INPUTS];
    for (int k = 0; k < TRI_MAX_INPUTS; k++) wanted[k] = true;
    tri_node node = *tri_value_node(c->graph, y); // nodes may move while more are added
    node.op->gradient(c->graph, &node, out_grads, wanted, in_grads);
}

// Draws an index for a tensor of this shape: for all other axes, or for none of those on a side.
static tri_value draw_index(op_case *c, tri_shape shape, int64_t axis, int64_t count) {
    int64_t size = shape.dims[axis];
    bool shared[2] = {op_chance(c, 30), op_chance(c, 40)};
    for (int i = 0; i < shape.rank; i++)
        if (i != axis && shared[i > axis]) shape.dims[i] = 1;
    shape.dims[axis] = count;
    return op_tokens(c, shape, size);
}

void op_build_gather(op_case *c) {
    tri_shape shape = draw_shape(c);
    int64_t axis = op_draw(c, 0, shape.rank - 1), count = op_draw(c, 1, 12);
    if (op_chance(c, 10)) count = 500;
    tri_gather_attr attr = {.axis = axis};
    tri_value in[] = {draw_index(c, shape, axis, count), op_numbers(c, shape, -1, 1)};
    add_gradients(c, tri_node_add(c->graph, &tri_op_gather, in, 2, &attr, ""));
    tri_value numbers[] = {in[0], op_labels(c, shape, 1000)}; // integers are copied too
    tri_node_add(c->graph, &tri_op_gather, numbers, 2, &attr, "");
}

void op_build_scatter(op_case *c) {
    tri_shape shape = draw_shape(c), from = shape;
    tri_scatter_attr attr = {.kind = op_draw(c, TRI_SCATTER_SET, TRI_SCATTER_MAX),
                             .axis = op_draw(c, 0, shape.rank - 1),
                             .shape = shape};
    from.dims[attr.axis] = op_chance(c, 10) ? 500 : op_draw(c, 1, 12);
    tri_value in[3] = {draw_index(c, shape, attr.axis, from.dims[attr.axis]),
                       op_numbers(c, from, -1, 1)};
    if (attr.kind == TRI_SCATTER_MAX || op_chance(c, 60)) in[2] = op_numbers(c, shape, -1, 1);
    tri_value y = tri_node_add(c->graph, &tri_op_scatter, in, 3, &attr, "");
    if (tri_value_is(in[2])) add_gradients(c, y);
}

// Numbers of which some may be equal, because they are rounded.
static tri_value some_equal(op_case *c, tri_shape shape) {
    tri_value x = op_numbers(c, shape, -2, 2);
    return op_chance(c, 50) ? tri_round(c->graph, x) : x;
}

void op_build_order(op_case *c) {
    tri_shape shape = draw_shape(c);
    tri_argmax_attr argmax = {op_draw(c, 0, shape.rank - 1), op_chance(c, 50)};
    int64_t size = shape.dims[argmax.axis];
    tri_sort_attr sort = {argmax.axis, op_chance(c, 50) ? size : op_draw(c, 1, size),
                          op_chance(c, 50)};
    tri_value x = some_equal(c, shape);
    tri_node_add(c->graph, &tri_op_argmax, &x, 1, &argmax, "");
    add_gradients(c, tri_node_add(c->graph, &tri_op_sort, &x, 1, &sort, ""));
}

void op_build_scan(op_case *c) {
    tri_shape shape = draw_shape(c);
    tri_scan_attr attr = {.kind = op_draw(c, TRI_SCAN_SUM, TRI_SCAN_LOGSUMEXP),
                          .axis = op_draw(c, 0, shape.rank - 1)};
    attr.reverse = attr.kind == TRI_SCAN_SUM && op_chance(c, 50);
    bool is_product = attr.kind == TRI_SCAN_PROD;
    tri_value x = is_product ? op_numbers(c, shape, 0.5, 1.5) : some_equal(c, shape);
    add_gradients(c, tri_node_add(c->graph, &tri_op_scan, &x, 1, &attr, ""));
}

// Formulas on integers, also read by views, and casts to and from them.
void op_build_integers(op_case *c) {
    tri_shape shape = draw_shape(c);
    tri_graph *g = c->graph;
    tri_value a = op_tokens(c, shape, 300), b = op_labels(c, shape, 300);
    tri_value y = tri_map(g, "a, b -> a * b + max(a, b) - (a < b ? 3 : -b) * (a == 7)", a, b);
    int axis = (int)op_draw(c, 0, shape.rank - 1);
    y = tri_sub(g, tri_flip(g, y, axis), tri_slice(g, tri_pad(g, a, axis, 1, 0), axis, 0, -1, 1));
    tri_value narrow = tri_cast(g, y, TRI_I32), byte = tri_cast(g, narrow, TRI_U8);
    tri_mul(g, narrow, narrow);
    tri_map(g, "x -> x * 3 + !x", byte);
    tri_cast_attr number = {.dtype = c->dtype}, whole = {.dtype = TRI_I64};
    tri_value x = op_numbers(c, shape, -1000, 1000);
    op_add(c, &tri_op_cast, &byte, &number);
    op_add(c, &tri_op_cast, &x, &whole);
}

// Masks, division with remainder and bits of integers, and what goes along their axes.
void op_build_masks(op_case *c) {
    static const tri_dtype types[] = {TRI_I64, TRI_I32, TRI_U8};
    tri_shape shape = draw_shape(c);
    tri_graph *g = c->graph;
    tri_value a = op_tokens(c, shape, 300), b = op_labels(c, shape, 300);
    tri_value x = op_numbers(c, shape, -3, 3);
    tri_value y = tri_map(g, "a, b -> a // b * 7 + a % b - fmod(b, a) + (a & ~b | b << 3)", a, b);
    tri_value mask = tri_mask(g, "a, y -> a > y || a & 1", a, y);
    int axis = (int)op_draw(c, 0, shape.rank - 1);
    tri_value above = tri_mask(g, "x, m -> x > 0.5 || m && x < -1", x, tri_flip(g, mask, axis));
    tri_where(g, above, x, tri_square(g, x));
    tri_where(g, mask, y, a);
    y = tri_cast(g, y, types[op_draw(c, 0, 2)]);
    tri_reduce_attr reduce = {.kind = op_draw(c, TRI_REDUCTION_SUM, TRI_REDUCTION_PROD),
                              .axes = op_draw(c, 0, (1 << shape.rank) - 1)};
    tri_scan_attr scan = {.kind = op_draw(c, TRI_SCAN_SUM, TRI_SCAN_MIN), .axis = axis};
    tri_argmax_attr argmax = {axis, op_chance(c, 50)};
    tri_sort_attr sort = {axis, op_draw(c, 1, shape.dims[axis]), op_chance(c, 50)};
    tri_node_add(g, &tri_op_reduce, &y, 1, &reduce, "");
    tri_node_add(g, &tri_op_scan, &y, 1, &scan, "");
    tri_node_add(g, &tri_op_argmax, &y, 1, &argmax, "");
    tri_node_add(g, &tri_op_sort, &y, 1, &sort, "");
}

// An op of a program's own: y[n] = s · x[n] · w[index[n]], and the squares of that.
static const char *pick_shape(const tri_shape *in, tri_shape *out, const double *settings) {
    if (in[0].rank != 1 || !tri_shape_equal(&in[0], &in[1])) return "x and the index differ";
    out[0] = out[1] = in[0];
    return NULL;
}

static void pick_compute(const tri_own_call *c) {
    for (int64_t i = 0; i < c->in[0].count; i++) {
        int64_t at = ((const int64_t *)c->in[1].data)[i];
        double y = c->settings[0] * tri_own_get(&c->in[0], i) * tri_own_get(&c->in[2], at);
        tri_own_put(&c->out[0], i, y);
        tri_own_put(&c->out[1], i, y * y);
    }
}

static void pick_gradient(const tri_own_call *c) {
    for (int64_t i = 0; i < c->in[0].count; i++) {
        int64_t at = ((const int64_t *)c->in[1].data)[i];
        double x = tri_own_get(&c->in[0], i), w = tri_own_get(&c->in[2], at), g = 0;
        if (c->out_grad[0].data) g += tri_own_get(&c->out_grad[0], i);
        if (c->out_grad[1].data)
            g += 2 * tri_own_get(&c->out[0], i) * tri_own_get(&c->out_grad[1], i);
        g *= c->settings[0];
        tri_own_put(&c->in_grad[0], i, g * w);
        tri_own_put(&c->in_grad[2], at, tri_own_get(&c->in_grad[2], at) + g * x);
    }
}

static const tri_own_op op_pick = {.name = "pick",
                                   .inputs = 3,
                                   .outputs = 2,
                                   .settings = 1,
                                   .integers = 2,
                                   .keeps_outputs = true,
                                   .shape = pick_shape,
                                   .compute = pick_compute,
                                   .gradient = pick_gradient};

void op_build_own(op_case *c) {
    int64_t count = op_draw(c, 1, 40), rows = op_draw(c, 1, 9);
    tri_shape shape = tri_shape_of(count);
    tri_value in[] = {op_numbers(c, shape, -1, 1), op_tokens(c, shape, rows),
                      op_numbers(c, tri_shape_of(rows), -1, 1)};
    TRI_ASSERT(tri_op_register(&op_pick) == TRI_OK);
    add_gradients(c, tri_op_apply(c->graph, "pick", in, &(double){1.5}, NULL));
}

// Caches whose tokens are all written, since what they keep is no number here. Then attention to
// caches of other numbers, by spans of which some are empty or longer than the call.
void op_build_cache(op_case *c) {
    int64_t samples = op_draw(c, 1, 3), tokens = op_draw(c, 1, 6), kv_heads = op_draw(c, 1, 3);
    int64_t width = op_chance(c, 60) ? 16 * op_draw(c, 1, 5) : op_draw(c, 1, 20);
    int64_t before = op_chance(c, 30) ? op_draw(c, 200, 600) : op_draw(c, 1, 60);
    tri_shape all = tri_shape_of(samples, tokens, kv_heads, width), q = all, kv = all;
    kv.dims[1] = before + tokens + op_draw(c, 0, 5);
    q.dims[2] *= op_draw(c, 1, 3);
    tri_value spans = op_tokens(c, tri_shape_of(samples, 2), before);
    tri_value zero = tri_map(c->graph, "x * 0", tri_slice(c->graph, spans, 1, 0, 1, 1));
    tri_value whole = tri_map(c->graph, tri_name(c->graph, "x + %d", (int)tokens), zero);
    tri_value in[4] = {op_numbers(c, all, -1, 1),
                       tri_concat(c->graph, (tri_value[]){zero, whole}, 2, 1)};
    op_add(c, &tri_op_cache, in, &(tri_cache_attr){tokens});
    tri_cached_attention_attr a = {.scale = (double)op_draw(c, 1, 8) / 8,
                                   .window = op_chance(c, 40) ? op_draw(c, 1, before) : 0};
    in[0] = op_numbers(c, q, -2, 2);
    in[1] = op_numbers(c, kv, -2, 2);
    in[2] = op_numbers(c, kv, -1, 1);
    in[3] = spans;
    op_add(c, &tri_op_cached_attention, in, &a);
}

// Functions of indices and along an axis of the networks of random_net.c: elements by their
// numbers, order, running sums. Indices are made of data alone, which rounding does not change.
#include "random_net.h"

// Numbers from 0 to size - 1, made of data.
static tri_value indices(net *n, tri_shape shape, int64_t size) {
    tri_graph *g = n->graph;
    tri_value data = net_data_as(n, shape);
    const char *formula =
        tri_name(g, "x -> min(floor(%lld * (4 * abs(x) - floor(4 * abs(x)))), %lld)",
                 (long long)size, (long long)size - 1);
    return tri_cast(g, tri_map(g, formula, data), TRI_I64);
}

// The same for all samples: a vector of `count`.
static tri_value vector(net *n, int64_t count, int64_t size) {
    tri_graph *g = n->graph;
    tri_value numbers = tri_arange(g, count);
    static const char *const forms[] = {"i -> min(i, %lld)", "i -> max(%lld - 2 * i, 0)",
                                        "i -> i * 0 + %lld", "i -> %lld - min(i, %lld)"};
    const char *form = forms[net_draw(n, 0, 3)];
    return tri_map(g, tri_name(g, form, (long long)size - 1, (long long)size - 1), numbers);
}

// Draws a value of some axes, and one of them.
static tri_value begin(net *n, tri_value x, tri_shape *shape, int *axis) {
    x = net_as(n, x, (int)net_draw(n, 2, 5));
    *shape = net_shape(n, x);
    *axis = (int)net_draw(n, 1, shape->rank - 1);
    return x;
}

// The axis by its number from either end.
static int either(net *n, int axis, int rank) { return net_chance(n, 50) ? axis : axis - rank; }

static tri_value gathered(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape;
    int axis;
    x = begin(n, x, &shape, &axis);
    int64_t size = shape.dims[axis], most = NET_ELEMENTS * size / net_elements(n, x);
    int64_t count = net_draw(n, 1, most < 1 ? 1 : most < 8 ? most : 8);
    if (n->data_count == 0 || net_chance(n, 25))
        return tri_index_select(g, x, either(n, axis, shape.rank), vector(n, count, size));
    shape.dims[axis] = count;
    bool takes = net_chance(n, 40);
    for (int i = 1; i < shape.rank; i++) {
        if (i == axis || !net_chance(n, 30)) continue;
        shape.dims[i] = takes ? 1 : net_draw(n, 1, shape.dims[i]);
    }
    tri_value index = indices(n, shape, size);
    axis = either(n, axis, shape.rank);
    return takes ? tri_take_along(g, x, axis, index) : tri_gather(g, x, axis, index);
}

static tri_value scattered(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape;
    int axis;
    x = begin(n, x, &shape, &axis);
    int64_t size = shape.dims[axis];
    shape.dims[axis] = net_draw(n, 1, 6);
    if (tri_shape_count(&shape) / shape.dims[0] > NET_ELEMENTS) return (tri_value){0};
    tri_value source = net_to(n, net_value(n), shape);
    int other = either(n, axis, shape.rank);
    if (n->data_count == 0 || net_chance(n, 25))
        return tri_index_add(g, x, other, vector(n, shape.dims[axis], size), source);
    tri_value index = indices(n, shape, size);
    switch (net_draw(n, 0, 2)) {
    case 0:
        return tri_scatter(g, x, other, index, source);
    case 1:
        return tri_scatter_add(g, x, other, index, source);
    default:
        return tri_scatter_amax(g, x, other, index, source);
    }
}

// Elements in their order, or another value's elements in the order of data.
static tri_value sorted(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape;
    tri_value index = {0};
    int axis;
    x = begin(n, x, &shape, &axis);
    int other = either(n, axis, shape.rank);
    int64_t count = net_draw(n, 1, shape.dims[axis]);
    bool of_data = n->data_count > 0 && net_chance(n, 60), largest = net_chance(n, 50);
    tri_value from = of_data ? net_data_as(n, shape) : x;
    if (net_chance(n, 25) && of_data) {
        index = net_chance(n, 50) ? tri_argmax(g, from, other, true)
                                  : tri_unsqueeze(g, tri_argmin(g, from, axis, false), axis);
        return tri_mul(g, net_chance(n, 50) ? x : tri_cast(g, index, TRI_F32),
                       tri_take_along(g, x, other, index));
    }
    tri_value y = net_chance(n, 50)
                      ? tri_sort(g, from, other, largest, of_data ? &index : NULL)
                      : tri_topk(g, from, count, other, largest, of_data ? &index : NULL);
    if (!of_data) return y;
    tri_value taken = tri_gather(g, x, other, index);
    return net_chance(n, 50) ? taken : tri_mul(g, y, taken);
}

static tri_value scanned(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape;
    int axis;
    x = begin(n, x, &shape, &axis);
    int other = either(n, axis, shape.rank);
    bool has_data = n->data_count > 0;
    tri_value index = {0};
    switch (net_draw(n, 0, 5)) {
    case 0:
        return tri_cumsum(g, net_tamed(n, x), other);
    case 1:
        return tri_cumprod(g, tri_map(g, "x -> 1 + 0.5 * tanh(x)", x), other);
    case 2:
        return net_chance(n, 50) ? tri_cummax(g, x, other, NULL) : tri_cummin(g, x, other, NULL);
    case 3:
        if (!has_data) return tri_cummax(g, x, other, NULL);
        if (net_chance(n, 50))
            tri_cummax(g, net_data_as(n, shape), other, &index);
        else
            tri_cummin(g, net_data_as(n, shape), other, &index);
        return tri_gather(g, x, other, index);
    case 4:
        if (!has_data) return tri_cumsum(g, net_tamed(n, x), other);
        return tri_mul(g, net_tamed(n, x), tri_cumprod(g, net_data_as(n, shape), other));
    default:
        return tri_logcumsumexp(g, x, other);
    }
}

// Products, and whether data are 0.
static tri_value judged(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape;
    int axes[2], count = 1;
    x = begin(n, x, &shape, &axes[0]);
    if (shape.rank > 2 && net_chance(n, 40)) {
        axes[1] = axes[0] > 1 ? 1 : 2;
        count = 2;
    }
    bool keep = net_chance(n, 60);
    if (n->data_count == 0 || net_chance(n, 40))
        return tri_prod(g, tri_map(g, "x -> 0.8 + 0.7 * sin(x)", x), axes, count, keep);
    tri_value data = net_data_as(n, shape);
    if (net_chance(n, 25)) return tri_mul(g, x, tri_prod(g, data, axes, count, true));
    tri_value is = tri_mask(g, "x -> x > 0.3", data);
    is = net_chance(n, 50) ? tri_any(g, is, axes, count, true) : tri_all(g, is, axes, count, true);
    return tri_where(g, tri_mask(g, "is", is), x, tri_mul_scalar(g, x, 0.5));
}

// Token ids and numbers of places, exactly and in their own type, as a mask.
static tri_value counted(net *n, tri_value x) {
    tri_graph *g = n->graph;
    tri_shape shape;
    int axis;
    x = begin(n, x, &shape, &axis);
    int last = shape.rank - 1;
    tri_value columns = tri_arange(g, shape.dims[last]);
    tri_value mask;
    if (shape.rank > 2 && net_chance(n, 50)) {
        tri_value rows = tri_unsqueeze(g, tri_arange(g, shape.dims[last - 1]), 1);
        mask = tri_map(g, net_chance(n, 50) ? "i, j -> j <= i" : "i, j -> i < 2 ? j : i", rows,
                       columns);
    } else if (n->data_count && net_chance(n, 60)) {
        tri_value index = indices(n, shape, shape.dims[last]);
        if (net_chance(n, 40)) {
            index = tri_cast(g, index, TRI_I32);
            columns = tri_cast(g, columns, TRI_I32);
        }
        mask = tri_map(g, "i, j -> max(i, j) - 2 * min(i, j)", index, columns);
    } else {
        mask = tri_map(g, "i -> 3 - 2 * (i == 1)", columns);
    }
    mask = tri_cast(g, mask, TRI_F32);
    return net_chance(n, 50) ? tri_mul(g, x, mask)
                             : tri_map(g, "x, m -> m > 0 ? x : -x / 2", x, mask);
}

static tri_value windows(net *n, tri_value x) {
    tri_shape shape;
    int axis;
    x = begin(n, x, &shape, &axis);
    int64_t size = shape.dims[axis], of = net_draw(n, 1, size < 4 ? size : 4);
    int64_t step = net_draw(n, 1, 3), count = (size - of) / step + 1;
    if (net_elements(n, x) / size * count * of > NET_ELEMENTS) return (tri_value){0};
    return tri_unfold(n->graph, x, either(n, axis, shape.rank), of, step);
}

const net_primitive net_indices[] = {gathered, gathered, scattered, scattered, sorted,  sorted,
                                     scanned,  scanned,  judged,    counted,   windows, NULL};

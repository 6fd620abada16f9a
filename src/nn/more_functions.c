// The functions of more_functions.h that are made of others: parts, diagonals, order and places.
#include "base/quantity.h"
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

static tri_value none(void) { return (tri_value){0}; }

// Checks that x has at least `least` axes.
static bool takes(tri_graph *g, const char *name, tri_value x, int least) {
    if (!tri_graph_check_input(g, name, NULL, x)) return false;
    int rank = tri_value_shape(g, x).rank;
    if (rank < least)
        tri_graph_fail(g, "%s: needs at least %s, not %d", name, tri_counted(least, "axis"), rank);
    return rank >= least;
}

// Finds the number and the size of an axis. False: the graph has failed.
static bool find_axis(tri_graph *g, const char *name, tri_value x, int *axis, int64_t *size) {
    if (!takes(g, name, x, 1)) return false;
    tri_shape shape = tri_value_shape(g, x);
    if ((*axis = nn_axis(g, name, *axis, shape.rank)) < 0) return false;
    *size = shape.dims[*axis];
    return true;
}

tri_value tri_addmm(tri_graph *graph, tri_value c, tri_value a, tri_value b, double beta,
                    double alpha) {
    const char *sum = tri_name(graph, "c, p -> %.17g * c + %.17g * p", beta, alpha);
    tri_value p = tri_matmul(graph, a, b);
    if (!takes(graph, "addmm", c, 0)) return none();
    return beta == 0 ? tri_mul_scalar(graph, p, alpha) : tri_map(graph, sum, c, p);
}

tri_value tri_outer(tri_graph *graph, tri_value a, tri_value b) {
    return tri_mul(graph, tri_unsqueeze(graph, a, -1), b);
}

tri_value tri_cross(tri_graph *graph, tri_value a, tri_value b, int axis) {
    tri_value turned[2][2], given[] = {a, b};
    for (int i = 0; i < 2; i++) {
        int64_t size;
        int at = axis;
        if (!find_axis(graph, "cross", given[i], &at, &size)) return none();
        if (size != 3) {
            tri_graph_fail(graph, "cross: vectors have 3 elements, not %" PRId64, size);
            return none();
        }
        for (int k = 0; k < 2; k++) turned[i][k] = tri_roll(graph, given[i], at, -1 - k);
    }
    return tri_map(graph, "a, b, c, d -> a * b - c * d", turned[0][0], turned[1][1], turned[0][1],
                   turned[1][0]);
}

tri_value tri_vector_norm(tri_graph *graph, tri_value x, double p, const int *axes, int count,
                          bool keep) {
    if (p == 0 || p == 2) return tri_norm(graph, x, axes, count, keep);
    if (!(p > 0)) {
        tri_graph_fail(graph, "vector_norm: p must be above 0, not %g", p);
        return none();
    }
    if (isinf(p)) return tri_amax(graph, tri_abs(graph, x), axes, count, keep);
    // At 0 the slope of a power below 1 is infinite, and that of the norm counts as 0.
    const char *power = tri_name(graph, "x == 0 ? 0 : abs(x) ^ %.17g", p);
    const char *root = tri_name(graph, "s == 0 ? 0 : s ^ %.17g", 1 / p);
    tri_value sum = tri_sum(graph, tri_map(graph, power, x), axes, count, keep);
    return p == 1 ? sum : tri_map(graph, root, sum);
}

tri_value tri_normalize_by(tri_graph *graph, tri_value x, double p, int axis, double eps) {
    if (p == 0 || p == 2) return tri_normalize(graph, x, axis, eps);
    const char *formula = tri_name(graph, "x, n -> x / max(n, %.17g)", eps > 0 ? eps : 1e-12);
    return tri_map(graph, formula, x, tri_vector_norm(graph, x, p, &axis, 1, true));
}

tri_value tri_cdist(tri_graph *graph, tri_value a, tri_value b, double p) {
    if (!takes(graph, "cdist", a, 2) || !takes(graph, "cdist", b, 2)) return none();
    tri_value d = tri_sub(graph, tri_unsqueeze(graph, a, -2), tri_unsqueeze(graph, b, -3));
    return tri_vector_norm(graph, d, p, (int[]){-1}, 1, false);
}

tri_value tri_movedim(tri_graph *graph, tri_value x, int from, int to) {
    int64_t size;
    int order[TRI_MAX_RANK];
    if (!find_axis(graph, "movedim", x, &from, &size)) return none();
    if (!find_axis(graph, "movedim", x, &to, &size)) return none();
    int rank = tri_value_shape(graph, x).rank;
    for (int i = 0, at = 0; i < rank; i++) {
        at += at == from; // its place is `to`
        order[i] = i == to ? from : at++;
    }
    return tri_permute(graph, x, order);
}

void tri_split_with_sizes(tri_graph *graph, tri_value x, int axis, const int64_t *sizes, int count,
                          tri_value *parts) {
    int64_t size = 0, end = 0;
    for (int i = 0; i < count; i++) parts[i] = none();
    if (!find_axis(graph, "split", x, &axis, &size)) return;
    for (int i = 0; i < count && end >= 0; i++) end = sizes[i] > 0 ? end + sizes[i] : -1;
    if (end != size) {
        tri_graph_fail(graph, "split: the sizes must be above 0 and add up to %" PRId64, size);
        return;
    }
    end = 0;
    for (int i = 0; i < count; i++) {
        parts[i] = tri_slice(graph, x, axis, end, end + sizes[i], 1);
        end += sizes[i];
    }
}

void tri_meshgrid(tri_graph *graph, const tri_value *vectors, int count, tri_value *grids) {
    tri_shape shape = {.rank = count};
    for (int i = 0; i < count; i++) grids[i] = none();
    if (count < 1 || count > TRI_MAX_RANK) {
        tri_graph_fail(graph, "meshgrid: takes 1 to %d vectors, not %d", TRI_MAX_RANK, count);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (!takes(graph, "meshgrid", vectors[i], 1)) return;
        if (tri_value_shape(graph, vectors[i]).rank > 1) {
            tri_graph_fail(graph, "meshgrid: takes vectors of one axis");
            return;
        }
        shape.dims[i] = tri_value_shape(graph, vectors[i]).dims[0];
    }
    for (int i = 0; i < count; i++) {
        tri_shape own = {.rank = count};
        for (int k = 0; k < count; k++) own.dims[k] = k == i ? shape.dims[i] : 1;
        grids[i] = tri_expand(graph, tri_reshape(graph, vectors[i], own), shape);
    }
}

// x where j - i, of the last two axes, compares with a diagonal; else 0.
static tri_value triangle(tri_graph *g, const char *name, tri_value x, const char *compares,
                          int64_t diagonal) {
    if (!takes(g, name, x, 2)) return none();
    tri_shape shape = tri_value_shape(g, x);
    tri_value i = tri_unsqueeze(g, tri_arange(g, shape.dims[shape.rank - 2]), 1);
    tri_value j = tri_arange(g, shape.dims[shape.rank - 1]);
    const char *inside = tri_name(g, "i, j -> j - i %s %" PRId64, compares, diagonal);
    return tri_map(g, "x, inside -> inside ? x : 0", x, tri_mask(g, inside, i, j));
}

tri_value tri_tril(tri_graph *graph, tri_value x, int64_t diagonal) {
    return triangle(graph, "tril", x, "<=", diagonal);
}

tri_value tri_triu(tri_graph *graph, tri_value x, int64_t diagonal) {
    return triangle(graph, "triu", x, ">=", diagonal);
}

// A square of n · n elements, with n more behind them, has its diagonal as the first column of n
// rows of n + 1.
tri_value tri_diagonal(tri_graph *graph, tri_value x, int64_t offset, int axis1, int axis2) {
    int64_t rows = 0, columns = 0, up = offset > 0 ? offset : 0, down = offset < 0 ? -offset : 0;
    if (!find_axis(graph, "diagonal", x, &axis1, &rows)) return none();
    if (!find_axis(graph, "diagonal", x, &axis2, &columns)) return none();
    int64_t n = rows - down < columns - up ? rows - down : columns - up;
    if (axis1 == axis2 || n < 1) {
        tri_graph_fail(graph, "diagonal: needs two axes, which have a diagonal %" PRId64, offset);
        return none();
    }
    x = tri_movedim(graph, x, axis1, -1);
    x = tri_movedim(graph, x, axis2 - (axis2 > axis1), -1);
    x = tri_slice(graph, tri_slice(graph, x, -2, down, down + n, 1), -1, up, up + n, 1);
    tri_shape shape = tri_value_shape(graph, x), flat = shape;
    if (shape.rank < 2) return x; // the graph has failed
    flat.dims[--flat.rank - 1] = n * n;
    shape.dims[shape.rank - 1] = n + 1;
    x = tri_pad(graph, tri_reshape(graph, x, flat), -1, 0, n);
    return tri_select(graph, tri_reshape(graph, x, shape), -1, 0);
}

tri_value tri_diag_embed(tri_graph *graph, tri_value x, int64_t offset) {
    int64_t n, up = offset > 0 ? offset : 0, down = offset < 0 ? -offset : 0;
    int last = -1;
    if (!find_axis(graph, "diag_embed", x, &last, &n)) return none();
    tri_shape flat = tri_value_shape(graph, x);
    x = tri_pad(graph, tri_unsqueeze(graph, x, -1), -1, 0, n);
    tri_shape square = tri_value_shape(graph, x);
    if (square.rank < 2) return x; // the graph has failed
    flat.dims[last] = n * (n + 1);
    square.dims[square.rank - 1] = n;
    x = tri_slice(graph, tri_reshape(graph, x, flat), -1, 0, n * n, 1);
    x = tri_reshape(graph, x, square);
    return tri_pad(graph, tri_pad(graph, x, -2, down, up), -1, up, down);
}

tri_value tri_trace(tri_graph *graph, tri_value x) {
    return tri_sum(graph, tri_diagonal(graph, x, 0, -2, -1), (int[]){-1}, 1, false);
}

tri_value tri_one_hot(tri_graph *graph, tri_value ids, int64_t classes) {
    tri_value is = tri_equal(graph, tri_unsqueeze(graph, ids, -1), tri_arange(graph, classes));
    return tri_cast(graph, is, TRI_F32);
}

tri_value tri_diff(tri_graph *graph, tri_value x, int64_t times, int axis) {
    int64_t size;
    if (!find_axis(graph, "diff", x, &axis, &size)) return none();
    for (int64_t i = 0; i < times && graph->status == TRI_OK; i++)
        x = tri_sub(graph, tri_slice(graph, x, axis, 1, 0, 1), tri_slice(graph, x, axis, 0, -1, 1));
    return x;
}

tri_value tri_trapezoid(tri_graph *graph, tri_value y, double dx, int axis) {
    const char *formula = tri_name(graph, "sum, a, b -> %.17g * (sum - (a + b) / 2)", dx);
    return tri_map(graph, formula, tri_sum(graph, y, &axis, 1, false),
                   tri_select(graph, y, axis, 0), tri_select(graph, y, axis, -1));
}

tri_value tri_index_fill(tri_graph *graph, tri_value x, int axis, tri_value index, double value) {
    tri_value given = tri_index_select(graph, x, axis, index);
    tri_value all = tri_mask(graph, "x -> x < 0 || 1", given);
    return tri_index_copy(graph, x, axis, index, tri_masked_fill(graph, given, all, value));
}

// The element number k along an axis of what has been sorted; it keeps the axis.
static tri_value nth(tri_graph *g, tri_value sorted, int axis, int64_t k) {
    return tri_slice(g, sorted, axis, k, k + 1, 1);
}

// Puts NaN, which is the last element if there is one, in place of what else an answer would be.
static tri_value or_nan(tri_graph *g, tri_value answer, tri_value last) {
    return tri_map(g, "y, last -> last != last ? last : y", answer, last);
}

static tri_value without(tri_graph *g, tri_value x, int axis, bool keep) {
    return keep ? x : tri_squeeze(g, x, axis);
}

tri_value tri_kthvalue(tri_graph *graph, tri_value x, int64_t k, int axis, bool keep,
                       tri_value *index) {
    int64_t size;
    tri_value order = none();
    if (!find_axis(graph, "kthvalue", x, &axis, &size)) return none();
    if (k < 1 || k > size) {
        tri_graph_fail(graph, "kthvalue: k must be from 1 to %" PRId64 ", not %" PRId64, size, k);
        return none();
    }
    tri_value sorted = tri_sort(graph, x, axis, false, index ? &order : NULL);
    if (index) *index = without(graph, nth(graph, order, axis, k - 1), axis, keep);
    return without(graph, nth(graph, sorted, axis, k - 1), axis, keep);
}

tri_value tri_median(tri_graph *graph, tri_value x, int axis, bool keep, tri_value *index) {
    int64_t size;
    tri_value order = none();
    if (!find_axis(graph, "median", x, &axis, &size)) return none();
    tri_value sorted = tri_sort(graph, x, axis, false, index ? &order : NULL);
    tri_value last = nth(graph, sorted, axis, size - 1);
    if (index) {
        tri_value has_nan = tri_mask(graph, "x != x", last);
        tri_value first_nan = tri_argmax(graph, x, axis, true);
        *index = tri_where(graph, has_nan, first_nan, nth(graph, order, axis, (size - 1) / 2));
        *index = without(graph, *index, axis, keep);
    }
    tri_value y = or_nan(graph, nth(graph, sorted, axis, (size - 1) / 2), last);
    return without(graph, y, axis, keep);
}

tri_value tri_quantile(tri_graph *graph, tri_value x, double q, int axis, bool keep) {
    int64_t size;
    if (!find_axis(graph, "quantile", x, &axis, &size)) return none();
    if (!(q >= 0 && q <= 1)) {
        tri_graph_fail(graph, "quantile: q must be from 0 to 1, not %g", q);
        return none();
    }
    double place = q * (double)(size - 1), weight = place - floor(place);
    int64_t below = (int64_t)place;
    tri_value sorted = tri_sort(graph, x, axis, false, NULL), y = nth(graph, sorted, axis, below);
    if (weight > 0) // else the next element counts for nothing, not even if it is infinite
        y = tri_map(graph, tri_name(graph, "a, b -> a + %.17g * (b - a)", weight), y,
                    nth(graph, sorted, axis, below + 1));
    return without(graph, or_nan(graph, y, nth(graph, sorted, axis, size - 1)), axis, keep);
}

// NaN lies behind all others, as in what has been sorted. (In PyTorch, a number beyond all others
// also lies behind NaN, if its search comes upon one.)
static tri_value count_below(tri_graph *g, tri_value sorted, tri_value values, bool right) {
    const char *order = right ? "s, v -> s <= v || v != v" : "s, v -> s < v || (v != v && s == s)";
    tri_value below = tri_mask(g, order, sorted, tri_unsqueeze(g, values, -1));
    return tri_sum(g, below, (int[]){-1}, 1, false);
}

tri_value tri_searchsorted(tri_graph *graph, tri_value sorted, tri_value values, bool right) {
    if (!takes(graph, "searchsorted", sorted, 1)) return none();
    return count_below(graph, tri_unsqueeze(graph, sorted, -2), values, right);
}

tri_value tri_bucketize(tri_graph *graph, tri_value x, tri_value boundaries, bool right) {
    if (!takes(graph, "bucketize", boundaries, 1)) return none();
    return count_below(graph, boundaries, x, right);
}

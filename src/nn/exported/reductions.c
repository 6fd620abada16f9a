// Sums, extremes, norms and order over axes.
#include "nn/exported/build.h"

#include <math.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

// The axes of argument k; none, or an empty list, means all of them.
static int axes_of(exported_call *c, int k, int *axes) {
    exported_value x = exported_operand(c, 0);
    int64_t listed[EXPORTED_MAX_RANK];
    int count = exported_ints(c, k, listed, EXPORTED_MAX_RANK);
    for (int i = 0; i < count; i++)
        axes[i] = exported_axis(c, listed[i], exported_rank(c->build, &x));
    return count;
}

// The tensor as it is, or as a number with floating point where the result is one.
static tri_value reduced(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    if (exported_type_is_float(exported_result_type(c, 0))) return exported_as_float(c->build, &x);
    return exported_as_graph(c->build, &x);
}

// What a reduction of a tensor of the host starts with, and how an element changes it.
typedef struct reduction {
    double start;
    double (*add)(double sum, double x);
    bool is_mean;
} reduction;

static double sum_of(double sum, double x) { return sum + x; }
static double product_of(double sum, double x) { return sum * x; }
static double larger_of(double sum, double x) { return isnan(x) || x > sum ? x : sum; }
static double smaller_of(double sum, double x) { return isnan(x) || x < sum ? x : sum; }
static double any_of(double sum, double x) { return sum != 0 || x != 0; }
static double all_of(double sum, double x) { return sum != 0 && x != 0; }

static exported_value reduce_host(exported_call *c, exported_value x, const int *axes, int count,
                                  bool keep, const reduction *r) {
    exported_build *b = c->build;
    int64_t kept[EXPORTED_MAX_RANK], index[EXPORTED_MAX_RANK] = {0}, sizes[EXPORTED_MAX_RANK];
    bool goes[EXPORTED_MAX_RANK] = {false};
    int rank = x.host.rank, left = 0;
    double *data, number = 1;
    for (int i = 0; i < count; i++) goes[axes[i]] = true;
    for (int i = 0; i < rank; i++) {
        goes[i] = goes[i] || count == 0;
        kept[i] = goes[i] ? 1 : x.host.sizes[i];
        if (goes[i]) number *= (double)x.host.sizes[i];
        if (!goes[i] || keep) sizes[left++] = kept[i];
    }
    exported_value y = exported_host_new(b, kept, rank, exported_result_type(c, 0), &data);
    if (y.kind != EXPORTED_HOST) return y;
    for (int64_t i = 0; i < exported_count(b, &y); i++) data[i] = r->start;
    if (exported_count(b, &x) > 0) do {
            int64_t at = 0;
            for (int i = 0; i < rank; i++) at += goes[i] ? 0 : index[i] * y.host.strides[i];
            data[at] = r->add(data[at], exported_host_at(&x.host, index));
        } while (exported_host_next(&x.host, index));
    for (int64_t i = 0; r->is_mean && i < exported_count(b, &y); i++) data[i] /= number;
    return exported_reshape(b, y, sizes, left);
}

typedef tri_value reduce_function(tri_graph *, tri_value, const int *, int, bool);

static void reduce(exported_call *c, reduce_function *function, reduction r) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 1, axes);
    exported_value x = exported_operand(c, 0);
    bool keep = exported_bool(c, 2);
    if (x.kind == EXPORTED_HOST) {
        exported_give(c, reduce_host(c, x, axes, count, keep, &r));
        return;
    }
    tri_value y = function(c->build->graph, reduced(c), axes, count, keep);
    if (exported_result_type(c, 0) == TRI_PT2_BOOLEAN) y = tri_mask(c->build->graph, "x != 0", y);
    exported_give_graph(c, y);
}

static void sum(exported_call *c) { reduce(c, tri_sum, (reduction){0, sum_of, false}); }
static void mean(exported_call *c) { reduce(c, tri_mean, (reduction){0, sum_of, true}); }
static void prod(exported_call *c) { reduce(c, tri_prod, (reduction){1, product_of, false}); }
static void amax(exported_call *c) {
    reduce(c, tri_amax, (reduction){-INFINITY, larger_of, false});
}
static void amin(exported_call *c) {
    reduce(c, tri_amin, (reduction){INFINITY, smaller_of, false});
}
static void any(exported_call *c) { reduce(c, tri_any, (reduction){0, any_of, false}); }
static void all(exported_call *c) { reduce(c, tri_all, (reduction){1, all_of, false}); }

// The largest along an axis, and where it is: its gradient goes to that element alone.
static void extreme(exported_call *c, bool largest) {
    tri_graph *g = c->build->graph;
    int axis = exported_axis_of(c, 1);
    bool keep = exported_bool(c, 2);
    tri_value x = reduced(c),
              where = largest ? tri_argmax(g, x, axis, true) : tri_argmin(g, x, axis, true);
    tri_value y = tri_take_along(g, x, axis, where);
    exported_give_graph_at(c, 0, keep ? y : tri_squeeze(g, y, axis));
    exported_give_graph_at(c, 1, keep ? where : tri_squeeze(g, where, axis));
}

static void max_along(exported_call *c) { extreme(c, true); }
static void min_along(exported_call *c) { extreme(c, false); }

static void place(exported_call *c, bool largest) {
    tri_graph *g = c->build->graph;
    exported_value x = exported_operand(c, 0);
    tri_value value = exported_as_graph(c->build, &x);
    bool is_flat = exported_is_none(c, 1);
    if (is_flat) value = tri_reshape(g, value, tri_shape_of(-1));
    int axis = is_flat ? 0 : exported_axis_of(c, 1);
    bool keep = exported_bool(c, 2) && !is_flat;
    exported_give_graph(c, largest ? tri_argmax(g, value, axis, keep)
                                   : tri_argmin(g, value, axis, keep));
}

static void argmax(exported_call *c) { place(c, true); }
static void argmin(exported_call *c) { place(c, false); }

static int64_t correction_of(exported_call *c, int k) {
    double given = exported_is_none(c, k) ? 1 : exported_real(c, k);
    if (given != floor(given)) exported_fail(c, "a correction of %g is not supported", given);
    return (int64_t)given;
}

// Variance, or with `is_root` the standard deviation, over axes, and the mean if it is asked for.
static void spread(exported_call *c, bool is_root) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 1, axes);
    tri_value x = exported_tensor(c, 0);
    bool keep = exported_bool(c, 3);
    tri_graph *g = c->build->graph;
    int64_t correction = correction_of(c, 2);
    exported_give_graph(c, is_root ? tri_std(g, x, axes, count, correction, keep)
                                   : tri_var(g, x, axes, count, correction, keep));
    if (exported_result_count(c) > 1)
        exported_give_graph_at(c, 1, tri_mean(g, x, axes, count, keep));
}

static void var(exported_call *c) { spread(c, false); }
static void std_of(exported_call *c) { spread(c, true); }

// Smallest and largest.
static void extremes(exported_call *c) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 1, axes);
    tri_value x = reduced(c);
    bool keep = exported_bool(c, 2);
    exported_give_graph_at(c, 0, tri_amin(c->build->graph, x, axes, count, keep));
    exported_give_graph_at(c, 1, tri_amax(c->build->graph, x, axes, count, keep));
}

static void count_nonzero(exported_call *c) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 1, axes);
    exported_value x = exported_operand(c, 0);
    tri_value is = tri_mask(c->build->graph, "x != 0", exported_as_graph(c->build, &x));
    exported_give_graph(c, tri_sum(c->build->graph, is, axes, count, false));
}

// Sum or mean of what is no NaN.
static void nansum(exported_call *c, bool is_mean) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 1, axes);
    tri_graph *g = c->build->graph;
    tri_value x = exported_tensor(c, 0);
    bool keep = exported_bool(c, 2);
    tri_value sum = tri_sum(g, tri_map(g, "x != x ? 0 : x", x), axes, count, keep);
    if (is_mean) {
        tri_value there = tri_cast(g, tri_mask(g, "x == x", x), TRI_F32);
        sum = tri_map(g, "s, n -> s / n", sum, tri_sum(g, there, axes, count, keep));
    }
    exported_give_graph(c, sum);
}

static void nan_sum(exported_call *c) { nansum(c, false); }
static void nan_mean(exported_call *c) { nansum(c, true); }

static void logsumexp(exported_call *c) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 1, axes);
    exported_give_graph(
        c, tri_logsumexp(c->build->graph, exported_tensor(c, 0), axes, count, exported_bool(c, 2)));
}

static void vector_norm(exported_call *c) {
    int axes[EXPORTED_MAX_RANK], count = axes_of(c, 2, axes);
    double p = exported_is_none(c, 1) ? 2 : exported_real(c, 1);
    if (p == 0) { // counts what is not 0
        tri_value counted = tri_map(c->build->graph, "x == 0 ? 0 : 1", exported_tensor(c, 0));
        exported_give_graph(c, tri_sum(c->build->graph, counted, axes, count, exported_bool(c, 3)));
        return;
    }
    exported_give_graph(c, tri_vector_norm(c->build->graph, exported_tensor(c, 0), p, axes, count,
                                           exported_bool(c, 3)));
}

static void softmax(exported_call *c) {
    exported_give_graph(
        c, tri_softmax(c->build->graph, exported_tensor(c, 0), exported_axis_of(c, 1)));
}

static void log_softmax(exported_call *c) {
    exported_give_graph(
        c, tri_log_softmax_along(c->build->graph, exported_tensor(c, 0), exported_axis_of(c, 1)));
}

static void cumsum(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis_of(c, 1);
    if (x.kind != EXPORTED_HOST) {
        if (x.dtype == TRI_PT2_BOOLEAN)
            x = exported_of_graph(tri_cast(b->graph, x.graph, TRI_I64), TRI_PT2_LONG);
        tri_value value = exported_as_graph(b, &x);
        if (exported_type_is_float(x.dtype) && !exported_type_is_float(exported_result_type(c, 0)))
            value = tri_cast(b->graph, value, TRI_I64);
        exported_give_graph(c, tri_cumsum(b->graph, value, axis));
        return;
    }
    // Along repeated axes other than this one nothing differs.
    int64_t sizes[EXPORTED_MAX_RANK], stored[EXPORTED_MAX_RANK], index[EXPORTED_MAX_RANK] = {0};
    int rank = x.host.rank;
    double *data;
    for (int i = 0; i < rank; i++) {
        sizes[i] = x.host.sizes[i];
        stored[i] = i != axis && x.host.strides[i] == 0 ? 1 : sizes[i];
    }
    exported_value y = exported_host_new(b, stored, rank, exported_result_type(c, 0), &data);
    if (y.kind != EXPORTED_HOST || exported_count(b, &y) == 0) return;
    int64_t next = 0, step = y.host.strides[axis];
    do {
        data[next] = exported_host_at(&x.host, index) + (index[axis] ? data[next - step] : 0);
        next++;
    } while (exported_host_next(&y.host, index));
    exported_give(c, exported_expand(b, y, sizes, rank));
}

static void cumprod(exported_call *c) {
    exported_give_graph(c, tri_cumprod(c->build->graph, reduced(c), exported_axis_of(c, 1)));
}

static void logcumsumexp(exported_call *c) {
    exported_give_graph(c, tri_logcumsumexp(c->build->graph, reduced(c), exported_axis_of(c, 1)));
}

const exported_row exported_reduction_rows[] = {
    ROW("aten.sum", "self dim=None keepdim=False", sum),
    ROW("aten.mean", "self dim=None keepdim=False", mean),
    ROW("aten.prod", "self dim=None keepdim=False", prod),
    ROW("aten.amax", "self dim=[] keepdim=False", amax),
    ROW("aten.amin", "self dim=[] keepdim=False", amin),
    ROW("aten.max.default", "self", amax),
    ROW("aten.min.default", "self", amin),
    ROW("aten.max.dim", "self dim keepdim=False", max_along),
    ROW("aten.min.dim", "self dim keepdim=False", min_along),
    ROW("aten.any", "self dim=None keepdim=False", any),
    ROW("aten.all", "self dim=None keepdim=False", all),
    ROW("aten.argmax", "self dim=None keepdim=False", argmax),
    ROW("aten.argmin", "self dim=None keepdim=False", argmin),
    ROW("aten.var.correction", "self dim=None correction=None keepdim=False", var),
    ROW("aten.std.correction", "self dim=None correction=None keepdim=False", std_of),
    ROW("aten.var_mean.correction", "self dim=None correction=None keepdim=False", var),
    ROW("aten.std_mean.correction", "self dim=None correction=None keepdim=False", std_of),
    ROW("aten.var.dim", "self dim unbiased=True keepdim=False", var),
    ROW("aten.std.dim", "self dim unbiased=True keepdim=False", std_of),
    ROW("aten.var_mean.dim", "self dim unbiased=True keepdim=False", var),
    ROW("aten.std_mean.dim", "self dim unbiased=True keepdim=False", std_of),
    ROW("aten.var.default", "self dim=None unbiased=True keepdim=False", var),
    ROW("aten.std.default", "self dim=None unbiased=True keepdim=False", std_of),
    ROW("aten.var_mean.default", "self dim=None unbiased=True keepdim=False", var),
    ROW("aten.std_mean.default", "self dim=None unbiased=True keepdim=False", std_of),
    ROW("aten.aminmax", "self dim=None keepdim=False", extremes),
    ROW("aten.count_nonzero", "self dim=None", count_nonzero),
    ROW("aten.nansum", "self dim=None keepdim=False", nan_sum),
    ROW("aten.nanmean", "self dim=None keepdim=False", nan_mean),
    ROW("aten.logsumexp", "self dim keepdim=False", logsumexp),
    ROW("aten.linalg_vector_norm", "self ord=2 dim=None keepdim=False", vector_norm),
    ROW("aten.norm", "self p=2 dim=None keepdim=False", vector_norm),
    ROW("aten.softmax", "self dim", softmax),
    ROW("aten._softmax", "self dim", softmax),
    ROW("aten.log_softmax", "self dim", log_softmax),
    ROW("aten._log_softmax", "self dim", log_softmax),
    ROW("aten.cumsum", "self dim", cumsum),
    ROW("aten.cumprod", "self dim", cumprod),
    ROW("aten.logcumsumexp", "self dim", logcumsumexp),
    {NULL, NULL, NULL, NULL, NULL, false},
};

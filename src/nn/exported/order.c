// Order along an axis: sorting, the element at a place, and the places of numbers among others.
#include "nn/exported/build.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

static tri_value as_is(exported_call *c, int k) {
    exported_value x = exported_operand(c, k);
    return exported_as_graph(c->build, &x);
}

static void sort(exported_call *c) {
    tri_value index, y = tri_sort(c->build->graph, as_is(c, 0), exported_axis_of(c, 1),
                                  exported_bool(c, 2), &index);
    exported_give_graph_at(c, 0, y);
    exported_give_graph_at(c, 1, index);
}

static void topk(exported_call *c) {
    tri_value index, y = tri_topk(c->build->graph, as_is(c, 0), exported_int(c, 1),
                                  exported_axis_of(c, 2), exported_bool(c, 3), &index);
    exported_give_graph_at(c, 0, y);
    exported_give_graph_at(c, 1, index);
}

static void argsort(exported_call *c) {
    tri_value index;
    tri_sort(c->build->graph, as_is(c, 0), exported_axis_of(c, 1), exported_bool(c, 2), &index);
    exported_give_graph(c, index);
}

static void msort(exported_call *c) {
    exported_give_graph(c, tri_sort(c->build->graph, as_is(c, 0), 0, false, NULL));
}

// The median along an axis, or of all elements.
static void median(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_value x = as_is(c, 0), index;
    bool is_flat = exported_is_none(c, 1);
    if (is_flat) x = tri_reshape(g, x, tri_shape_of(-1));
    tri_value y = tri_median(g, x, is_flat ? 0 : exported_axis_of(c, 1),
                             exported_bool(c, 2) && !is_flat, is_flat ? NULL : &index);
    exported_give_graph(c, y);
    if (!is_flat) exported_give_graph_at(c, 1, index);
}

static void kthvalue(exported_call *c) {
    tri_value index, y = tri_kthvalue(c->build->graph, as_is(c, 0), exported_int(c, 1),
                                      exported_axis_of(c, 2), exported_bool(c, 3), &index);
    exported_give_graph(c, y);
    exported_give_graph_at(c, 1, index);
}

static void quantile(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_value x = exported_tensor(c, 0);
    bool is_flat = exported_is_none(c, 2);
    const char *how = exported_text(c, 4);
    if (*how && strcmp(how, "linear") != 0)
        exported_fail(c, "the interpolation %s is not supported", how);
    if (is_flat) x = tri_reshape(g, x, tri_shape_of(-1));
    exported_give_graph(c, tri_quantile(g, x, exported_real(c, 1),
                                        is_flat ? 0 : exported_axis_of(c, 2),
                                        exported_bool(c, 3) && !is_flat));
}

typedef tri_value running_extreme(tri_graph *, tri_value, int, tri_value *);

static void running(exported_call *c, running_extreme *function) {
    tri_value index, y = function(c->build->graph, as_is(c, 0), exported_axis_of(c, 1), &index);
    exported_give_graph(c, y);
    exported_give_graph_at(c, 1, index);
}

static void cummax(exported_call *c) { running(c, tri_cummax); }
static void cummin(exported_call *c) { running(c, tri_cummin); }

// Both tensors in one type: floating point where one of them has it.
static void in_one_type(exported_call *c, int one, int two, tri_value *out) {
    exported_value x[] = {exported_operand(c, one), exported_operand(c, two)};
    bool is_float = exported_type_is_float(x[0].dtype) || exported_type_is_float(x[1].dtype);
    for (int k = 0; k < 2; k++)
        out[k] = is_float ? exported_as_float(c->build, &x[k]) : exported_as_graph(c->build, &x[k]);
}

static void bucketize(exported_call *c) {
    tri_value in[2];
    in_one_type(c, 0, 1, in);
    exported_give_graph(c, tri_bucketize(c->build->graph, in[0], in[1], exported_bool(c, 3)));
}

// sorted_sequence self out_int32 right side
static void searchsorted(exported_call *c) {
    tri_value in[2];
    tri_graph *g = c->build->graph;
    bool right = exported_bool(c, 3) || !strcmp(exported_text(c, 4), "right");
    in_one_type(c, 0, 1, in);
    bool is_row = tri_value_shape(g, in[0]).rank == 1;
    exported_give_graph(c, is_row ? tri_bucketize(g, in[1], in[0], right)
                                  : tri_searchsorted(g, in[0], in[1], right));
}

const exported_row exported_order_rows[] = {
    ROW("aten.sort", "self dim=-1 descending=False", sort),
    ROW("aten.sort.stable", "self dim=-1 descending=False", sort),
    ROW("aten.topk", "self k dim=-1 largest=True", topk),
    ROW("aten.argsort", "self dim=-1 descending=False", argsort),
    ROW("aten.argsort.stable", "self dim=-1 descending=False", argsort),
    ROW("aten.msort", "self", msort),
    ROW("aten.median", "self dim=None keepdim=False", median),
    ROW("aten.kthvalue", "self k dim=-1 keepdim=False", kthvalue),
    ROW("aten.quantile.scalar", "self q dim=None keepdim=False interpolation='linear'", quantile),
    ROW("aten.cummax", "self dim", cummax),
    ROW("aten.cummin", "self dim", cummin),
    ROW("aten.bucketize.Tensor", "self boundaries out_int32=False right=False", bucketize),
    ROW("aten.searchsorted.Tensor", "sorted_sequence self out_int32=False right=False side=None",
        searchsorted),
    {NULL, NULL, NULL, NULL, NULL, false},
};

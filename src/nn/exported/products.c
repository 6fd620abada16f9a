// Products of vectors and matrices, and distances.
#include "nn/exported/build.h"

#include <math.h>
#include <string.h>
#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

static void matmul(exported_call *c) {
    exported_value a = exported_operand(c, 0), b = exported_operand(c, 1);
    exported_give_graph(c, tri_matmul(c->build->graph, exported_as_float(c->build, &a),
                                      exported_as_float(c->build, &b)));
}

static void addmm(exported_call *c) {
    exported_give_graph(c,
                        tri_addmm(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1),
                                  exported_tensor(c, 2), exported_real(c, 3), exported_real(c, 4)));
}

static void einsum(exported_call *c) {
    exported_value *values = TRI_NEW_ARRAY(c->build->graph->arena, exported_value, TRI_MAX_INPUTS);
    tri_value in[TRI_MAX_INPUTS];
    int count = exported_list(c, 1, values, TRI_MAX_INPUTS);
    for (int k = 0; k < count; k++) in[k] = exported_as_float(c->build, &values[k]);
    exported_give_graph(c, tri_einsum_values(c->build->graph, exported_text(c, 0), in, count));
}

// beta times the first argument and alpha times a product.
static void add_product(exported_call *c, tri_value product) {
    double numbers[] = {exported_real(c, 3), exported_real(c, 4)};
    exported_value in[] = {exported_operand(c, 0),
                           exported_of_graph(product, exported_result_type(c, 0))};
    exported_give(c, exported_map_text(c->build, "x, p, b = 1, a = 1 -> b * x + a * p", numbers, in,
                                       2, exported_result_type(c, 0)));
}

static void addr(exported_call *c) {
    add_product(c, tri_outer(c->build->graph, exported_tensor(c, 1), exported_tensor(c, 2)));
}

static void addbmm(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_value product = tri_matmul(g, exported_tensor(c, 1), exported_tensor(c, 2));
    add_product(c, tri_sum(g, product, (int[]){0}, 1, false));
}

static void outer(exported_call *c) {
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1)};
    in[0] = exported_reshape(c->build, in[0], (const int64_t[]){-1, 1}, 2);
    exported_give(
        c, exported_map_text(c->build, "a, b -> a * b", NULL, in, 2, exported_result_type(c, 0)));
}

// The sums of products of the last axes.
static void inner(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_value a = exported_tensor(c, 0), b = exported_tensor(c, 1);
    tri_shape left = tri_value_shape(g, a), right = tri_value_shape(g, b), shape = {0};
    if (g->status != TRI_OK || left.rank == 0 || right.rank == 0) {
        exported_fail(c, "an inner product of numbers is not supported");
        return;
    }
    int64_t size = left.dims[left.rank - 1];
    for (int i = 0; i < left.rank - 1; i++) shape.dims[shape.rank++] = left.dims[i];
    for (int i = 0; i < right.rank - 1; i++) shape.dims[shape.rank++] = right.dims[i];
    a = tri_reshape(g, a, tri_shape_of(-1, size));
    b = tri_transpose(g, tri_reshape(g, b, tri_shape_of(-1, size)), 0, 1);
    exported_give_graph(c, tri_reshape(g, tri_matmul(g, a, b), shape));
}

// The sums of products over the axes that two lists name.
static void tensordot(exported_call *c) {
    exported_build *b = c->build;
    exported_value x[] = {exported_operand(c, 0), exported_operand(c, 1)};
    int64_t listed[2][EXPORTED_MAX_RANK], sizes[2 * EXPORTED_MAX_RANK];
    int count = exported_ints(c, 2, listed[0], EXPORTED_MAX_RANK), left = 0;
    tri_value flat[2];
    if (exported_ints(c, 3, listed[1], EXPORTED_MAX_RANK) != count) return;
    for (int k = 0; k < 2; k++) {
        int order[EXPORTED_MAX_RANK], rank = exported_rank(b, &x[k]), next = k ? count : 0;
        bool is_summed[EXPORTED_MAX_RANK] = {false};
        int64_t rows = 1, summed = 1;
        for (int i = 0; i < count; i++) {
            int axis = exported_axis(c, listed[k][i], rank);
            is_summed[axis] = true;
            order[k ? i : rank - count + i] = axis;
            summed *= exported_size(b, &x[k], axis);
        }
        for (int i = 0; i < rank; i++) {
            if (is_summed[i]) continue;
            order[next++] = i;
            rows *= sizes[left++] = exported_size(b, &x[k], i);
        }
        x[k] = exported_permute(b, x[k], order);
        x[k] =
            exported_reshape(b, x[k], k ? (int64_t[]){summed, rows} : (int64_t[]){rows, summed}, 2);
        flat[k] = exported_as_float(b, &x[k]);
    }
    exported_value y =
        exported_of_graph(tri_matmul(b->graph, flat[0], flat[1]), exported_result_type(c, 0));
    exported_give(c, exported_reshape(b, y, sizes, left));
}

// Feature k is a · W[k] · b and its bias: W's rows of all features lie side by side.
static void bilinear(exported_call *c) {
    exported_build *b = c->build;
    tri_graph *g = b->graph;
    exported_value weight = exported_operand(c, 2);
    int64_t features = exported_size(b, &weight, 0), in = exported_size(b, &weight, 1),
            with = exported_size(b, &weight, 2);
    tri_value one = exported_tensor(c, 0), two = exported_tensor(c, 1);
    tri_shape shape = tri_value_shape(g, one);
    weight = exported_permute(b, weight, (const int[]){1, 0, 2});
    weight = exported_reshape(b, weight, (int64_t[]){in, features * with}, 2);
    tri_value y =
        tri_matmul(g, tri_reshape(g, one, tri_shape_of(-1, in)), exported_as_float(b, &weight));
    y = tri_mul(g, tri_reshape(g, y, tri_shape_of(-1, features, with)),
                tri_reshape(g, two, tri_shape_of(-1, 1, with)));
    y = tri_sum(g, y, (int[]){-1}, 1, false);
    if (!exported_is_none(c, 3))
        y = tri_add(g, y, tri_expand(g, exported_tensor(c, 3), tri_value_shape(g, y)));
    shape.dims[shape.rank - 1] = features;
    exported_give_graph(c, tri_reshape(g, y, shape));
}

// Each element of the first matrix times all of the second.
static void kron(exported_call *c) {
    exported_build *b = c->build;
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1)};
    int64_t sizes[EXPORTED_MAX_RANK], result[2] = {1, 1};
    if (exported_rank(b, &in[0]) != 2 || exported_rank(b, &in[1]) != 2) {
        exported_fail(c, "a Kronecker product of other tensors than matrices is not supported");
        return;
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 4; i++) sizes[i] = i % 2 == k ? exported_size(b, &in[k], i / 2) : 1;
        for (int i = 0; i < 2; i++) result[i] *= exported_size(b, &in[k], i);
        in[k] = exported_reshape(b, in[k], sizes, 4);
    }
    exported_value y =
        exported_map_text(b, "a, b -> a * b", NULL, in, 2, exported_result_type(c, 0));
    exported_give(c, exported_reshape(b, y, result, 2));
}

// The cross product along an axis; where none is given, the first one of 3 elements.
static void cross(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(c->build, &x), axis = 0;
    if (!exported_is_none(c, 2))
        axis = exported_axis_of(c, 2);
    else
        while (axis < rank - 1 && exported_size(c->build, &x, axis) != 3) axis++;
    exported_give_graph(
        c, tri_cross(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), axis));
}

// Both arguments as floats of one shape.
static void two_alike(exported_call *c, tri_value *out) {
    exported_build *b = c->build;
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1)};
    for (int k = 0; k < 2; k++) {
        exported_value two[] = {in[k], in[1 - k]};
        int same = exported_rank(b, &in[0]) == exported_rank(b, &in[1]);
        for (int i = 0; same && i < exported_rank(b, &in[0]); i++)
            same = exported_size(b, &in[0], i) == exported_size(b, &in[1], i);
        exported_value x =
            same ? in[k] : exported_map_text(b, "a, b -> a + 0 * b", NULL, two, 2, TRI_PT2_FLOAT32);
        out[k] = exported_as_float(b, &x);
    }
}

static void cosine_similarity(exported_call *c) {
    tri_value in[2];
    two_alike(c, in);
    int rank = tri_value_shape(c->build->graph, in[0]).rank;
    exported_give_graph(c, tri_cosine_similarity(c->build->graph, in[0], in[1],
                                                 exported_axis(c, exported_int(c, 2), rank),
                                                 exported_real(c, 3)));
}

// A norm of 1, 2, other numbers above 0, or infinity.
static double norm_of(exported_call *c, int k) {
    double p = exported_is_none(c, k) ? 2 : exported_real(c, k);
    if (!(p > 0)) exported_fail(c, "a norm of %g is not supported", p);
    return p;
}

static void pairwise_distance(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_value in[2], y;
    two_alike(c, in);
    y = tri_map(g, tri_name(g, "a, b -> a - b + %.17g", exported_real(c, 3)), in[0], in[1]);
    exported_give_graph(c,
                        tri_vector_norm(g, y, norm_of(c, 2), (int[]){-1}, 1, exported_bool(c, 4)));
}

static void cdist(exported_call *c) {
    exported_give_graph(
        c, tri_cdist(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), norm_of(c, 2)));
}

const exported_row exported_product_rows[] = {
    ROW("aten.matmul", "self other", matmul),
    ROW("aten.bmm", "self mat2", matmul),
    ROW("aten.mm", "self mat2", matmul),
    ROW("aten.mv", "self vec", matmul),
    ROW("aten.dot", "self tensor", matmul),
    ROW("aten.vdot", "self other", matmul),
    ROW("aten.addmm", "self mat1 mat2 beta=1 alpha=1", addmm),
    ROW("aten.baddbmm", "self batch1 batch2 beta=1 alpha=1", addmm),
    ROW("aten.einsum", "equation tensors path=None", einsum),
    ROW("aten.addmv", "self mat vec beta=1 alpha=1", addmm),
    ROW("aten.addr", "self vec1 vec2 beta=1 alpha=1", addr),
    ROW("aten.addbmm", "self batch1 batch2 beta=1 alpha=1", addbmm),
    ROW("aten.outer", "self vec2", outer),
    ROW("aten.inner", "self other", inner),
    ROW("aten.tensordot", "self other dims_self dims_other", tensordot),
    ROW("aten.bilinear", "input1 input2 weight bias=None", bilinear),
    ROW("aten.kron", "self other", kron),
    ROW("aten.cross", "self other dim=None", cross),
    ROW("aten.linalg_cross", "self other dim=-1", cross),
    ROW("aten.cosine_similarity", "x1 x2 dim=1 eps=1e-08", cosine_similarity),
    ROW("aten.pairwise_distance", "x1 x2 p=2 eps=1e-06 keepdim=False", pairwise_distance),
    ROW("aten.cdist", "x1 x2 p=2 compute_mode=None", cdist),
    {NULL, NULL, NULL, NULL, NULL, false},
};

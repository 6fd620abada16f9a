// Rows of tables by their numbers: embeddings and their bags, and products by experts, whose
// numbers choose a matrix.
#include "nn/exported/build.h"
#include "ops/ops.h"

#include <math.h>
#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

static void embedding(exported_call *c) {
    exported_value ids = exported_operand(c, 1), table = exported_operand(c, 0);
    exported_build *b = c->build;
    int64_t padding = exported_int(c, 2);
    tri_value weight = exported_as_float(b, &table);
    if (padding >= 0) {
        // The row of the padding has no gradient.
        double *data, row = (double)padding;
        int64_t sizes[] = {exported_size(b, &table, 0), 1};
        exported_value number = exported_host_new(b, sizes, 2, TRI_PT2_LONG, &data);
        for (int64_t i = 0; number.kind == EXPORTED_HOST && i < sizes[0]; i++) data[i] = (double)i;
        exported_value is_row =
            exported_map_text(b, "i, k = 0 -> i == k", &row, &number, 1, TRI_PT2_BOOLEAN);
        is_row.name = tri_name(b->graph, "%s.padding", exported_layer(c));
        exported_value in[] = {exported_of_graph(weight, TRI_PT2_FLOAT32), is_row};
        exported_value kept =
            exported_map_text(b, "x, pads -> pads ? detach(x) : x", NULL, in, 2, TRI_PT2_FLOAT32);
        weight = kept.graph;
    }
    exported_give_graph(c, tri_node_add(b->graph, &tri_op_embedding,
                                        (tri_value[]){exported_as_graph(b, &ids), weight}, 2, NULL,
                                        exported_layer(c)));
}

// The rows of a table, [bags, L, D], and which of them count.
static tri_value rows_of(exported_call *c, tri_value ids) {
    return tri_node_add(c->build->graph, &tri_op_embedding,
                        (tri_value[]){ids, exported_tensor(c, 0)}, 2, NULL, exported_layer(c));
}

// The number of ids of each bag, where the offsets are 0, L, 2L, …; 0: they are not.
static int64_t bag_size(exported_call *c, int64_t ids) {
    exported_value offsets = exported_operand(c, 2);
    int64_t at[1] = {1}, bags = exported_count(c->build, &offsets);
    if (offsets.kind != EXPORTED_HOST || offsets.host.rank != 1 || bags < 1 || exported_bool(c, 7))
        return 0;
    int64_t size = bags > 1 ? (int64_t)exported_host_at(&offsets.host, at) : ids;
    for (at[0] = 0; at[0] < bags; at[0]++)
        if (exported_host_at(&offsets.host, at) != (double)(at[0] * size)) return 0;
    bool fits = exported_fixed_batch(c->build) ? bags > 1 : bags * size == ids;
    return fits && size > 0 && ids % size == 0 ? size : 0;
}

// weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset
// padding_idx
static void embedding_bag(exported_call *c) {
    enum { SUM, MEAN, MAX };
    exported_build *b = c->build;
    tri_graph *g = b->graph;
    exported_value ids = exported_operand(c, 1), weights = exported_operand(c, 6);
    int64_t mode = exported_int(c, 4), size = bag_size(c, exported_count(b, &ids)),
            padding = exported_is_none(c, 8) ? -1 : exported_int(c, 8);
    if (size < 1 || exported_bool(c, 3)) {
        exported_fail(c, "bags of other sizes are not supported: give ids as [N, L], with padding");
        return;
    }
    ids = exported_reshape(b, ids, (const int64_t[]){-1, size}, 2);
    tri_value numbers = exported_as_graph(b, &ids), rows = rows_of(c, numbers), y, count = {0};
    if (weights.kind != EXPORTED_NOTHING) {
        weights = exported_reshape(b, weights, (const int64_t[]){-1, size, 1}, 3);
        rows = tri_mul(g, rows, exported_as_float(b, &weights));
    }
    if (padding >= 0) {
        tri_value there = tri_mask(g, tri_name(g, "i -> i != %lld", (long long)padding),
                                   tri_unsqueeze(g, numbers, 2));
        const char *formula =
            mode == MAX ? "x, t -> t ? x : -3.40282346638528859812e38" : "x, t -> t ? x : 0";
        rows = tri_map(g, formula, rows, there);
        count = tri_cast(g, tri_sum(g, there, (int[]){1}, 1, false), TRI_F32);
    }
    y = mode == MAX                   ? tri_amax(g, rows, (int[]){1}, 1, false)
        : mode == MEAN && padding < 0 ? tri_mean(g, rows, (int[]){1}, 1, false)
                                      : tri_sum(g, rows, (int[]){1}, 1, false);
    if (padding >= 0 && mode == MEAN) y = tri_map(g, "x, n -> x / max(n, 1)", y, count);
    if (padding >= 0 && mode == MAX) y = tri_map(g, "x, n -> n > 0 ? x : 0", y, count);
    exported_give_graph(c, y);
}

// How many numbers lie in each of `bins` equal parts from `min` to `max`: self bins min max.
static void histogram(exported_call *c) {
    tri_graph *g = c->build->graph;
    int64_t bins = exported_int(c, 1);
    double min = exported_real(c, 2), max = exported_real(c, 3);
    if (bins < 1 || !(min < max)) {
        exported_fail(c, "a histogram has to be given its bins, and a least and a largest number");
        return;
    }
    tri_value x = tri_reshape(g, exported_tensor(c, 0), tri_shape_of(-1, 1));
    const char *bin = tri_name(g,
                               "x -> x < %.17g || x > %.17g ? -1 : min(floor((x - %.17g) * %.17g), "
                               "%lld)",
                               min, max, min, (double)bins / (max - min), (long long)bins - 1);
    tri_value is = tri_mask(g, "x, k -> x == k", tri_map(g, bin, x),
                            tri_cast(g, tri_arange(g, bins), TRI_F32));
    exported_give_graph(c, tri_cast(g, tri_sum(g, is, (int[]){0}, 1, false), TRI_F32));
}

// Rows [S, in], of which the first offs[0] are multiplied by the first matrix of [E, in, out],
// those up to offs[1] by the second, and so on; rows behind the last are 0. All matrices together
// are one product: a row is widened to [E · in], with zeros for the other matrices.
static void grouped_product(exported_call *c) {
    exported_build *b = c->build;
    tri_graph *g = b->graph;
    exported_value weight = exported_operand(c, 1), ends = exported_operand(c, 2);
    tri_value x = exported_tensor(c, 0);
    if (exported_rank(b, &weight) != 3 || tri_value_shape(g, x).rank != 2 ||
        exported_rank(b, &ends) != 1) {
        exported_fail(c,
                      "grouped products other than of rows [S, in] and matrices [E, in, out] are "
                      "not supported");
        return;
    }
    int64_t experts = exported_size(b, &weight, 0), in = exported_size(b, &weight, 1),
            out = exported_size(b, &weight, 2);
    tri_value one =
        tri_cast(g, tri_mask(g, "x -> x == x || 1", tri_slice(g, x, 1, 0, 1, 1)), TRI_I64);
    tri_value row = tri_map(g, "n -> n - 1", tri_cumsum(g, one, 0));
    tri_value end = tri_reshape(g, exported_as_graph(b, &ends), tri_shape_of(1, experts));
    tri_value behind = tri_cast(g, tri_mask(g, "r, e -> r >= e", row, end), TRI_I64);
    tri_value expert = tri_sum(g, behind, (int[]){1}, 1, true); // whose rows these are
    tri_value is = tri_mask(g, "e, k -> e == k", expert, tri_arange(g, experts));
    tri_value wide =
        tri_map(g, "x, is -> is ? x : 0", tri_unsqueeze(g, x, 1), tri_unsqueeze(g, is, 2));
    weight = exported_reshape(b, weight, (int64_t[]){experts * in, out}, 2);
    exported_give_graph(c, tri_matmul(g, tri_reshape(g, wide, tri_shape_of(-1, experts * in)),
                                      exported_as_float(b, &weight)));
}

const exported_row exported_table_rows[] = {
    ROW("aten.embedding", "weight indices padding_idx=-1", embedding),
    ROW("aten.embedding_bag",
        "weight indices offsets scale_grad_by_freq=False mode=0 sparse=False "
        "per_sample_weights=None include_last_offset=False padding_idx=None",
        embedding_bag),
    ROW("aten.histc", "self bins=100 min=0 max=0", histogram),
    ROW("transformers.grouped_mm_fallback", "input weight offs", grouped_product),
    ROW("aten._grouped_mm", "self mat2 offs bias=None out_dtype=None", grouped_product),
    {NULL, NULL, NULL, NULL, NULL, false},
};

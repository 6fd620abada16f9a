// A model as a shared object, for test_odd.py: functions of elements, shapes and axes, in blocks
// that pipelines divide. Two options mix the samples: `centre` subtracts their mean, and `across`
// reads numbers of all samples as a row, by a shape that any number of samples but a prime may
// have.
#include <trireme/trireme.h>

static tri_value normalised(tri_graph *g, tri_value x, int axis) {
    tri_value mean = tri_mean(g, x, &axis, 1, true);
    tri_value centred = tri_sub(g, x, mean);
    tri_value variance = tri_mean(g, tri_square(g, centred), &axis, 1, true);
    return tri_map(g, "x, v -> x * rsqrt(v + 0.01)", centred, variance);
}

static void functions_net(tri_graph *g, const tri_batch *batch) {
    int64_t n = batch->size;
    tri_block(g, "rows");
    tri_value x = tri_reshape(g, batch->images, tri_shape_of(n, 12, 12));
    tri_value padded = tri_pad(g, tri_flip(g, x, 2), 1, 1, 1);
    x = tri_add(g, tri_slice(g, padded, 1, 0, 12, 1), tri_slice(g, padded, 1, 2, 14, 1));
    x = tri_silu(g, tri_linear(g, "rows", x, 16));
    tri_split_layer(g, "rows", TRI_SPLIT_COLUMN);
    // Noise on slices of samples, which each rank of a layer draws for its own.
    x = tri_map(g, "x, e -> x * (1 + 0.1 * e)", x, tri_randn_like(g, "noise", x));
    x = tri_dropout(g, "drop", x, 0.1);
    tri_block(g, "columns");
    x = normalised(g, tri_permute(g, x, (int[]){0, 2, 1}), 1);
    x = tri_glu(g, tri_linear(g, "columns", x, 20), -1);
    tri_split_layer(g, "columns", TRI_SPLIT_ROW);
    tri_block(g, "heads");
    tri_value heads = tri_reshape(g, x, tri_shape_of(n, 4, 4, 10));
    tri_value largest = tri_amax(g, heads, (int[]){2}, 1, true);
    heads = tri_map(g, "x, largest -> exp(x - largest)", heads, largest);
    heads = tri_div(g, heads, tri_sum(g, heads, (int[]){2}, 1, true));
    tri_value likeness = tri_matmul(g, heads, tri_transpose(g, heads, -1, -2));
    likeness = tri_softmax(g, tri_log_softmax_along(g, likeness, 2), -1);
    heads = tri_add(g, heads, tri_matmul(g, likeness, heads));
    tri_value bias = tri_reshape(g, tri_linear(g, "bias", tri_flatten(g, likeness), 16),
                                 tri_shape_of(n, 1, 4, 4));
    tri_attention_options options = {
        .bias = bias, .mask = tri_map(g, "bias > -1", bias), .causal = true, .dropout = 0.1};
    tri_value queries = tri_slice(g, heads, 3, 0, 4, 1);
    heads = tri_add(g, heads, tri_attention(g, "attend", queries, likeness, heads, options));
    x = tri_flatten(g, tri_mul(g, tri_roll(g, heads, 1, 1), largest));
    if (tri_model_bool(g, "centre", false)) x = tri_sub(g, x, tri_mean(g, x, (int[]){0}, 1, true));
    if (tri_model_bool(g, "across", false)) {
        tri_value rows = tri_reshape(g, tri_slice(g, x, 1, 0, 26, 1), tri_shape_of(26, n));
        rows = tri_reshape(g, tri_softmax(g, rows, 1), tri_shape_of(n, 26));
        x = tri_add(g, x, tri_pad(g, rows, 1, 0, 160 - 26));
    }
    tri_block(g, "norms");
    tri_value wide = tri_reshape(g, tri_linear(g, "wide", x, 24), tri_shape_of(n, 4, 3, 2));
    tri_split_layer(g, "wide", TRI_SPLIT_COLUMN);
    wide = tri_layer_norm(g, "norms", wide, (tri_layer_norm_options){.axes = 2});
    x = tri_add(g, x, tri_linear(g, "narrow", tri_flatten(g, wide), 160));
    tri_split_layer(g, "narrow", TRI_SPLIT_ROW);
    tri_block(g, "head");
    x = tri_map(g, "x > 0 ? log1p(x) : tanh(x)", x);
    tri_value scores = tri_linear(g, "head", tri_elu(g, x, 0.5), 10);
    tri_value again = tri_linear(g, "again", x, 144), images = tri_flatten(g, batch->images);
    tri_loss(g, tri_add(g, tri_cross_entropy(g, scores, batch->labels),
                        tri_weighted(g, tri_huber_loss(g, again, images, 0.5), 0.5)));
}

static const tri_task functions = {.name = "functions", .build = functions_net};

TRI_EXPORT_TASK(functions)

// A model as a shared object, for test_odd.py: elements by their numbers, order and running sums,
// in blocks that pipelines divide, so that indices go from stage to stage. The option `offset` is
// added to indices, so that some may be none.
#include <trireme/trireme.h>

static void indexing_net(tri_graph *g, const tri_batch *batch) {
    int64_t n = batch->size;
    tri_block(g, "rows");
    tri_value x = tri_reshape(g, batch->images, tri_shape_of(n, 12, 12)), index, places;
    x = tri_tanh(g, tri_linear(g, "rows", x, 16));
    tri_split_layer(g, "rows", TRI_SPLIT_COLUMN);
    tri_value most = tri_topk(g, x, 4, 1, true, &index);
    index = tri_add_scalar(g, index, (double)tri_model_int(g, "offset", 0));
    tri_block(g, "taken");
    tri_value sums = tri_gather(g, tri_cumsum(g, x, 1), 1, index);
    most = tri_linear(g, "taken", tri_add(g, most, sums), 16);
    x = tri_scatter_add(g, x, 1, index, most);
    x = tri_scatter(g, x, 1, tri_argmax(g, x, 1, true), tri_slice(g, most, 1, 0, 1, 1));
    tri_value windows = tri_unfold(g, x, 2, 6, 2), t = tri_arange(g, 6);
    tri_value seen = tri_cast(g, tri_map(g, "i, j -> j <= i", tri_unsqueeze(g, t, 1), t), TRI_F32);
    tri_value sums_of = tri_sum(g, tri_mul(g, windows, seen), (int[]){2, 3}, 2, false);
    x = tri_add(g, x, tri_mul_scalar(g, tri_unsqueeze(g, sums_of, -1), 0.05));
    tri_block(g, "ordered");
    x = tri_linear(g, "ordered", tri_sort(g, x, 2, true, NULL), 8);
    tri_split_layer(g, "ordered", TRI_SPLIT_COLUMN);
    x = tri_add(g, x, tri_cummax(g, tri_logcumsumexp(g, x, 1), 1, &places));
    tri_value factors = tri_map(g, "1 + 0.1 * tanh(x)", x);
    x = tri_add(g, tri_take_along(g, x, 1, places), tri_cumprod(g, factors, 1));
    x = tri_mul(g, x, tri_prod(g, factors, (int[]){1}, 1, true));
    tri_block(g, "head");
    tri_value scores = tri_linear(g, "head", tri_flatten(g, tri_map(g, "tanh(0.2 * x)", x)), 10);
    tri_value labels = tri_reshape(g, batch->labels, tri_shape_of(n, 1));
    tri_value own = tri_gather(g, tri_log_softmax(g, scores), 1, labels);
    tri_value is_first = tri_cast(g, tri_map(g, "l -> l < 4", labels), TRI_F32);
    own = tri_map(g, "own, is_first -> own * (1 + 0.5 * is_first)", own, is_first);
    tri_loss(g, tri_mean_loss(g, tri_neg(g, own)));
}

static const tri_task indexing = {.name = "indexing", .build = indexing_net};

TRI_EXPORT_TASK(indexing)

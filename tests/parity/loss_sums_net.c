// A model for test_loss_sums.py whose loss is a weighted sum of losses. Each of these is a mean: a
// sum divided by its own count, such as the number of labels that are not ignored. The option
// model.case chooses the losses: 0: losses with different kinds of counts; 1: two losses with the
// same labels and so the same count; 2: losses whose counts are known before the step, because they
// have no labels; 3: one loss with a weight; 4: losses that read labels
// and tokens in other shapes than the data have; 5: a loss that counts parameters, as many in a
// micro-batch of any size; 6: layers with a weight norm and a spectral norm; 7: only outputs, of
// which the recipe makes losses.
#include <trireme/trireme.h>

static void read_otherwise(tri_graph *g, const tri_batch *batch, tri_value x) {
    tri_value heat = tri_batch_field(batch, "heat"); // [N, 2, 3]
    tri_value ids = tri_reshape(g, batch->input_ids, tri_shape_of(2 * batch->size, 3));
    tri_value tokens =
        tri_embedding(g, "embed", ids, (tri_embedding_options){.tokens = 5, .features = 4});
    tri_value follow =
        tri_cross_entropy(g, tri_linear(g, "next", tokens, 5), tri_next_token(g, ids));
    tri_block(g, "heads");
    tri_value whole = tri_cross_entropy(g, tri_linear(g, "whole", x, 6), tri_flatten(g, heat));
    tri_value scores = tri_reshape(g, tri_linear(g, "rows", x, 6), tri_shape_of(batch->size, 2, 3));
    tri_value rows = tri_cross_entropy(g, scores, heat);
    tri_loss(
        g, tri_add(g, tri_add(g, whole, tri_weighted(g, rows, 0.5)), tri_weighted(g, follow, 0.3)));
}

static void normed(tri_graph *g, const tri_batch *batch) {
    tri_linear_options trunk = {.features = 8}, one = {.features = 3};
    tri_spectral_norm_options o = {.dim = 0};
    trunk.weight_value = tri_weight_norm(g, "trunk", tri_shape_of(8, 4), 0, (tri_init){0});
    tri_value x = tri_relu(g, tri_linear_with(g, "trunk", tri_flatten(g, batch->images), trunk));
    tri_block(g, "heads");
    one.weight_value = tri_spectral_norm(g, "one", tri_shape_of(3, 8), o);
    tri_value first = tri_cross_entropy(g, tri_linear_with(g, "one", x, one), batch->labels);
    tri_value squares = tri_mse_loss(g, tri_linear(g, "numbers", x, 2), batch->targets);
    tri_split_layer(g, "numbers", TRI_SPLIT_COLUMN);
    tri_loss(g, tri_add(g, first, tri_weighted(g, squares, 0.5)));
}

static void loss_sums(tri_graph *g, const tri_batch *batch) {
    int64_t which = tri_model_int(g, "case", 0);
    tri_block(g, "trunk");
    if (which == 6) {
        normed(g, batch);
        return;
    }
    tri_value x = tri_relu(g, tri_linear(g, "trunk", tri_flatten(g, batch->images), 8));
    tri_split_layer(g, "trunk", TRI_SPLIT_COLUMN);
    if (which == 4) {
        read_otherwise(g, batch, x);
        return;
    }
    tri_block(g, "tokens");
    tri_value ids = {0};
    tri_embedding_options table = {.tokens = 5, .features = 4};
    if (which == 0 || which == 7)
        ids = tri_linear(g, "next", tri_embedding(g, "embed", batch->input_ids, table), 5);
    tri_block(g, "heads");
    tri_value one = tri_linear(g, "one", x, 3);
    if (which == 3) {
        tri_loss(g, tri_weighted(g, tri_cross_entropy(g, one, batch->labels), 3));
        return;
    }
    if (which == 5) {
        tri_value own = tri_parameter(g, "penalised", tri_shape_of(3), (tri_init){0});
        tri_value penalty = tri_mean_loss(g, tri_square(g, own));
        tri_value scores = tri_add(g, one, own);
        tri_loss(g, tri_add(g, tri_cross_entropy(g, scores, batch->labels),
                            tri_weighted(g, penalty, 0.5)));
        return;
    }
    tri_value two = tri_linear(g, "two", x, 3);
    if (which == 7) {
        tri_output(g, "one", one);
        tri_output(g, "two", two);
        tri_output(g, "numbers", tri_linear(g, "numbers", x, 2));
        tri_output(g, "next", ids);
        return;
    }
    tri_value first = tri_cross_entropy(g, one, batch->labels);
    tri_value second = tri_cross_entropy(g, two, batch->labels);
    if (which == 1) { // losses may be metrics as well, by other names
        tri_metric(g, "before", first);
        tri_loss(g, tri_add(g, first, tri_weighted(g, second, -0.4)));
        tri_metric(g, "behind", second);
        tri_metric(g, "evaluated", tri_training(g) ? (tri_value){0} : first);
        return;
    }
    tri_value squares = tri_mse_loss(g, tri_linear(g, "numbers", x, 2), batch->targets);
    tri_value apart = tri_mse_loss(g, two, one);
    if (which == 2) {
        tri_loss(g, tri_add(g, apart, tri_weighted(g, tri_add(g, squares, squares), 1.5)));
        return;
    }
    tri_value next = tri_cross_entropy(g, ids, tri_next_token(g, batch->input_ids));
    tri_value rest = tri_add(g, next, tri_add(g, second, tri_weighted(g, apart, 0.25)));
    tri_loss(g, tri_add(g, tri_add(g, first, tri_weighted(g, squares, 0.3)),
                        tri_weighted(g, rest, 0.7)));
}

// Not every case reads all of these fields.
static const tri_task task = {.name = "loss-sums",
                              .build = loss_sums,
                              .fields = {{"images", TRI_F32, {3, {1, 2, 2}}},
                                         {"labels", TRI_I64, {0}},
                                         {"targets", TRI_F32, {1, {2}}},
                                         {"input_ids", TRI_I64, {1, {6}}}}};

TRI_EXPORT_TASK(task)

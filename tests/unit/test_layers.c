// Tests the functions that add layers to a graph (nn.h). Using a layer's name twice is an error,
// unless tri_share_layer allows it. A value that the graph does not have is an error of the graph,
// in every function that takes a value. Also tests the shapes and messages of reshape, average
// pooling and concatenation.
#include "base/philox.h"
#include "graph/loss.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <trireme/functions.h>
#include <trireme/losses.h>
#include <trireme/nn.h>
#include <trireme/recurrent.h>
#include <trireme/transformer.h>

#include <cmocka.h>

#include "support/arena_fixture.h"
#include "support/message.h"

static tri_graph *graph_of(bool training) {
    return tri_graph_create(arena, &(tri_graph_options){.training = training});
}

typedef void (*layer)(tri_graph *g, const char *name, tri_value x);

static void linear(tri_graph *g, const char *name, tri_value x) { tri_linear(g, name, x, 8); }
static void norm(tri_graph *g, const char *name, tri_value x) { tri_rms_norm(g, name, x, 1e-6); }
static void layer_norm(tri_graph *g, const char *name, tri_value x) {
    tri_layer_norm(g, name, x, (tri_layer_norm_options){.plain = true});
}
static void dropout(tri_graph *g, const char *name, tri_value x) { tri_dropout(g, name, x, 0.5); }
static void images(tri_graph *g, const char *name, tri_value x) {
    tri_conv2d(g, name, tri_reshape(g, x, tri_shape_of(4, 8, 1, 1)),
               (tri_conv2d_options){.channels = 8, .kernel = 1});
}
static void batch_norm(tri_graph *g, const char *name, tri_value x) {
    tri_batch_norm(g, name, x, (tri_batch_norm_options){0});
}
static void embedding(tri_graph *g, const char *name, tri_value x) {
    tri_value ids = tri_input(g, "input_ids", TRI_I64, tri_shape_of(4, 3));
    tri_embedding(g, name, ids, (tri_embedding_options){.tokens = 9, .features = 8});
}
static void attention(tri_graph *g, const char *name, tri_value x) {
    tri_value heads = tri_reshape(g, x, tri_shape_of(2, 2, 1, 8));
    tri_attention(g, name, heads, heads, heads, (tri_attention_options){0});
}

static const layer layers[] = {linear,     norm,      layer_norm, images,
                               batch_norm, embedding, attention,  dropout};
// Dropout, the last, has no weights, so that its name may be there already.
enum { LAYERS = sizeof layers / sizeof *layers, NAMED = LAYERS - 1 };

// A second layer of the same name is an error: for every pair of kinds of layers, in training and
// in evaluation.
static void test_a_name_twice(void **state) {
    for (int pair = 0; pair < 2 * LAYERS * LAYERS; pair++) {
        tri_graph *g = graph_of(pair % 2);
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
        layers[pair / 2 % LAYERS](g, "one", x);
        layers[pair / 2 / LAYERS](g, "two", x);
        const char *message;
        assert_int_equal(tri_graph_status(g, &message), TRI_OK);
        layers[pair / 2 / LAYERS](g, "one", x);
        bool fails = pair / 2 % LAYERS < NAMED && pair / 2 / LAYERS < NAMED;
        assert_int_equal(tri_graph_status(g, &message), fails ? TRI_BAD_INPUT : TRI_OK);
        if (fails) assert_non_null(strstr(message, "'one'"));
        tri_graph_destroy(g);
    }
}

static void check_shared(bool before) {
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
    if (before) tri_share_layer(g, "tower");
    tri_value y = tri_linear(g, "tower", x, 8);
    if (!before) tri_share_layer(g, "tower");
    tri_value z = tri_linear(g, "tower", y, 8);
    tri_linear_with(g, "tied", z,
                    (tri_linear_options){.features = 8, .weight = "tower.weight", .no_bias = true});
    const char *message;
    assert_int_equal(tri_graph_status(g, &message), TRI_OK);
    assert_int_equal(g->parameter_count, 2);
    for (int i = 1; i < 3; i++)
        assert_int_equal(tri_value_node(g, y)->inputs[i].id, tri_value_node(g, z)->inputs[i].id);
    tri_linear(g, "tower", z, 9); // an error: shared weights have one size, and this is another
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    tri_graph_destroy(g);
}

static void test_shared(void **state) {
    check_shared(false);
    check_shared(true);
}

// Batch norm has running statistics, of one use: the message says what to do instead.
static void test_shared_batch_norm(void **state) {
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
    tri_share_layer(g, "bn");
    tri_batch_norm(g, "bn", tri_batch_norm(g, "bn", x, (tri_batch_norm_options){0}),
                   (tri_batch_norm_options){0});
    const char *message;
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    assert_non_null(strstr(message, "batch_norm bn: used twice"));
    assert_non_null(strstr(message, "tri_concat"));
    tri_graph_destroy(g);
}

// Finds the keys of the graph's dropouts. Returns how many there are.
static int keys_of(const tri_graph *g, uint64_t *keys) {
    int count = 0;
    tri_map_dropout dropout;
    for (int i = 0; i < g->node_count; i++)
        if (tri_map_is_dropout(g, &g->nodes[i], &dropout))
            keys[count++] = ((const tri_map_attr *)g->nodes[i].attr)->draws[1].key;
    return count;
}

// What is called twice draws other random numbers at each call, and a layer that is made of layers
// is shared as a whole. The first call draws those of its name.
static void test_each_call_draws_its_own_numbers(void **state) {
    (void)state;
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3, 8));
    tri_share_layer(g, "r");
    tri_share_layer(g, "encoder");
    for (int call = 0; call < 2; call++) {
        tri_dropout(g, "d", x, 0.5);
        tri_gru(g, "r", x, (tri_recurrent_options){.hidden = 2, .layers = 2, .dropout = 0.5}, NULL);
        tri_transformer_encoder_layer(
            g, "encoder", x,
            (tri_transformer_options){.heads = 2, .feedforward = 4, .dropout = 0.5});
    }
    const char *message;
    uint64_t keys[32];
    assert_int_equal(tri_graph_status(g, &message), TRI_OK);
    int count = keys_of(g, keys);
    assert_int_equal(count, 12);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) assert_true(keys[i] != keys[k]);
    assert_true(keys[0] == tri_philox_key(g->options.seed, "d"));
    assert_true(keys[1] == tri_philox_key(g->options.seed, "r.dropout_l0"));
    tri_linear(g, "encoders", x, 2); // no part of the shared layer
    tri_linear(g, "encoders", x, 2);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    tri_graph_destroy(g);
}

enum { CALLS = 25 };

// Makes call number i of a list of functions that take a value, with a value `bad` that the graph
// does not have.
static void call(tri_graph *g, int i, tri_value bad) {
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
    tri_value loss = tri_mse_loss(g, x, x);
    switch (i) {
    case LAYERS:
        tri_max_pool2d(g, bad, (tri_pool2d_options){.kernel = 2});
        break;
    case LAYERS + 1:
        tri_embedding(g, "one", bad, (tri_embedding_options){.tokens = 9, .features = 8});
        break;
    case LAYERS + 2:
        tri_rotary(g, bad, 1e4);
        break;
    case LAYERS + 3:
        tri_attention(g, "one", bad, x, x, (tri_attention_options){0});
        break;
    case LAYERS + 4:
        tri_silu_mul(g, x, bad);
        break;
    case LAYERS + 5:
        tri_next_token(g, bad);
        break;
    case LAYERS + 6:
        tri_flatten(g, bad);
        break;
    case LAYERS + 7:
        tri_add(g, bad, x);
        break;
    case LAYERS + 8:
        tri_add(g, loss, bad);
        break;
    case LAYERS + 9:
        tri_cross_entropy(g, x, bad);
        break;
    case LAYERS + 10:
        tri_weighted(g, bad, 0.5);
        break;
    case LAYERS + 11:
        tri_loss(g, bad);
        break;
    case LAYERS + 12:
        tri_metric(g, "m", bad);
        break;
    case LAYERS + 13:
        tri_reshape(g, bad, tri_shape_of(8, 4));
        break;
    case LAYERS + 14:
        tri_mse_loss(g, bad, x);
        break;
    case LAYERS + 15:
        tri_soft_cross_entropy(g, x, bad, 0.1);
        break;
    case LAYERS + 16:
        tri_log_softmax(g, bad);
        break;
    default:
        layers[i](g, "one", bad);
    }
}

static void test_values_of_no_graph(void **state) {
    assert_int_equal(CALLS, LAYERS + 17);
    for (int i = 0; i < 2 * CALLS; i++) {
        // The function `embedding` above makes its input itself and does not read `bad`.
        if (i / 2 < LAYERS && layers[i / 2] == embedding) continue;
        tri_graph *g = graph_of(true);
        tri_value bad = {i % 2 ? 4711 : UINT32_MAX};
        assert_int_equal(tri_value_shape(g, bad).rank, 0);
        call(g, i / 2, bad);
        const char *message;
        assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
        char id[16];
        snprintf(id, sizeof id, "%u", bad.id);
        if (!strstr(message, id)) fail_msg("call %d: %s", i / 2, message);
        tri_graph_destroy(g);
    }
}

// Running statistics and the random numbers of dropout belong to samples. Their rows have to lie on
// the first axis.
static void test_first_axis(void **state) {
    static const char *const begin[] = {"batch_norm one: the first",
                                        "dropout one: ", "instance_norm one: the first"};
    for (int i = 0; i < 3; i++) {
        tri_graph *g = graph_of(true);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(6, 4));
        tri_value rows = tri_reshape(g, x, tri_shape_of(i ? 3 : 12, i ? 4 : 1, 2));
        if (i == 0) tri_batch_norm(g, "one", rows, (tri_batch_norm_options){0});
        if (i == 1) tri_dropout(g, "one", rows, 0.5);
        if (i == 2) tri_instance_norm(g, "one", rows, (tri_instance_norm_options){.tracks = true});
        const char *message;
        assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
        assert_non_null(strstr(message, begin[i]));
        tri_graph_destroy(g);
    }
}

static void has_shape(const tri_graph *g, tri_value value, tri_shape wanted) {
    tri_shape shape = tri_value_shape(g, value);
    const char *message;
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    assert_true(tri_shape_equal(&shape, &wanted));
}

static void refuses(tri_graph *g, const char *parts) {
    const char *message;
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, parts);
    tri_graph_destroy(g);
}

static void test_reshape(void **state) {
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
    has_shape(g, tri_reshape(g, x, tri_shape_of(-1)), tri_shape_of(24));
    has_shape(g, tri_reshape(g, x, tri_shape_of(4, -1, 3)), tri_shape_of(4, 2, 3));
    has_shape(g, tri_reshape(g, x, tri_shape_of(-1, 24)), tri_shape_of(1, 24));
    tri_reshape(g, x, tri_shape_of(5, -1));
    refuses(g, "reshape|-1|[5, -1]|[4, 6]");
    g = graph_of(true);
    x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
    tri_reshape(g, x, tri_shape_of(-1, -1));
    refuses(g, "reshape|[-1, -1]|-1");
    g = graph_of(true);
    x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
    tri_reshape(g, x, tri_shape_of(0, -1));
    refuses(g, "reshape|-1|[0, -1]|[4, 6]");
}

static void test_avg_pool2d(void **state) {
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "images", TRI_F32, tri_shape_of(2, 3, 7, 9));
    tri_pool2d_options twos = {.kernel = 2}, overlap = {.kernel = 3, .stride = 2, .padding = 1};
    has_shape(g, tri_avg_pool2d(g, x, twos), tri_shape_of(2, 3, 3, 4));
    has_shape(g, tri_avg_pool2d(g, x, overlap), tri_shape_of(2, 3, 4, 5));
    has_shape(g, tri_adaptive_avg_pool2d(g, x, 1), tri_shape_of(2, 3, 1, 1));
    has_shape(g, tri_adaptive_avg_pool2d(g, x, 4), tri_shape_of(2, 3, 4, 4));
    tri_adaptive_avg_pool2d(g, x, 0);
    refuses(g, "adaptive_avg_pool2d|size|1|0");
}

// A count of 0, as an integer division gives it, would make a value without elements.
static void test_counts_of_zero(void **state) {
    for (int i = 0; i < 7; i++) {
        static const char *const parts[] = {"topk|0",   "expand|1|0", "repeat|1", "arange|0",
                                            "unfold|0", "chunk|0",    "slice|2"};
        tri_graph *g = graph_of(true);
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
        if (i == 0) tri_topk(g, x, 0, 1, true, NULL);
        if (i == 1) tri_expand(g, tri_slice(g, x, 1, 0, 1, 1), tri_shape_of(4, 0));
        if (i == 2) tri_repeat(g, x, 1, 0);
        if (i == 3) tri_arange(g, 0);
        if (i == 4) tri_unfold(g, x, 1, 0, 1);
        if (i == 5) tri_chunk(g, x, 1, 0, 0);
        if (i == 6) tri_slice(g, x, 1, 2, 2, 1);
        refuses(g, parts[i]);
    }
}

// tri_concat joins more values than one node takes. A negative axis counts from the last one.
static void test_concat(void **state) {
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3, 2)), values[20];
    for (int i = 0; i < 20; i++) values[i] = x;
    has_shape(g, tri_concat(g, values, 20, 1), tri_shape_of(4, 60, 2));
    has_shape(g, tri_concat(g, values, 2, -1), tri_shape_of(4, 3, 4));
    has_shape(g, tri_stack(g, values, 20, 2), tri_shape_of(4, 3, 20, 2));
    assert_int_equal(tri_concat(g, values, 1, 1).id, x.id);
    tri_concat(g, values, 0, 1);
    refuses(g, "concat|value");
    g = graph_of(true);
    x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3));
    tri_concat(g, (tri_value[]){x, x}, 2, 2);
    refuses(g, "concat|input 0|[4, 3]|axis 2");
}

// In a sum of losses, what no rank can count before the step is refused, with another way.
static void test_uncountable_terms(void **state) {
    for (int i = 0; i < 2; i++) {
        tri_graph *g = graph_of(true);
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3));
        tri_value mask = tri_input(g, "mask", TRI_F32, tri_shape_of(4, 1));
        tri_value own = i ? tri_ratio_loss(g, x, tri_expand(g, mask, tri_shape_of(4, 3)))
                          : tri_cross_entropy(g, x, tri_arange(g, 4));
        tri_loss(g, tri_add(g, own, tri_mse_loss(g, x, x)));
        refuses(g, i ? "ratio_loss|counts|take the mean" : "cross_entropy|labels|tri_mean_loss");
    }
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3));
    tri_value mask = tri_input(g, "mask", TRI_F32, tri_shape_of(4, 1));
    tri_value mean = tri_mean(g, x, (int[]){1}, 1, true);
    tri_loss(g, tri_add(g, tri_ratio_loss(g, mean, mask), tri_mse_loss(g, x, x)));
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    tri_graph_destroy(g);
}

// Of a sum of losses, the rows of soft labels that count are counted before the step: those with a
// number other than 0. In evaluation, accuracy compares with their largest.
static void test_soft_labels(void **state) {
    static const float soft[12] = {0.5f, 0.5f, 0, 0, 0, 0, 0, 0, 1};
    tri_graph *g = graph_of(true);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3)),
              labels = tri_input(g, "soft_labels", TRI_F32, tri_shape_of(4, 3));
    tri_loss(g, tri_add(g, tri_cross_entropy(g, x, labels), tri_mse_loss(g, x, labels)));
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    assert_int_equal(g->counting, TRI_COUNT_AHEAD);
    const tri_loss_term *term = &g->metrics[g->first_term].term;
    assert_int_equal(tri_loss_count_labels(g, term, 4, soft), 2);
    assert_int_equal(tri_loss_count_labels(g, term, 2, soft), 1);
    tri_graph_destroy(g);
    // Smoothed labels count as they do without it, also those that tri_next_token makes.
    static const int64_t ids[6] = {1, 2, -100, 0, 1, 2};
    g = graph_of(true);
    g->options.label_smoothing = 0.1;
    x = tri_input(g, "inputs", TRI_F32, tri_shape_of(2, 3, 4));
    labels = tri_next_token(g, tri_input(g, "ids", TRI_I64, tri_shape_of(2, 3)));
    tri_loss(g, tri_add(g, tri_cross_entropy(g, x, labels), tri_mse_loss(g, x, x)));
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    assert_int_equal(tri_loss_count_labels(g, &g->metrics[g->first_term].term, 2, ids), 3);
    tri_graph_destroy(g);
    g = graph_of(false);
    x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 3));
    labels = tri_input(g, "soft_labels", TRI_F32, tri_shape_of(4, 3));
    tri_loss(g, tri_nll_loss(g, x, labels));
    const tri_node *last = &g->nodes[g->node_count - 1];
    assert_ptr_equal(last->op, &tri_op_accuracy);
    assert_ptr_equal(tri_value_node(g, last->inputs[1])->op, &tri_op_top_class);
    tri_graph_destroy(g);
}

// A network with several classification losses chooses which accuracies are reported.
static void test_accuracies(void **state) {
    for (int declares = 0; declares < 2; declares++) {
        for (int training = 0; training < 2; training++) {
            tri_graph *g = graph_of(training);
            tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
            tri_value labels = tri_input(g, "labels", TRI_I64, tri_shape_of(4));
            tri_value aux = tri_linear(g, "aux", x, 3), head = tri_linear(g, "head", x, 3);
            tri_value main_accuracy = tri_accuracy(g, head, labels);
            if (declares) tri_metric(g, "accuracy", main_accuracy);
            if (declares) tri_metric(g, "accuracy_aux", tri_accuracy(g, aux, labels));
            tri_value loss = tri_cross_entropy(g, aux, labels);
            tri_loss(g, tri_add(g, loss, tri_cross_entropy(g, head, labels)));
            const char *message;
            if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
            int found = 0;
            for (int i = 0; i < g->metric_count; i++) {
                if (strcmp(g->metrics[i].name, "accuracy") != 0) continue;
                found++;
                if (!training && declares)
                    assert_int_equal(g->metrics[i].value.id, main_accuracy.id);
            }
            assert_int_equal(found, 1);
            assert_int_equal(g->metric_count, 4 + declares);
            tri_graph_destroy(g);
        }
    }
}

// The losses of a sum are named by their functions, also those that a formula computes.
static void test_names_of_losses(void **state) {
    static const char *const names[] = {"loss",      "huber_loss", "l1_loss",
                                        "l1_loss_2", "mse_loss",   "mean_loss"};
    for (int training = 0; training < 2; training++) {
        tri_graph *g = graph_of(training);
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
        tri_value y = tri_linear(g, "a", x, 8), z = tri_linear(g, "b", x, 8);
        tri_value sum = tri_add(g, tri_huber_loss(g, y, x, 1), tri_l1_loss(g, y, x));
        sum = tri_add(g, sum, tri_l1_loss(g, z, x));
        sum = tri_add(g, sum, tri_mse_loss(g, y, x));
        // A sum over all axes is a number, and so the mean of one.
        tri_value squares = tri_sum(g, tri_map(g, "y * y", z), NULL, 0, false);
        tri_loss(g, tri_add(g, sum, tri_weighted(g, tri_mean_loss(g, squares), 0.1)));
        const char *message;
        if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
        assert_int_equal(g->metric_count, sizeof names / sizeof *names);
        for (int i = 0; i < g->metric_count; i++) assert_string_equal(g->metrics[i].name, names[i]);
        tri_graph_destroy(g);
    }
}

typedef tri_value (*loss_call)(tri_graph *g, tri_value p, tri_value t);

#define LOSS(name, call)                                                                           \
    static tri_value name(tri_graph *g, tri_value p, tri_value t) { return call; }
LOSS(smooth_l1, tri_smooth_l1_loss(g, p, t, 1))
LOSS(huber, tri_huber_loss(g, p, t, 1))
LOSS(gaussian, tri_gaussian_nll_loss(g, p, t, p))
LOSS(variance, tri_gaussian_nll_loss(g, p, p, t))
LOSS(poisson, tri_poisson_nll_loss_with(g, p, t, (tri_poisson_options){.full = true}))
LOSS(kl_div, tri_kl_div_loss_with(g, p, t, (tri_kl_div_options){.log_target = true}))
LOSS(ranking, tri_margin_ranking_loss(g, p, p, t, 0.1))
LOSS(ranking_b, tri_margin_ranking_loss(g, p, t, p, 0.1))
LOSS(hinge_embedding, tri_hinge_embedding_loss(g, p, t, 0.1))
LOSS(cosine, tri_cosine_embedding_loss(g, tri_unsqueeze(g, p, -1), tri_unsqueeze(g, p, -1), t, 0))
LOSS(cosine_b, tri_cosine_embedding_loss(g, p, t, tri_sum(g, p, (int[]){-1}, 1, false), 0))
LOSS(positive, tri_triplet_margin_loss(g, p, t, p, (tri_triplet_options){0}))
LOSS(negative, tri_triplet_margin_loss(g, p, p, t, (tri_triplet_options){0}))

// A target of [N] beside a prediction [N, 1], or the other way round, is never broadcast to all
// pairs of samples. What PyTorch broadcasts is.
static void test_shapes_of_targets(void **state) {
    static const loss_call calls[] = {
        tri_mse_loss, tri_relative_l2_loss, tri_binary_cross_entropy, tri_l1_loss, smooth_l1, huber,
        tri_bce_loss, tri_poisson_nll_loss, poisson, tri_kl_div_loss, kl_div, tri_soft_margin_loss,
        tri_hinge_loss, tri_multilabel_soft_margin_loss, hinge_embedding, cosine,
        // These take sizes of 1.
        gaussian, variance, ranking, ranking_b, cosine_b, positive, negative};
    enum { LOSSES = sizeof calls / sizeof *calls, STRICT = LOSSES - 7 };
    tri_shape row = tri_shape_of(6), column = tri_shape_of(6, 1), wide = tri_shape_of(6, 3);
    for (int i = 0; i < LOSSES; i++)
        for (int form = 0; form < 5; form++) {
            const tri_shape *prediction = form == 1 ? &row : form == 0 ? &column : &wide;
            const tri_shape *target = form == 0 ? &row : form == 4 ? &wide : &column;
            if (form == 3) prediction = target = &column;
            tri_graph *g = graph_of(true);
            tri_value p = tri_input(g, "p", TRI_F32, *prediction);
            tri_value loss = calls[i](g, p, tri_input(g, "t", TRI_F32, *target));
            bool fine = form > 2 || (form == 2 && i >= STRICT);
            const char *message;
            tri_status wanted = fine ? TRI_OK : TRI_BAD_INPUT;
            if (tri_graph_status(g, &message) != wanted)
                fail_msg("loss %d, form %d: %s", i, form, message);
            if (fine) assert_true(tri_value_is(loss));
            tri_graph_destroy(g);
        }
    tri_graph *g = graph_of(true);
    tri_value p = tri_input(g, "p", TRI_F32, column),
              one = tri_input(g, "one", TRI_F32, tri_shape_of(1));
    tri_l1_loss(g, p, one);
    tri_margin_ranking_loss(g, p, p, one, 0);
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    tri_huber_loss(g, p, tri_input(g, "t", TRI_F32, row), 1);
    refuses(g, "huber_loss|target|[6, 1]|[6]");
}

// A metric cannot have the name of another key of an evaluation, nor one that breaks a line.
static void test_metric_names(void **state) {
    static const char long_name[] =
        "a23456789012345678901234567890123456789012345678901234567890abcd";
    static const struct {
        const char *name, *parts; // parts of the message; NULL: the name is taken
    } cases[] = {{"loss", "'loss'"},   {"kind", "'kind'"},       {"step", "'step'"},
                 {"epoch", "'epoch'"}, {"samples", "'samples'"}, {"evaluated_on", "'evaluated_on'"},
                 {"", "1|63"},         {"a\nb", "1|63"},         {"a\x7f", "1|63"},
                 {long_name, "1|63"},  {long_name + 1, NULL},    {"Steps \xc3\xa9/s", NULL}};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        tri_graph *g = graph_of(i % 2);
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 8));
        tri_metric(g, cases[i / 2].name, tri_mse_loss(g, x, x));
        const char *message;
        tri_status wanted = cases[i / 2].parts ? TRI_BAD_INPUT : TRI_OK;
        assert_int_equal(tri_graph_status(g, &message), wanted);
        if (wanted != TRI_OK) message_check(message, cases[i / 2].parts);
        tri_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_metric_names),
                                       cmocka_unit_test(test_names_of_losses),
                                       cmocka_unit_test(test_shapes_of_targets),
                                       cmocka_unit_test(test_a_name_twice),
                                       cmocka_unit_test(test_shared),
                                       cmocka_unit_test(test_shared_batch_norm),
                                       cmocka_unit_test(test_each_call_draws_its_own_numbers),
                                       cmocka_unit_test(test_reshape),
                                       cmocka_unit_test(test_avg_pool2d),
                                       cmocka_unit_test(test_uncountable_terms),
                                       cmocka_unit_test(test_soft_labels),
                                       cmocka_unit_test(test_concat),
                                       cmocka_unit_test(test_counts_of_zero),
                                       cmocka_unit_test(test_values_of_no_graph),
                                       cmocka_unit_test(test_accuracies),
                                       cmocka_unit_test(test_first_axis)};
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}

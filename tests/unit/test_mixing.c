// Which graphs mix the samples of a micro-batch (plan/mixing.h).
#include "plan/mixing.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <trireme/trireme.h>

#include <cmocka.h>

// The value whose node is looked at, from x and y, which have 4 samples, and w, a parameter.
typedef tri_value build(tri_graph *g, tri_value x, tri_value y, tri_value w);

static tri_value batched(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_matmul(g, x, tri_transpose(g, y, 1, 2));
}
static tri_value by_weight(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_matmul(g, x, w);
}
static tri_value rows(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_matmul(g, tri_reshape(g, x, tri_shape_of(4, 12)),
                      tri_reshape(g, w, tri_shape_of(12, 1)));
}
static tri_value summed(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    x = tri_reshape(g, x, tri_shape_of(4, 12));
    return tri_matmul(g, tri_transpose(g, x, 0, 1), tri_reshape(g, y, tri_shape_of(4, 12)));
}
static tri_value against_all(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    x = tri_reshape(g, x, tri_shape_of(4, 12));
    return tri_matmul(g, x, tri_transpose(g, tri_reshape(g, y, tri_shape_of(4, 12)), 0, 1));
}
static tri_value left(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_matmul(g, w, x);
}
static tri_value mean(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_mean(g, x, (int[]){0}, 1, true);
}
static tri_value permuted(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_transpose(g, x, 0, 1);
}
static tri_value permuted_mean(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_mean(g, tri_transpose(g, x, 0, 1), (int[]){1}, 1, true);
}
static tri_value permuted_steps(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_gru(g, "gru", tri_transpose(g, x, 0, 1),
                   (tri_recurrent_options){.hidden = 2, .time_first = true}, NULL);
}
static tri_value permuted_windows(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_max_pool1d(g, tri_transpose(g, x, 0, 1), (tri_pool_options){.kernel = 2});
}
// Samples and heads become one axis, as in PyTorch's MultiheadAttention.
static tri_value heads(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    tri_value q = tri_reshape(g, tri_transpose(g, x, 0, 1), tri_shape_of(3, 8, 2));
    q = tri_transpose(g, q, 0, 1);
    q = tri_matmul(g, tri_softmax(g, tri_matmul(g, q, tri_transpose(g, q, 1, 2)), 2), q);
    return tri_transpose(g, tri_reshape(g, tri_transpose(g, q, 0, 1), tri_shape_of(3, 4, 4)), 0, 1);
}
// The samples of all steps become rows.
static tri_value steps_joined(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_relu(g, tri_reshape(g, tri_transpose(g, x, 0, 1), tri_shape_of(12, 4)));
}
static tri_value pooled_joined(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    x = tri_reshape(g, steps_joined(g, x, y, w), tri_shape_of(12, 1, 4));
    return tri_max_pool1d(g, x, (tri_pool_options){.kernel = 2});
}
static tri_value two_places(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_mul(g, tri_reshape(g, x, tri_shape_of(4, 3, 4)), tri_transpose(g, y, 0, 2));
}
static tri_value of_samples(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_softmax(g, x, 0);
}
static tri_value of_rows(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_log_softmax_along(g, x, 1);
}

static tri_value moved(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_reshape(g, x, tri_shape_of(1, 4, 12));
}
static tri_value tokens(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_reshape(g, tri_softmax(g, tri_reshape(g, x, tri_shape_of(12, 4)), 1),
                       tri_shape_of(4, 3, 4));
}
static tri_value whole(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_layer_norm(g, "norm", x, (tri_layer_norm_options){.axes = 3, .plain = true});
}
static tri_value rest(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_layer_norm(g, "norm", x, (tri_layer_norm_options){.axes = 2, .plain = true});
}
static tri_value taken(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_gather(g, x, 1, tri_input(g, "index", TRI_I64, tri_shape_of(4, 2, 4)));
}
static tri_value taken_from_samples(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_index_select(g, x, 0, tri_input(g, "index", TRI_I64, tri_shape_of(4)));
}
static tri_value taken_from_rows(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_index_select(g, w, 0, tri_input(g, "index", TRI_I64, tri_shape_of(4)));
}
static tri_value added_to_rows(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_scatter_add(g, x, 2, tri_input(g, "index", TRI_I64, tri_shape_of(4, 3, 4)), y);
}
static tri_value added_to_samples(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_scatter_add(g, x, 0, tri_input(g, "index", TRI_I64, tri_shape_of(4, 3, 4)), y);
}
static tri_value steps(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_lstm(g, "lstm", x, (tri_recurrent_options){.hidden = 2, .bidirectional = true},
                    NULL);
}
static tri_value steps_of_samples(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_gru(g, "gru", x, (tri_recurrent_options){.hidden = 2, .time_first = true}, NULL);
}
static tri_value sorted(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_cumsum(g, tri_sort(g, x, 1, false, NULL), 2);
}
static tri_value sorted_samples(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_topk(g, x, 2, 0, true, NULL);
}
static tri_value running(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_cumsum(g, x, 0);
}
static tri_value largest(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_argmax(g, x, 0, true);
}
static tri_value statistics(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    return tri_instance_norm(g, "norm", x, (tri_instance_norm_options){.tracks = true});
}
static tri_value statistics_read(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    statistics(g, x, y, w);
    return tri_square(g, g->gradients[0].value);
}
static tri_value steps_of_lengths(tri_graph *g, tri_value x, tri_value y, tri_value w) {
    tri_recurrent_options o = {.hidden = 2, .bidirectional = true};
    o.lengths = tri_input(g, "lengths", TRI_I64, tri_shape_of(4));
    return tri_gru(g, "gru", x, o, NULL);
}

static void test_mixing(void **state) {
    static const struct {
        const char *name;
        build *build;
        bool mixes;
    } cases[] = {
        {"batched", batched, false},
        {"by_weight", by_weight, false},
        {"rows", rows, false},
        {"left", left, false},
        {"summed", summed, true},
        {"against_all", against_all, true},
        {"of_samples", of_samples, true},
        {"of_rows", of_rows, false},
        {"mean", mean, true},
        {"permuted", permuted, false},
        {"permuted_mean", permuted_mean, true},
        {"permuted_steps", permuted_steps, false},
        {"permuted_windows", permuted_windows, true},
        {"heads", heads, false},
        {"steps_joined", steps_joined, false},
        {"pooled_joined", pooled_joined, true},
        {"two_places", two_places, true},
        {"moved", moved, false},
        {"tokens", tokens, false},
        {"whole", whole, true},
        {"rest", rest, false},
        {"taken", taken, false},
        {"steps", steps, false},
        {"steps_of_samples", steps_of_samples, true},
        {"statistics", statistics, false},
        {"statistics_read", statistics_read, true},
        {"steps_of_lengths", steps_of_lengths, false},
        {"sorted", sorted, false},
        {"sorted_samples", sorted_samples, true},
        {"running", running, true},
        {"largest", largest, true},
        {"taken_from_samples", taken_from_samples, true},
        {"taken_from_rows", taken_from_rows, false},
        {"added_to_rows", added_to_rows, false},
        {"added_to_samples", added_to_samples, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(4, 3, 4));
        tri_value y = tri_input(g, "y", TRI_F32, tri_shape_of(4, 3, 4));
        tri_value w = tri_parameter(g, "w", tri_shape_of(4, 3), (tri_init){0});
        cases[i].build(g, x, y, w);
        const char *message = "";
        if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s: %s", cases[i].name, message);
        if ((tri_plan_find_mixing(g->arena, g, 4) != NULL) != cases[i].mixes)
            fail_msg("%s: is found to %s samples", cases[i].name, cases[i].mixes ? "keep" : "mix");
        op_graph_close(g);
    }
}

// A product keeps the samples apart wherever its equation has the letters of a weight.
static void test_einsum(void **state) {
    static const struct {
        const char *equation;
        bool weight_first, mixes;
    } cases[] = {
        {"nkh,hk->nk", false, false},  {"hk,nkh->nk", true, false},   {"nkh,hk->nkh", false, false},
        {"hk,nkh->nhk", true, false},  {"nkh,hd->nkd", false, false}, {"hd,nkh->nkd", true, false},
        {"nkh,hk->knh", false, false}, {"hk,nkh->hk", true, true},    {"hk,nkh->kn", true, false},
        {"nkh,hd->dnk", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(4, 3, 4));
        tri_value w = tri_parameter(g, "w", tri_shape_of(4, 3), (tri_init){0});
        tri_value first = cases[i].weight_first ? w : x, second = cases[i].weight_first ? x : w;
        tri_einsum(g, cases[i].equation, first, second);
        tri_einsum(g, "nkh,hk,nkh->nk", x, w, x);
        const char *message = "";
        if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
        if ((tri_plan_find_mixing(g->arena, g, 4) != NULL) != cases[i].mixes)
            fail_msg("%s: is found to %s samples", cases[i].equation,
                     cases[i].mixes ? "keep" : "mix");
        op_graph_close(g);
    }
}

// Builds a network for so many samples; `kind` chooses what it makes of their number.
static tri_graph *sized(int kind, int64_t samples) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(samples, 3));
    double part = 1 / (double)samples;
    if (kind == 0) x = tri_mul_scalar(g, tri_reshape(g, x, tri_shape_of(3 * samples)), 0.5);
    if (kind == 1) x = tri_mul_scalar(g, x, part);
    if (kind == 2) x = tri_map(g, tri_name(g, "x -> x / %d", (int)samples), x);
    if (kind == 3) tri_huber_loss(g, x, x, part);
    if (kind == 4) x = tri_rms_norm(g, "norm", x, part);
    for (int64_t i = 0; kind == 5 && i < samples; i += 500) x = tri_relu(g, x);
    return g;
}

static void test_sized(void **state) {
    for (int kind = 0; kind < 6; kind++) {
        tri_graph *many = sized(kind, 1009), *few = sized(kind, 997);
        if ((tri_plan_find_sized(many, few) != NULL) != (kind > 0)) fail_msg("kind %d", kind);
        op_graph_close(many);
        op_graph_close(few);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixing), cmocka_unit_test(test_einsum),
                                       cmocka_unit_test(test_sized)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

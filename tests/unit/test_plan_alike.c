// Checks what has to be the same in all programs (the model compiled for one size of micro-batch,
// for training or for evaluation) and on all ranks. A model is rejected if it has other parameters
// or metrics in evaluation, or for another batch size, than in training, because all its programs
// share them. Ranks with shards of the same size plan the same number of bytes.
#include "device/ref/ref.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

static void same(tri_graph *g, const tri_batch *batch) {
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", batch->inputs, 3), batch->labels));
}

static void other_metrics(tri_graph *g, const tri_batch *batch) {
    tri_value scores = tri_linear(g, "fc", batch->inputs, 3);
    if (tri_training(g))
        tri_metric(g, "extra", tri_nll_loss(g, tri_log_softmax(g, scores), batch->labels));
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static void other_tallies(tri_graph *g, const tri_batch *batch) {
    tri_value scores = tri_linear(g, "fc", batch->inputs, 3);
    tri_metric_of(g, "auc", TRI_METRIC_AUC, scores, batch->labels,
                  (tri_metric_options){.bins = 10 * batch->size});
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static void other_names(tri_graph *g, const tri_batch *batch) {
    tri_value scores = tri_linear(g, tri_training(g) ? "train" : "test", batch->inputs, 3);
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static void other_shapes(tri_graph *g, const tri_batch *batch) {
    tri_value hidden = tri_linear(g, "hidden", batch->inputs, batch->size);
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", hidden, 3), batch->labels));
}

static void other_values(tri_graph *g, const tri_batch *batch) {
    float scale = (float)batch->size;
    tri_value scores = tri_linear(g, "fc", batch->inputs, 3);
    scores = tri_mul(g, scores, tri_constant(g, "scale", tri_shape_of(1), &scale));
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

// Takes the mean over all samples off the scores, for a metric or for the loss.
static void mixing(tri_graph *g, const tri_batch *batch, bool in_loss) {
    tri_value scores = tri_linear(g, "fc", batch->inputs, 3);
    tri_value mixed = tri_sub(g, scores, tri_mean(g, scores, (int[]){0}, 1, true));
    tri_metric_of(g, "r2", TRI_METRIC_R2, mixed, tri_sigmoid(g, scores), (tri_metric_options){0});
    tri_loss(g, tri_cross_entropy(g, in_loss ? mixed : scores, batch->labels));
}
static void mixing_metric(tri_graph *g, const tri_batch *batch) { mixing(g, batch, false); }
static void mixing_loss(tri_graph *g, const tri_batch *batch) { mixing(g, batch, true); }

// What is added to the hidden values [N, 6], by the kind that is tried: rows that a sample's place
// in its micro-batch decides, which other ranks would place elsewhere, and rows that are all alike.
enum {
    SLICED,
    LAST,
    PADDED,
    SUMMED,
    CHOSEN,
    STACKED,
    REPEATED,
    DROPPED,
    SPLIT,
    NUMBERED,
    LARGE,
    REFUSED,
    EXPANDED = REFUSED,
    REPEATED_TIMES,
    STATES,
    MASK,
    TURNED,
    SMALL, // of the smaller micro-batches of three ranks
    KINDS
};
static int kind;

static tri_value rows_of(tri_graph *g, tri_value x, tri_value table, tri_value row, int64_t n) {
    const float zeros[6] = {0};
    tri_value parts[32], y;
    tri_value all = tri_expand(g, row, tri_shape_of(n, 6));
    tri_value numbers = tri_cast(g, tri_arange(g, 24), TRI_F32);
    for (int i = 0; i < 32; i++) parts[i] = tri_select(g, table, 0, i % 24);
    switch (kind) {
    case SLICED:
        return tri_slice(g, table, 0, 0, n, 1);
    case LAST:
        return tri_slice(g, table, 0, -n, 0, 1);
    case PADDED:
        return tri_pad(g, row, 0, 0, n - 1);
    case SUMMED:
        return tri_cumsum(g, all, 0);
    case CHOSEN:
        return tri_index_select(g, table, 0, tri_slice(g, tri_arange(g, 24), 0, 0, n, 1));
    case STACKED:
        return tri_stack(g, parts, (int)(n < 32 ? n : 32), 0);
    case REPEATED:
        return tri_repeat(g, tri_slice(g, table, 0, 0, 2, 1), 0, n / 2);
    case DROPPED:
        return tri_slice(g, tri_dropout(g, "w", table, 0.5), 0, 0, 1, 1);
    case SPLIT:
        return tri_sum(g, tri_dropout(g, "w", table, 0.5), (int[]){0}, 1, true);
    case NUMBERED:
        return tri_unsqueeze(g, tri_slice(g, numbers, 0, 0, n, 1), 1);
    case LARGE:
        return n > 4 ? tri_relu(g, x) : tri_tanh(g, x);
    case SMALL:
        return n > 2 ? tri_relu(g, x) : tri_tanh(g, x);
    case EXPANDED:
        return all;
    case REPEATED_TIMES:
        y = tri_expand(g, tri_unsqueeze(g, table, 0), tri_shape_of(n, 24, 6));
        y = tri_reshape(g, y, tri_shape_of(n * 24, 6));
        return tri_select(g, tri_reshape(g, y, tri_shape_of(n, 24, 6)), 1, 3);
    case STATES:
        y = tri_constant(g, "zeros", tri_shape_of(1, 1, 6), zeros);
        y = tri_select(g, tri_expand(g, y, tri_shape_of(1, n, 6)), 0, 0);
        y = tri_gru(g, "gru", tri_unsqueeze(g, x, 1),
                    (tri_recurrent_options){.hidden = 6, .h = tri_unsqueeze(g, y, 1)}, NULL);
        return tri_select(g, y, 1, 0);
    case MASK:
        return tri_dropout(g, "mask", tri_linear(g, "of_row", all, 6), 0.5);
    default:
        return tri_softmax(g, tri_transpose(g, tri_transpose(g, all, 0, 1), 0, 1), 1);
    }
}

static void rows(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear(g, "hidden", batch->inputs, 6);
    const tri_init init = {.kind = TRI_INIT_NORMAL};
    tri_value table = tri_parameter(g, "table", tri_shape_of(24, 6), init);
    tri_value row = tri_parameter(g, "row", tri_shape_of(1, 6), init);
    x = tri_add(g, x, tri_add(g, row, tri_slice(g, table, 0, 0, 1, 1)));
    x = tri_add(g, x, rows_of(g, x, table, row, batch->size));
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", x, 3), batch->labels));
}

// Plans one of `ranks` ranks that share the training state. *communication: how many bytes the rank
// needs for communication.
static tri_status plan_rank(void (*build)(tri_graph *g, const tri_batch *batch), int ranks,
                            int rank, int64_t *communication) {
    const tri_task task = {.name = "odd", .build = build};
    const tri_field fields[] = {{"inputs", TRI_F32, {1, {5}}}, {"labels", TRI_I64, {0, {0}}}};
    tri_model_request model = {.task = &task, .fields = fields, .field_count = 2};
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_device *device;
    tri_device_config config = {0};
    assert_int_equal(tri_device_ref.open(&config, &device), TRI_OK);
    const tri_strategy_options options = {
        .name = ranks > 1 ? TRI_STRATEGY_FSDP : TRI_STRATEGY_SINGLE,
        .recompute_every = 1,
        .prefetch = 1,
    };
    tri_plan_request request = {.model = &model,
                                .options = &options,
                                .mesh = {.size = {1, 1, ranks, 1}, .ranks = ranks},
                                .rank = rank,
                                .step_samples = {[TRI_STEP_FULL] = 8, [TRI_STEP_EVALUATE] = 4},
                                .eval_micro = 4};
    tri_plan *plan = NULL;
    tri_status status = tri_plan_create(arena, &device->description, &request, &plan);
    if (status == TRI_OK) *communication = plan->memory.communication;
    tri_plan_destroy(plan);
    device->backend->close(device);
    tri_arena_destroy(arena);
    return status;
}

static tri_status plan_of(void (*build)(tri_graph *g, const tri_batch *batch)) {
    int64_t communication;
    return plan_rank(build, 1, 0, &communication);
}

static void test_wants_one_model(void **state) {
    (void)state;
    assert_int_equal(plan_of(same), TRI_OK);
    assert_int_equal(plan_of(other_metrics), TRI_BAD_INPUT);
    assert_int_equal(plan_of(other_tallies), TRI_BAD_INPUT);
    assert_int_equal(plan_of(other_names), TRI_BAD_INPUT);
    assert_int_equal(plan_of(other_shapes), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "build function"));
    assert_non_null(strstr(tri_error_message(), "hidden.weight"));
    assert_int_equal(plan_of(other_values), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "scale"));
}

// How a step is divided changes nothing that a metric computes, which only evaluation does.
static void test_metrics_may_mix_samples(void **state) {
    int64_t bytes;
    assert_int_equal(plan_rank(mixing_metric, 2, 0, &bytes), TRI_OK);
    assert_int_equal(plan_rank(mixing_loss, 2, 0, &bytes), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "batch.micro"));
}

static void test_places_of_samples_choose_no_rows(void **state) {
    (void)state;
    int64_t bytes;
    for (kind = 0; kind < KINDS; kind++) {
        assert_int_equal(plan_rank(rows, 2, 0, &bytes), kind < REFUSED ? TRI_BAD_INPUT : TRI_OK);
        if (kind < REFUSED) assert_non_null(strstr(tri_error_message(), "batch.micro"));
        assert_int_equal(plan_rank(rows, 1, 0, &bytes), TRI_OK);
    }
    kind = SMALL;
    assert_int_equal(plan_rank(rows, 3, 0, &bytes), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "batch.micro"));
}

static void test_ranks_plan_the_same_bytes(void **state) {
    (void)state;
    int64_t first, other;
    assert_int_equal(plan_rank(same, 4, 0, &first), TRI_OK);
    for (int rank = 1; rank < 4; rank++) {
        assert_int_equal(plan_rank(same, 4, rank, &other), TRI_OK);
        assert_int_equal(other, first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wants_one_model),
        cmocka_unit_test(test_metrics_may_mix_samples),
        cmocka_unit_test(test_places_of_samples_choose_no_rows),
        cmocka_unit_test(test_ranks_plan_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests the metrics of metrics.h: they are those of torchmetrics and scikit-learn, also where the
// numbers of parts of the data are added up, and what cannot be is refused.
#include "device/ref/ref.h"
#include "grad/metric_tables.h"
#include "graph/metric.h"
#include "support/message.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/nn.h>

#include <cmocka.h>

enum { CASES = sizeof metric_cases / sizeof *metric_cases, MOST_FIGURES = 36 };

// A whole number below 2^32, as the script that wrote the tables makes it.
static int64_t noise(int64_t index, int64_t seed) {
    uint32_t x = (uint32_t)((index + 1) * 2654435761 + seed * 97);
    x ^= x >> 15;
    x *= 2246822519U;
    return x ^ x >> 13;
}

static double prediction_of(int c, int64_t i) {
    return (double)(noise(i, metric_cases[c].seed) % 41 - 20) / 8;
}

static double target_of(int c, int64_t i) {
    int64_t seed = metric_cases[c].seed, width = metric_cases[c].width, y = noise(i, seed + 1);
    if (metric_cases[c].of == OF_NUMBERS) return (double)(y % 37) / 4;
    if (noise(i, seed + 2) % 8 < metric_cases[c].ignored) return TRI_IGNORED_LABEL;
    if (metric_cases[c].of == OF_TARGETS) return (double)(y % 2);
    return (double)(y % width == metric_cases[c].absent ? (y % width + 1) % width : y % width);
}

static tri_graph *open_graph(tri_dtype dtype) {
    return tri_graph_create(NULL, &(tri_graph_options){.training = false, .dtype = dtype});
}

// Adds the numbers of rows first to end - 1 to `sums`, and returns the metric.
static tri_metric_info add_part(int c, int64_t first, int64_t end, double *sums) {
    bool has_labels = metric_cases[c].of == OF_LABELS;
    tri_dtype dtype = c % 2 ? TRI_F64 : TRI_F32;
    tri_graph *g = open_graph(dtype);
    int64_t width = metric_cases[c].width, each = has_labels ? 1 : width;
    // A binary classification may have an axis for its only score.
    tri_shape x_shape = tri_shape_of(end - first, width), y_shape = x_shape;
    if (has_labels || (width == 1 && c % 3 != 0)) y_shape.rank = 1;
    tri_value x = tri_input(g, "x", dtype, x_shape);
    bool is_integer = has_labels || (metric_cases[c].of == OF_TARGETS && c % 2);
    tri_value y = tri_input(g, "y", is_integer ? TRI_I64 : dtype, y_shape);
    tri_metric_options options = {.average = metric_cases[c].average,
                                  .k = metric_cases[c].k > 1 ? metric_cases[c].k : 0,
                                  .threshold = metric_cases[c].threshold};
    tri_metric_of(g, "own", metric_cases[c].kind, x, y, options);
    const char *message;
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("case %d: %s", c, message);
    tri_metric_info metric = g->metrics[0];
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    for (int64_t i = 0; i < op_count(session, x); i++)
        op_set(session, x, i, prediction_of(c, first * width + i));
    for (int64_t i = 0; i < op_count(session, y); i++) {
        double target = target_of(c, first * each + i);
        if (is_integer)
            ((int64_t *)op_host(session, y))[i] = (int64_t)target;
        else
            op_set(session, y, i, target);
    }
    op_run_ok(session);
    for (int64_t i = 0; i < op_count(session, metric.value); i++)
        sums[i] += op_get(session, metric.value, i);
    op_session_close(session);
    device->backend->close(device);
    tri_graph_destroy(g);
    return metric;
}

static void check_case(int c, double *sums) {
    int64_t rows = metric_cases[c].rows, third = rows / 3;
    const int64_t ends[] = {0, third, third + 1, rows};
    double got[MOST_FIGURES];
    tri_metric_info metric = {.name = NULL};
    memset(sums, 0, sizeof *sums * TRI_MAX_METRIC_NUMBERS / 8);
    for (int i = 0; i < 3; i++)
        if (ends[i + 1] > ends[i]) metric = add_part(c, ends[i], ends[i + 1], sums);
    assert_int_equal(tri_metric_figures(&metric), metric_cases[c].figures);
    tri_metric_finish(&metric, sums, got);
    // Scores of classes may share an interval.
    bool is_near = metric.tally == TRI_TALLY_CLASS_BINS;
    for (int i = 0; i < metric_cases[c].figures; i++) {
        double wanted = metric_cases[c].wanted[i];
        if (isnan(wanted)
                ? !isnan(got[i])
                : !(fabs(got[i] - wanted) <= (is_near ? 2e-3 : 1e-6 * (1 + fabs(wanted)))))
            fail_msg("case %d, figure %d: %.15g, not %.15g", c, i, got[i], wanted);
    }
}

static void test_values(void **state) {
    double *sums = malloc(sizeof *sums * TRI_MAX_METRIC_NUMBERS / 8);
    for (int c = 0; c < CASES; c++) check_case(c, sums);
    free(sums);
}

// The error of an AUC is at most half the pairs that share an interval.
static void test_auc_error(void **state) {
    enum { ROWS = 400, BINS = 32 };
    tri_graph *g = open_graph(TRI_F64);
    tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(ROWS));
    tri_value y = tri_input(g, "y", TRI_F64, tri_shape_of(ROWS));
    tri_metric_of(g, "auc", TRI_METRIC_AUC, x, y, (tri_metric_options){.bins = BINS});
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    double exact = 0, pairs = 0, shared = 0, got, sums[2 * BINS];
    for (int64_t i = 0; i < ROWS; i++) {
        double target = noise(i, 5) % 3 == 0, score = (double)noise(i, 6) / 4e9 + target / 3;
        op_set(session, x, i, score);
        op_set(session, y, i, target);
    }
    op_run_ok(session);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < ROWS; j++) {
            if (op_get(session, y, i) == 0 || op_get(session, y, j) == 1) continue;
            double a = op_get(session, x, i), b = op_get(session, x, j);
            pairs++;
            exact += a > b ? 1 : a == b ? 0.5 : 0;
        }
    for (int i = 0; i < 2 * BINS; i++) sums[i] = op_get(session, g->metrics[0].value, i);
    for (int i = 0; i < BINS; i++) shared += sums[2 * i] * sums[2 * i + 1];
    tri_metric_finish(&g->metrics[0], sums, &got);
    assert_true(shared > 0 && fabs(got - exact / pairs) <= shared / pairs / 2);
    op_session_close(session);
    device->backend->close(device);
    tri_graph_destroy(g);
}

// Scores that are large numbers are told apart, too: AUC is that of the pairs, nearly.
static void test_auc_of_large_scores(void **state) {
    enum { ROWS = 400 };
    for (double size = 1; size < 1e7; size *= 100) {
        tri_graph *g = open_graph(TRI_F64);
        tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(ROWS));
        tri_value y = tri_input(g, "y", TRI_F64, tri_shape_of(ROWS));
        tri_metric_of(g, "auc", TRI_METRIC_AUC, x, y, (tri_metric_options){0});
        tri_device *device = op_device_open(&tri_device_ref, 1);
        op_session *session = op_session_open(g, device, false);
        const tri_metric_info *auc = &g->metrics[0];
        double right = 0, pairs = 0, got, *sums = calloc((size_t)auc->bins, 2 * sizeof *sums);
        for (int64_t i = 0; i < ROWS; i++) {
            double target = noise(i, 5) % 3 == 0, score = 1 + (double)noise(i, 6) / 8e9;
            op_set(session, x, i, size * (score + target / 5));
            op_set(session, y, i, target);
        }
        op_run_ok(session);
        for (int64_t i = 0; i < ROWS * ROWS; i++) {
            int64_t one = i / ROWS, zero = i % ROWS;
            if (op_get(session, y, one) == 0 || op_get(session, y, zero) == 1) continue;
            pairs++;
            right += op_get(session, x, one) > op_get(session, x, zero);
        }
        for (int i = 0; i < 2 * auc->bins; i++) sums[i] = op_get(session, auc->value, i);
        tri_metric_finish(auc, sums, &got);
        assert_true(right / pairs > 0.6 && fabs(got - right / pairs) < 0.005);
        assert_true(tri_metric_error(auc, sums) < 0.05);
        sums[0] = sums[1] = ROWS; // nothing is told apart
        for (int i = 2; i < 2 * auc->bins; i++) sums[i] = 0;
        assert_true(tri_metric_error(auc, sums) == 0.5);
        free(sums);
        op_session_close(session);
        device->backend->close(device);
        tri_graph_destroy(g);
    }
}

// Metrics of the same scores share their numbers, and perplexity those of the loss.
static void test_shared(void **state) {
    tri_graph *g = open_graph(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(4, 3));
    tri_value y = tri_input(g, "y", TRI_I64, tri_shape_of(4));
    tri_metric_options none = {0}, each = {.average = TRI_AVERAGE_NONE};
    tri_metric_of(g, "f1", TRI_METRIC_F1, x, y, none);
    tri_metric_of(g, "recall", TRI_METRIC_RECALL, x, y, each);
    tri_metric_of(g, "correct", TRI_METRIC_ACCURACY, x, y, none);
    tri_loss(g, tri_cross_entropy(g, x, y));
    tri_metric_of(g, "perplexity", TRI_METRIC_PERPLEXITY, x, y, none);
    const tri_metric_info *m = g->metrics; // loss, the three, accuracy, perplexity
    assert_int_equal(g->metric_count, 6);
    assert_true(m[1].source == 1 && m[2].source == 1 && m[3].source == 1 && m[5].source == 0);
    assert_int_equal(tri_metric_offset(g, 1), 0); // counts are apart from sums
    assert_int_equal(tri_metric_offset(g, 4), 8);
    assert_int_equal(tri_metric_numbers(g, false), 24);
    assert_int_equal(tri_metric_numbers(g, true), 3 * 16);
    tri_graph_destroy(g);
}

// Scores that are NaN, and no samples, make figures NaN; no positive ones are 0 / 0, which is 0.
static void test_nothing(void **state) {
    double none[10] = {0}, negatives[6] = {0, 0, 0, 9, 9, 9}, wrong[6] = {1, 1, 1, NAN}, got;
    tri_metric_info f1 = {.kind = TRI_METRIC_F1,
                          .average = TRI_AVERAGE_WEIGHTED,
                          .tally = TRI_TALLY_TARGETS,
                          .classes = 1,
                          .k = 1};
    tri_metric_info mae = {.kind = TRI_METRIC_MAE, .tally = TRI_TALLY_ERRORS, .classes = 1};
    tri_metric_finish(&f1, negatives, &got);
    assert_true(got == 0);
    tri_metric_finish(&f1, wrong, &got);
    assert_true(isnan(got));
    tri_metric_finish(&f1, none, &got);
    assert_true(isnan(got));
    // Of three labels, one without positives is left out, but not one whose scores are NaN.
    double bins[12] = {1, 0, 0, 1, 2, 0, 1, 0, NAN, NAN, NAN, NAN};
    tri_metric_info auc = {
        .kind = TRI_METRIC_AUC, .tally = TRI_TALLY_TARGET_BINS, .classes = 2, .bins = 2};
    tri_metric_finish(&auc, bins, &got);
    assert_true(got == 1);
    auc.classes = 3;
    tri_metric_finish(&auc, bins, &got);
    assert_true(isnan(got));
    tri_metric_finish(&mae, none, &got);
    assert_true(isnan(got) && !signbit(got));
}

static void check_refused(const char *parts, tri_metric_kind kind, tri_shape x, tri_dtype dtype,
                          tri_shape y, tri_metric_options options) {
    tri_graph *g = open_graph(TRI_F32);
    const char *message;
    tri_value prediction = tri_input(g, "x", TRI_F32, x);
    tri_metric_of(g, "own", kind, prediction, tri_input(g, "y", dtype, y), options);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, parts);
    tri_graph_destroy(g);
}

static void test_refused(void **state) {
    tri_metric_options none = {0};
    tri_shape four = tri_shape_of(4), scores = tri_shape_of(4, 3);
    check_refused("own|99", (tri_metric_kind)99, four, TRI_F32, four, none);
    check_refused("own|F1|[4, 3]|[4]", TRI_METRIC_F1, scores, TRI_F32, four, none);
    check_refused("own|RMSE|[4, 3]|[4]", TRI_METRIC_RMSE, scores, TRI_F32, four, none);
    check_refused("own|PERPLEXITY|[4, 3]", TRI_METRIC_PERPLEXITY, scores, TRI_F32, scores, none);
    check_refused("own|EXACT_MATCH|I64", TRI_METRIC_EXACT_MATCH, scores, TRI_I64, four, none);
    check_refused("own|AUC|MICRO", TRI_METRIC_AUC, scores, TRI_I64, four,
                  (tri_metric_options){.average = TRI_AVERAGE_MICRO});
    check_refused("own|MAE|WEIGHTED", TRI_METRIC_MAE, four, TRI_F32, four,
                  (tri_metric_options){.average = TRI_AVERAGE_WEIGHTED});
    check_refused("own|k|2", TRI_METRIC_F1, scores, TRI_I64, four, (tri_metric_options){.k = 2});
    check_refused("own|65|64", TRI_METRIC_R2, tri_shape_of(4, 65), TRI_F32, tri_shape_of(4, 65),
                  none);
    check_refused("own|500|bins", TRI_METRIC_AUC, tri_shape_of(4, 500), TRI_I64, four, none);
    check_refused("own|2100", TRI_METRIC_CONFUSION, tri_shape_of(4, 2100), TRI_I64, four, none);
    check_refused("own|bins", TRI_METRIC_AUC, four, TRI_F32, four, (tri_metric_options){.bins = 1});
}

// Targets that are neither 0 nor 1, as soft labels are, have no F1.
static void test_soft_targets(void **state) {
    tri_graph *g = open_graph(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(4, 3));
    tri_value y = tri_input(g, "y", TRI_F32, tri_shape_of(4, 3));
    tri_metric_of(g, "f1", TRI_METRIC_F1, x, y, (tri_metric_options){0});
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    for (int64_t i = 0; i < 12; i++) op_set(session, y, i, i == 7 ? 0.25 : 1);
    assert_int_equal(op_run(session), TRI_BAD_INPUT);
    message_check(tri_error_message(), "target 7|0.25");
    op_session_close(session);
    device->backend->close(device);
    tri_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_auc_error),
                                       cmocka_unit_test(test_auc_of_large_scores),
                                       cmocka_unit_test(test_shared),
                                       cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_soft_targets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

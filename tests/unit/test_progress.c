// Checks the progress (number of steps and updates, epoch, loss scale, best metric, …) that a
// checkpoint stores in state.json: what is written is read back, and a map that is not a complete
// progress is refused.
#include "base/tree.h"
#include "support/arena_fixture.h"
#include "train/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const tri_graph no_metrics = {.metric_count = 0};

// Reads a progress as it stands in state.json, with the text `line` inserted into it.
static tri_status read_with(const char *line, tri_progress *out) {
    char text[256];
    snprintf(text, sizeof text,
             "{\"step\": 7, %s\"epoch\": 1, \"step_in_epoch\": 2, \"samples\": 56}", line);
    tri_tree *tree;
    assert_int_equal(tri_json_parse(arena, text, strlen(text), "state.json", &tree), TRI_OK);
    return tri_progress_read(tree, &no_metrics, out);
}

static void test_reads_what_was_written(void **state) {
    (void)state;
    tri_progress written = {.step = 7,
                            .updates = 4,
                            .scale = {.scale = 1024, .good_steps = 3, .hysteresis_left = 1},
                            .epoch = 1,
                            .step_in_epoch = 2,
                            .samples = 56,
                            .data_samples = 100,
                            .stopping = {.has_best = true, .best = 0.5, .waited = 2},
                            .plateau = {.watched = {.has_last = true, .last = 0.75, .waited = 1},
                                        .cooldown = 3,
                                        .factor = 0.25},
                            .val = {.is_known = true, .mean = {0.25}, .samples = 10, .step = 5},
                            .test = {.is_known = true, .mean = {0.5}, .samples = 9, .step = 7},
                            .loss_sum = 0.1,
                            .loss_count = 24};
    tri_progress found;
    assert_int_equal(
        tri_progress_read(tri_progress_tree(arena, &written, &no_metrics), &no_metrics, &found),
        TRI_OK);
    assert_int_equal(found.step, 7);
    assert_int_equal(found.updates, 4);
    assert_float_equal(found.scale.scale, 1024, 0);
    assert_int_equal(found.scale.good_steps, 3);
    assert_int_equal(found.scale.hysteresis_left, 1);
    assert_int_equal(found.epoch, 1);
    assert_int_equal(found.step_in_epoch, 2);
    assert_int_equal(found.samples, 56);
    assert_int_equal(found.data_samples, 100);
    assert_true(found.stopping.has_best && found.val.is_known && found.test.is_known);
    assert_float_equal(found.stopping.best, 0.5, 0);
    assert_int_equal(found.stopping.waited, 2);
    assert_true(found.plateau.watched.has_last && !found.plateau.watched.has_best);
    assert_float_equal(found.plateau.watched.last, 0.75, 0);
    assert_int_equal(found.plateau.watched.waited, 1);
    assert_int_equal(found.plateau.cooldown, 3);
    assert_float_equal(found.plateau.factor, 0.25, 0);
    assert_float_equal(found.val.mean[0], 0.25, 0);
    assert_int_equal(found.val.samples, 10);
    assert_int_equal(found.val.step, 5);
    assert_float_equal(found.test.mean[0], 0.5, 0);
    assert_int_equal(found.test.step, 7);
    assert_float_equal(found.loss_sum, 0.1, 0);
    assert_float_equal(found.loss_count, 24, 0);
}

// Checkpoints that were written before there was the precision 16-mixed have no number of updates.
// In their runs every step was an update, so the number of steps is used.
static void test_updates_are_steps_if_absent(void **state) {
    (void)state;
    tri_progress found;
    assert_int_equal(read_with("", &found), TRI_OK);
    assert_int_equal(found.updates, 7);
    assert_int_equal(found.data_samples, 0); // such checkpoints lack it too
    assert_int_equal(read_with("\"updates\": 0, ", &found), TRI_OK);
    assert_int_equal(found.updates, 0);
}

static void test_refuses_updates_that_are_no_count(void **state) {
    (void)state;
    static const char *const values[] = {"-1", "1.5", "\"4\"", "null", "true", "[4]", "{\"a\": 4}"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char line[64];
        tri_progress found;
        snprintf(line, sizeof line, "\"updates\": %s, ", values[i]);
        if (read_with(line, &found) != TRI_CORRUPT) fail_msg("%s was read", values[i]);
        assert_non_null(strstr(tri_error_message(), "no whole number 'updates'"));
    }
}

static void test_refuses_a_loss_scale_that_is_none(void **state) {
    (void)state;
    static const char *const values[] = {"{}",   "{\"scale\": \"8\"}", "{\"scale\": 0}",
                                         "null", "{\"scale\": -2}",    "8"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char line[64];
        tri_progress found;
        snprintf(line, sizeof line, "\"loss_scale\": %s, ", values[i]);
        if (read_with(line, &found) != TRI_CORRUPT) fail_msg("%s was read", values[i]);
        assert_non_null(strstr(tri_error_message(), "no loss scale above 0"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_was_written),
        cmocka_unit_test(test_updates_are_steps_if_absent),
        cmocka_unit_test(test_refuses_updates_that_are_no_count),
        cmocka_unit_test(test_refuses_a_loss_scale_that_is_none),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}

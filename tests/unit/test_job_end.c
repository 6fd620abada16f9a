// Checks how a run learns when its Slurm job ends, from times as squeue prints them, and when the
// run then has to stop.
#include "base/limits.h"
#include "train/deadline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_times(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double seconds; // the time that is read; -1: `text` is rejected
    } cases[] = {
        {"59", 59},         {"02:03", 123},  {"1:02:03", 3723}, {"1-02:03:04", 93784},
        {" 10:00 \n", 600}, {"0:00", 0},     {"", -1},          {"UNLIMITED", -1},
        {"NOT_SET", -1},    {"1:2:3:4", -1}, {"1-2", -1},       {"1-", -1},
        {"-1:00", -1},      {"1:", -1},      {"1:00x", -1},     {"1-1-00:00:00", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        assert_int_equal(train_slurm_read_time(cases[i].text, &seconds), cases[i].seconds >= 0);
        assert_float_equal(seconds, cases[i].seconds, 0);
    }
}

static const char *no_variable(const char *name) { return NULL; }
static const char *a_job(const char *name) { return strcmp(name, "SLURM_JOB_ID") ? NULL : "417"; }
static const char *no_number(const char *name) { return "4; rm -r"; }

static void test_job(void **state) {
    (void)state;
    train_slurm_job job;
    assert_false(train_slurm_find(no_variable, &job));
    assert_false(train_slurm_find(no_number, &job));
    assert_true(train_slurm_find(a_job, &job));
    assert_string_equal(job.id, "417");
}

typedef struct answers {
    double left_s;
    int asked;
    bool known;
} answers;

static bool answer(void *context, double *left_s) {
    answers *a = context;
    a->asked++;
    *left_s = a->left_s;
    return a->known;
}

static void test_when_to_stop(void **state) {
    (void)state;
    answers a = {.left_s = 100, .known = true};
    double margin = TRI_JOB_END_MARGIN_MS / 1e3;
    train_deadline d = {.end_s = 100, .save_s = 20, .ask = answer, .context = &a};
    train_deadline_note_step(&d, 3);
    train_deadline_note_step(&d, 1);
    assert_true(d.step_s > 2.8 && d.step_s < 3); // after a slow step the estimate falls slowly
    d.step_s = 3;
    train_deadline_note_pause(&d, 7);
    double last = 100 - 2 * 3 - 1.5 * 20 - margin; // two more steps, and a checkpoint
    assert_false(train_deadline_is_due(&d, last - 0.1, (train_remaining){0}));
    assert_int_equal(a.asked, 0);
    // Slurm is asked how much time the job has left. It answers first the time that was known, then
    // more, and last that the job has no end.
    a.left_s = 100 - (last + 0.1);
    assert_true(train_deadline_is_due(&d, last + 0.1, (train_remaining){0}));
    assert_int_equal(a.asked, 1);
    // It is too soon to ask again.
    assert_true(train_deadline_is_due(&d, last + 0.2, (train_remaining){0}));
    assert_int_equal(a.asked, 1);
    a.left_s = 3600;
    assert_false(train_deadline_is_due(&d, last + 10, (train_remaining){0}));
    assert_float_equal(d.end_s, last + 10 + 3600, 1e-9);
    a.left_s = -1;
    assert_false(train_deadline_is_due(&d, d.end_s, (train_remaining){0}));
    assert_false(train_deadline_is_due(&d, 1e9, (train_remaining){0}));
    // Steps in flight, an evaluation and another checkpoint need time too. If Slurm gives no
    // answer, the end that was known before stays.
    a.known = false;
    d.end_s = 100;
    d.asked_s = 0;
    assert_false(train_deadline_is_due(&d, last - 3.1, (train_remaining){.steps = 1}));
    assert_true(train_deadline_is_due(&d, last - 2.9, (train_remaining){.steps = 1}));
    assert_true(train_deadline_is_due(&d, last - 6.9, (train_remaining){.evaluates = true}));
    assert_false(train_deadline_is_due(&d, last - 7.1, (train_remaining){.evaluates = true}));
    assert_true(train_deadline_is_due(&d, last - 29.9, (train_remaining){.saves = true}));
    assert_false(train_deadline_is_due(&d, last - 30.1, (train_remaining){.saves = true}));
}

// However long steps and checkpoints take, a run stops in time, and not much too early. After the
// decision to stop, 2 * ahead + 1 steps still run: `ahead` that were issued before, the one about
// to be issued, which tells the ranks of the decision, and `ahead` that are issued before the ranks
// know it.
static void test_stops_in_time(void **state) {
    (void)state;
    static const double step_s[] = {0.01, 2, 7, 60, 200}, save_s[] = {0.1, 20, 100};
    for (int ahead = 0; ahead <= TRI_MAX_STEPS_AHEAD; ahead++)
        for (int i = 0; i < 15; i++) {
            double step = step_s[i % 5], save = save_s[i / 5], now = 0.3 * step;
            train_deadline d = {.end_s = 3600, .save_s = save, .step_s = step};
            while (!train_deadline_is_due(&d, now, (train_remaining){.steps = 2 * ahead}))
                now += step;
            double left = d.end_s - now - (2 * ahead + 1) * step - save;
            assert_true(left >= TRI_JOB_END_MARGIN_MS / 1e3);
            assert_true(left <= TRI_JOB_END_MARGIN_MS / 1e3 + step + 0.5 * save + 0.01);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_job),
                                       cmocka_unit_test(test_when_to_stop),
                                       cmocka_unit_test(test_stops_in_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// A process that saves one checkpoint after the other, with or without a background thread, is
// killed 100 times at random moments. Each time there is an intact checkpoint, at least as new as
// the last one reported, and the next process resumes from it.
#include "support/checkpoint_fixture.h"
#include "support/run_folder.h"

#include <signal.h>
#include <sys/wait.h>

enum { KILLS = 100 };

static int64_t width;          // size of the fixture's layer; 8000: 3 MB of weights and states
static int64_t snapshot_bytes; // not 0: a background thread saves a copy of the state

static fixture_save options(int64_t step) {
    tri_checkpoint_monitor monitor = {
        .name = "val_loss", .is_known = true, .value = (double)(step * 7919 % 101)};
    return (fixture_save){.step = step,
                          .width = width,
                          .monitor = monitor,
                          .save_top_k = 1,
                          .snapshot_bytes = snapshot_bytes};
}

// Saves from step `from` on, until this process is killed. Writes the number of each committed step
// to the pipe `report`.
static void save_steps(int64_t from, int report) {
    for (int64_t step = from;; step++) {
        if (fixture_do_save(run_dir, options(step)) != TRI_OK) _exit(1);
        // Saves every third step twice, so that some kills come while a save replaces the
        // checkpoint of the same step.
        if (step % 3 == 0 && fixture_do_save(run_dir, options(step)) != TRI_OK) _exit(1);
        if (write(report, &step, sizeof step) != sizeof step) _exit(1);
    }
}

static void one_kill(int64_t *last, double whole_save_s, unsigned *seed) {
    int report[2], status;
    assert_int_equal(pipe(report), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(report[0]);
        save_steps(*last + 1, report[1]);
    }
    close(report[1]);
    tri_os.sleep_ns((int64_t)(rand_r(seed) / (RAND_MAX + 1.0) * 1.5 * whole_save_s * 1e9));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status)); // the child did not fail by itself before it was killed
    int64_t step, reported = *last;
    while (read(report[0], &step, sizeof step) == sizeof step) reported = step;
    close(report[0]);

    assert_int_equal(tri_checkpoint_clean(run_dir), TRI_OK);
    // The step of the newest checkpoint; fixture_auto has checked each element of it.
    int64_t found = fixture_auto(run_dir, width);
    if (found != reported && found != reported + 1)
        fail_msg("step %lld was reported, %lld found", (long long)reported, (long long)found);
    *last = found;
}

static void kills(void) {
    unsigned seed = 20240229;
    int64_t last = 1, first;
    double start = tri_os_seconds();
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    double whole_save_s = tri_os_seconds() - start;
    first = last;
    for (int i = 0; i < KILLS; i++) one_kill(&last, whole_save_s, &seed);
    print_message("%d kills, %lld saves, %.0f ms each\n", KILLS, (long long)(last - first),
                  whole_save_s * 1e3);
    assert_true(last > first);
}

static void test_at_once(void **state) {
    width = 8000;
    snapshot_bytes = 0;
    kills();
}

static void test_async(void **state) {
    width = 4000;
    snapshot_bytes = 1 << 30;
    kills();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_async, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

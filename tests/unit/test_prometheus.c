// metrics.prom, the latest figures of a run: its exact text, what is not finite, what a run begins
// with that goes on, and a full disk.
#include "support/arena_fixture.h"
#include "support/run_folder.h"
#include "views/prometheus.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static int64_t fixed_time(void) { return 1700000000250000000; }

static tri_observer *open_run(int64_t first_step) {
    static const tri_event_sink *const sinks[] = {&tri_sink_jsonl, &views_sink_prometheus};
    static tri_run_info info;
    tri_os.realtime_ns = fixed_time;
    info = (tri_run_info){.name = "a \"b\"\\c",
                          .folder = run_dir,
                          .first_step = first_step,
                          .start = tri_tree_map(arena),
                          .log_every_n_steps = 1};
    return tri_observer_create(&info, sinks, 2);
}

static char *contents(void) {
    static char text[8192];
    FILE *file = fopen(in_run("metrics.prom"), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

// Checks the sample of a metric, whose value stands behind its labels.
static void check_value(const char *metric, const char *value) {
    char line[512];
    snprintf(line, sizeof line, "\n%s{run=\"a \\\"b\\\"\\\\c\",folder=\"%s\"} %s\n", metric,
             run_dir, value);
    if (!strstr(contents(), line)) fail_msg("%s is not in %s", line, contents());
}

static void train(tri_observer *o, int64_t step, double loss) {
    tri_observe_train(
        o, (tri_train_event){
               .step = step, .loss = loss, .lr = 0.1, .grad_norm = 2, .samples = 4 * step});
}

static void validate(tri_observer *o, int64_t step, double loss) {
    const tri_metric_value metrics[] = {{.name = "top.1", .value = 0.25},
                                        {.name = "top_1", .value = 0.5}};
    tri_observe_val(
        o, (tri_val_event){.step = step, .loss = loss, .metrics = metrics, .metric_count = 2});
}

static void test_text(void **state) {
    char head[512];
    (void)state;
    tri_observer *o = open_run(0);
    check_value("trireme_step", "0");
    train(o, 1, 1.5);
    snprintf(head, sizeof head,
             "# HELP trireme_train_epoch The latest value of train/epoch.\n"
             "# TYPE trireme_train_epoch gauge\n"
             "trireme_train_epoch{run=\"a \\\"b\\\"\\\\c\",folder=\"%s\"} 0\n",
             run_dir);
    assert_memory_equal(contents(), head, strlen(head));
    check_value("trireme_train_loss", "1.5");
    validate(o, 1, INFINITY);
    check_value("trireme_val_loss", "+Inf");
    check_value("trireme_val_top_1", "0.25"); // no two metrics have one name
    check_value("trireme_val_top_1_", "0.5");
    train(o, 2, NAN);
    check_value("trireme_train_loss", "NaN");
    validate(o, 2, -INFINITY);
    check_value("trireme_val_loss", "-Inf");
    check_value("trireme_step", "2");
    check_value("trireme_logged_timestamp_seconds", "1700000000.250");
    assert_non_null(strstr(contents(), ",status=\"running\"} 1\n"));
    tri_observe_end(o, TRI_OK, NULL, 2, NULL);
    assert_non_null(strstr(contents(), ",status=\"completed\"} 1\n"));
    assert_null(strstr(contents(), "running"));
    tri_observer_destroy(o);
}

static void test_resume(void **state) {
    (void)state;
    tri_observer *o = open_run(0);
    train(o, 1, 4);
    train(o, 2, 3);
    train(o, 3, 2);
    tri_observer_destroy(o);
    o = open_run(2);
    check_value("trireme_train_loss", "3");
    check_value("trireme_step", "2");
    train(o, 3, 7);
    check_value("trireme_train_loss", "7");
    tri_observer_destroy(o);
}

static bool disk_is_full;
static ssize_t limited_write(int fd, const void *data, size_t size) {
    if (!disk_is_full || fd == STDERR_FILENO) return write(fd, data, size);
    errno = ENOSPC;
    return -1;
}

// The file stays as it was, and is complete again when there is room.
static void test_full_disk(void **state) {
    (void)state;
    tri_os.write = limited_write;
    tri_observer *o = open_run(0);
    train(o, 1, 4);
    disk_is_full = true;
    train(o, 2, 3);
    check_value("trireme_train_loss", "4");
    disk_is_full = false;
    train(o, 3, 2);
    check_value("trireme_train_loss", "2");
    tri_observer_destroy(o);
}

static int restore(void **state) {
    tri_os = tri_os_system;
    return teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text, setup, restore),
        cmocka_unit_test_setup_teardown(test_resume, setup, restore),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, restore),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}

// Checks how long `trireme bench train` measures, and what it says if other programs use the
// machine, on the device `null` with a clock that the test sets.
#include "train/bench.h"

#include "base/os.h"
#include "device/null/null.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t clock_ns;
static bool others_work;   // other programs use the machine
static int64_t used_ticks; // by all programs, in hundredths of a second

static int64_t slow_clock(void) { return clock_ns += 100000000; }

// /proc/stat as it is if other programs use the machine all the time, or never.
static int open_stat(const char *path, int flags, mode_t mode) {
    if (strcmp(path, "/proc/stat") != 0) return tri_os_system.open(path, flags, mode);
    used_ticks += others_work ? 1000000 : 0;
    FILE *file = tmpfile();
    assert_non_null(file);
    fprintf(file, "cpu %lld 0 0 0 0 0 0 0\n", (long long)used_ticks);
    rewind(file);
    int fd = dup(fileno(file));
    fclose(file);
    return fd;
}

// Measures for so long. Returns how long it took, in seconds of the test's clock.
static double measure(double seconds, tri_bench_result *out) {
    static const tri_device_backend *const devices[] = {&tri_device_null, NULL};
    static const tri_backends backends = {.devices = devices};
    static const char *const words[] = {"data.name=synthetic",  "data.samples=64",
                                        "data.shape=[1,28,28]", "data.classes=10",
                                        "data.workers=0",       "batch.global=16"};
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_recipe recipe;
    assert_int_equal(tri_recipe_load(arena, TRIREME_SOURCE_DIR "/recipes/mlp-jax.yaml", words,
                                     sizeof words / sizeof *words, NULL, &recipe),
                     TRI_OK);
    clock_ns = 0;
    assert_int_equal(tri_bench_train(&(tri_session_request){.backends = &backends,
                                                            .recipe = &recipe,
                                                            .device = "null",
                                                            .train = true},
                                     seconds, NULL, out),
                     TRI_OK);
    tri_arena_destroy(arena);
    return 1e-9 * (double)clock_ns;
}

static int set_up(void **state) {
    tri_os.monotonic_ns = slow_clock;
    tri_os.open = open_stat;
    others_work = false;
    return 0;
}

static int tear_down(void **state) {
    tri_os = tri_os_system;
    return 0;
}

static void test_takes_as_long_as_asked(void **state) {
    (void)state;
    tri_bench_result r;
    double least_s = measure(1e-6, &r);
    assert_int_equal(r.steps, 3);
    assert_int_equal(r.chunks, 1);
    assert_false(r.disturbed);
    assert_true(measure(10 * least_s, &r) < 12 * least_s);
    assert_true(r.chunks > 1 && r.steps > 9);
    assert_true(r.cpu_s_per_sample >= 0 && r.cpu_s_per_sample < 60);
    assert_true(r.samples_per_s_low <= r.samples_per_s && r.samples_per_s <= r.samples_per_s_high);
}

static void test_other_programs(void **state) {
    (void)state;
    tri_bench_result r;
    double least_s = measure(1e-6, &r);
    others_work = true;
    double took_s = measure(10 * least_s, &r);
    assert_true(took_s < 12 * least_s);
    assert_true(r.disturbed && r.chunks > 1 && r.rejected == 0 && r.samples_per_s > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_takes_as_long_as_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_programs, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

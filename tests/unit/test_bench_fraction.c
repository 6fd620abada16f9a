// Checks tri_bench_fraction, the fraction of the machine's peak that a kernel reaches (the shortest
// possible time divided by the measured one), with invented peaks and times.
#include "device/bench.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const tri_bench_peak peak = {
    .flops_per_s = 100e9,
    .bf16_flops_per_s = 400e9,
    .bytes_per_s = 10e9,
    .caches = {
        {16384, 200e9}, {131072, 100e9}, {1048576, 50e9}, {8388608, 20e9}, {67108864, 10e9}}};

static void near(double found, double wanted) {
    if (fabs(found - wanted) > 1e-9 * fabs(wanted)) fail_msg("%g, not %g", found, wanted);
}

static void the_longer_bound_counts(void **state) {
    // The measured times are 20, 20 and 200 ms. Behind each line stands the shortest possible time.
    near(tri_bench_fraction(&peak, 1e9, 1e3, false, 0.02), 0.5);  // 10 ms for arithmetic in F32
    near(tri_bench_fraction(&peak, 1e9, 1e3, true, 0.02), 0.125); // 2.5 ms for arithmetic in BF16
    near(tri_bench_fraction(&peak, 1e3, 1e9, false, 0.2), 0.5);   // 100 ms for reading memory
    // In the next three lines the shortest possible time is that of moving the bytes (the third
    // argument), at the rate of the largest buffer in peak.caches that has at most that size:
    // 16 KiB, 16 KiB and 1 MiB.
    near(tri_bench_fraction(&peak, 1, 65536, false, 1e-6), 0.32768);
    near(tri_bench_fraction(&peak, 1, 16384, false, 1e-6), 0.08192);
    near(tri_bench_fraction(&peak, 1, 4e6, false, 1e-3), 0.08);
}

// Whatever is measured, the fraction of the peak is never above 1.05. If the shortest possible time
// is clearly longer than the measured one, the kernel does less work than was counted, and the
// fraction is 0.
static void never_above_the_peak(void **state) {
    for (double flops = 1; flops < 1e12; flops *= 7)
        for (double bytes = 1; bytes < 1e12; bytes *= 7)
            for (double seconds = 1e-9; seconds < 100; seconds *= 3) {
                double fraction = tri_bench_fraction(&peak, flops, bytes, false, seconds);
                assert_true(fraction >= 0 && fraction <= 1.05);
            }
    near(tri_bench_fraction(&peak, 1e9, 0, false, 0.01 / 1.04), 1.04);
    // Like Winograd's algorithm, which computes fewer flops than those that are counted, which are
    // the direct algorithm's.
    assert_true(tri_bench_fraction(&peak, 1e9, 0, false, 0.001) == 0);
    // Like a view or an embedding, which moves far fewer bytes than its tensors have.
    assert_true(tri_bench_fraction(&peak, 0, 1e9, false, 1e-6) == 0);
    assert_true(tri_bench_fraction(&peak, 1e9, 1e9, false, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longer_bound_counts),
        cmocka_unit_test(never_above_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests how numbers with units, counts and decimal numbers are written for people and read.
#include "base/quantity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_counted(void **state) {
    (void)state;
    assert_string_equal(tri_counted(0, "rank"), "0 ranks");
    assert_string_equal(tri_counted(1, "rank"), "1 rank");
    assert_string_equal(tri_counted(1, "axis"), "1 axis");
    assert_string_equal(tri_counted(4, "axis"), "4 axes");
    assert_string_equal(tri_counted(1199882, "rank"), "1,199,882 ranks");
}

// Large numbers are written with an exponent, because a loss that diverges has up to 309 digits
// before its point.
static void test_decimal(void **state) {
    (void)state;
    assert_string_equal(tri_decimal(0.693147), "0.6931");
    assert_string_equal(tri_decimal(-999999.5), "-999999.5000");
    assert_string_equal(tri_decimal(1e6), "1e+06");
    assert_string_equal(tri_decimal(-3.4028234e38), "-3.40282e+38");
    assert_string_equal(tri_decimal(INFINITY), "inf");
    assert_string_equal(tri_decimal(NAN), "nan");
    assert_string_equal(tri_decimal(-NAN), "nan"); // what 0 / 0 is on x86
}

// A time limit is written with the number that the user set, a short time without an exponent.
static void test_seconds(void **state) {
    (void)state;
    assert_string_equal(tri_seconds_text(300), "300 s");
    assert_string_equal(tri_seconds_text(0.5), "0.5 s");
    assert_string_equal(tri_seconds_text(12.25), "12.25 s");
    assert_string_equal(tri_seconds_text(1234567), "1234567 s");
    assert_string_equal(tri_seconds_text(0.003), "3 ms");
    assert_string_equal(tri_seconds_text(0.000108), "108 us");
    assert_string_equal(tri_seconds_text(0), "0 s");
}

// Eight texts stay valid at the same time, because one message may have that many.
static void test_eight(void **state) {
    (void)state;
    const char *texts[8];
    for (int i = 0; i < 8; i++) texts[i] = tri_counted(i + 2, "step");
    for (int i = 0; i < 8; i++) {
        char wanted[] = "2 steps";
        wanted[0] = (char)('2' + i);
        assert_string_equal(texts[i], wanted);
    }
}

static void test_units(void **state) {
    static const struct {
        double seconds;
        const char *text;
    } durations[] = {{0, "0.00 us"},
                     {4.2e-3, "4.20 ms"},
                     {0.9996, "1.00 s"},
                     {1.667, "1.67 s"},
                     {119, "119 s"},
                     {180, "3.00 min"},
                     {20556, "5.71 hours"},
                     {86400 * 12.34, "12.3 days"},
                     {86400 * 12345.0, "12,345 days"}};
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        assert_string_equal(tri_duration_text(durations[i].seconds), durations[i].text);
    assert_string_equal(tri_rate_text(3.12e14, "FLOP/s"), "312 TFLOP/s");
    assert_string_equal(tri_rate_text(6e10, "FLOP/s"), "60.0 GFLOP/s");
    assert_string_equal(tri_rate_text(999.6, "B/s"), "1.00 kB/s");
    assert_string_equal(tri_rate_text(1.64e12, "B/s"), "1.64 TB/s");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted), cmocka_unit_test(test_decimal),
        cmocka_unit_test(test_seconds), cmocka_unit_test(test_units), cmocka_unit_test(test_eight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

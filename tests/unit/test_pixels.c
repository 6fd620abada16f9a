// Checks tri_pixels_apply, which maps each byte of an image to its normalised value by a table. If
// the table follows the formula (byte / 255 - shift) / divisor, vector code may compute the values
// instead, but only if it gives the same bits as the table.
#include "tensor/pixels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void fill(tri_pixels *pixels, float shift, float divisor) {
    *pixels = (tri_pixels){0};
    for (int i = 0; i < 256; i++) pixels->values[i] = ((float)i / 255.0f - shift) / divisor;
}

static void expect_values(const tri_pixels *pixels) {
    uint8_t from[1000];
    float to[1001];
    for (int i = 0; i < 1000; i++) from[i] = (uint8_t)(i * 7 + i / 256);
    for (int64_t count = 0; count <= 1000; count += count < 70 ? 1 : 93) {
        for (int i = 0; i <= 1000; i++) to[i] = 77;
        tri_pixels_apply(pixels, from, to, count);
        for (int64_t i = 0; i < count; i++)
            assert_memory_equal(&to[i], &pixels->values[from[i]], sizeof *to);
        assert_true(to[count] == 77);
    }
}

static void test_same_bits(void **state) {
    static const float numbers[][2] = {{0, 1},           {0.1307f, 0.3081f}, {0.2860f, 0.3530f},
                                       {0.485f, 0.229f}, {0.456f, 0.224f},   {0.406f, 0.225f},
                                       {0.5f, 0.5f},     {0.4914f, 0.247f}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        tri_pixels pixels;
        fill(&pixels, numbers[i][0], numbers[i][1]);
        expect_values(&pixels);
        tri_pixels_hint(&pixels, numbers[i][0], numbers[i][1]);
        expect_values(&pixels);
    }
}

static void test_wrong_hints(void **state) {
    tri_pixels pixels;
    fill(&pixels, 0.25f, 2);
    pixels.values[255] = 1; // this value does not follow the formula
    tri_pixels_hint(&pixels, 0.25f, 2);
    assert_false(pixels.is_affine);
    expect_values(&pixels);
    fill(&pixels, 0, 1e-30f); // an extreme divisor, with values up to 1e30
    tri_pixels_hint(&pixels, 0, 1e-30f);
    expect_values(&pixels);
    fill(&pixels, 0, 1e38f);
    tri_pixels_hint(&pixels, 0, 1e38f);
    expect_values(&pixels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_wrong_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

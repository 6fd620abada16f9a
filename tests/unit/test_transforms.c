// Compares transforms of colours and places with torchvision's, byte by byte, and tests what they
// draw at random. The images come from support/make_transform_goldens.py.
#include "data/transform/augment.h"
#include "format/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/message.h"

static tri_safetensors *goldens;
static tri_arena *arena;
static tri_transform_memory memory;
static uint8_t *source;
static tri_shape source_shape;

// Reads a tensor. The caller frees it.
static uint8_t *golden(const tri_safetensors_entry *entry) {
    uint8_t *bytes = malloc((size_t)entry->size_bytes);
    assert_int_equal(tri_safetensors_read(goldens, entry, 0, entry->size_bytes, bytes), TRI_OK);
    return bytes;
}

static int setup(void **state) {
    if (tri_safetensors_open(TRIREME_SOURCE_DIR "/tests/support/goldens/transforms.safetensors",
                             &goldens) != TRI_OK)
        return 1;
    arena = tri_arena_create(NULL, "test");
    const tri_safetensors_entry *entry = tri_safetensors_find(goldens, "source");
    source = golden(entry);
    source_shape = entry->shape;
    return 0;
}

static int teardown(void **state) {
    free(source);
    tri_transform_memory_free(&memory);
    tri_arena_destroy(arena);
    tri_safetensors_close(goldens);
    return 0;
}

static const tri_tree *parse(const char *yaml) {
    tri_tree *tree;
    if (tri_yaml_parse(arena, yaml, strlen(yaml), "test.yaml", &tree) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return tree;
}

static tri_transforms *create(const char *yaml, const tri_shape *image) {
    tri_transforms *transforms;
    if (tri_transforms_create(arena, parse(yaml), TRI_U8, image, true, 1, &transforms) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return transforms;
}

static void apply(const tri_transforms *transforms, const uint8_t *pixels, const tri_shape *shape,
                  int64_t sample, int64_t epoch, uint8_t *out) {
    tri_image image = tri_image_of_planes(pixels, TRI_U8, shape);
    if (tri_transforms_apply(transforms, &image, sample, epoch, true, &memory, out) != TRI_OK)
        fail_msg("%s", tri_error_message());
}

static void expect_bytes(const uint8_t *got, const uint8_t *wanted, int64_t count, int most,
                         const char *name) {
    for (int64_t i = 0; i < count; i++)
        if (abs(got[i] - wanted[i]) > most)
            fail_msg("%s: value %lld is %d and not %d", name, (long long)i, got[i], wanted[i]);
}

// Each list of the goldens; and the same on an image that lies backwards, so that it is no plane.
static void test_lists(void **state) {
    int lists = 0;
    int64_t count = tri_shape_count(&source_shape);
    uint8_t *got = malloc((size_t)count), *turned = malloc((size_t)count);
    tri_image view = tri_image_of_planes(source, TRI_U8, &source_shape);
    view = tri_image_mirror(&view);
    tri_image_read(&view, turned);
    view = tri_image_of_planes(turned, TRI_U8, &source_shape);
    view = tri_image_mirror(&view);
    for (int i = 0; i < tri_safetensors_count(goldens); i++) {
        const tri_safetensors_entry *entry = tri_safetensors_at(goldens, i);
        if (strncmp(entry->name, "list/", 5) != 0) continue;
        uint8_t *wanted = golden(entry);
        const tri_transforms *transforms = create(entry->name + 5, &source_shape);
        assert_true(tri_shape_equal(tri_transforms_shape(transforms), &entry->shape));
        // torchvision blurs by a sum of floats whose order it does not say.
        int most = strstr(entry->name, "gaussian_blur") != NULL;
        apply(transforms, source, &source_shape, 0, 0, got);
        expect_bytes(got, wanted, entry->size_bytes, most, entry->name);
        assert_int_equal(tri_transforms_apply(transforms, &view, 0, 0, true, &memory, got), TRI_OK);
        expect_bytes(got, wanted, entry->size_bytes, most, entry->name);
        free(wanted);
        lists++;
    }
    assert_int_equal(lists, 28);
    free(turned);
    free(got);
}

// Masks are moved like images, by the nearest number, and their colours stay.
static void test_masks(void **state) {
    int masks = 0;
    for (int i = 0; i < tri_safetensors_count(goldens); i++) {
        const tri_safetensors_entry *entry = tri_safetensors_at(goldens, i);
        if (strncmp(entry->name, "mask/", 5) != 0) continue;
        uint8_t *wanted = golden(entry);
        int64_t *got = malloc((size_t)entry->size_bytes * sizeof *got);
        tri_transforms *moving;
        tri_image image = tri_image_of_planes(source, TRI_U8, &source_shape);
        assert_int_equal(tri_transforms_of_masks(arena, create(entry->name + 5, &source_shape), "m",
                                                 TRI_U8, &source_shape, &moving),
                         TRI_OK);
        assert_true(tri_shape_equal(tri_transforms_shape(moving), &entry->shape));
        assert_int_equal(tri_transforms_apply_to_mask(moving, &image, 0, 0, &memory, TRI_I64, got),
                         TRI_OK);
        for (int64_t k = 0; k < entry->size_bytes; k++)
            if (got[k] != wanted[k]) fail_msg("%s: value %lld differs", entry->name, (long long)k);
        free(wanted);
        free(got);
        masks++;
    }
    assert_int_equal(masks, 5);
}

// A mask of any type follows its image through random transforms.
static void test_masks_follow(void **state) {
    enum { HEIGHT = 21, WIDTH = 30, SAMPLES = 40, OUT = 16 * 20 };
    static const char list[] =
        "[{random_crop: {size: [16, 20], padding: 4}}, random_horizontal_flip, "
        "random_vertical_flip, {random_rotation: 30}]";
    tri_shape shape = tri_shape_of(1, HEIGHT, WIDTH);
    uint16_t mask[HEIGHT * WIDTH];
    for (int i = 0; i < HEIGHT * WIDTH; i++) mask[i] = source[i];
    const tri_transforms *images = create(list, &shape);
    tri_transforms *moving;
    assert_int_equal(tri_transforms_of_masks(arena, images, "m", TRI_U16, &shape, &moving), TRI_OK);
    for (int i = 0; i < SAMPLES; i++) {
        uint8_t pixels[OUT];
        float numbers[OUT];
        tri_image image = tri_image_of_planes(mask, TRI_U16, &shape);
        apply(images, source, &shape, i, 1, pixels);
        assert_int_equal(
            tri_transforms_apply_to_mask(moving, &image, i, 1, &memory, TRI_F32, numbers), TRI_OK);
        for (int k = 0; k < OUT; k++) assert_true(numbers[k] == (float)pixels[k]);
    }
    shape.dims[2]++;
    assert_int_equal(tri_transforms_of_masks(arena, images, "m", TRI_U16, &shape, &moving),
                     TRI_BAD_INPUT);
    message_check(tri_error_message(), "'m'|21|31|21|30");
    images = create("[rand_augment]", &source_shape);
    assert_int_equal(tri_transforms_of_masks(arena, images, "m", TRI_U8, &source_shape, &moving),
                     TRI_BAD_INPUT);
    message_check(tri_error_message(), "'rand_augment'|'m'");
}

static const int64_t fills[] = {10, 20, 30};

// Applies an operation of rand_augment to `pixels`.
static void augment(const uint8_t *pixels, int which, double magnitude, uint8_t *out) {
    tri_image image = tri_image_of_planes(pixels, TRI_U8, &source_shape);
    tri_transform_call call = {
        .memory = &memory.images[0], .rows = &memory.rows, .spare = &memory.spare};
    assert_int_equal(tri_augment_apply(&call, &image, (tri_augment)which, magnitude,
                                       TRI_AFFINE_NEAREST, (tri_ints){fills, 3}),
                     TRI_OK);
    tri_image_read(&image, out);
}

static double magnitude_of(const char *table, int which, int bin) {
    tri_image image = tri_image_of_planes(source, TRI_U8, &source_shape);
    const tri_augment_range *ranges =
        *table == 'r' ? tri_rand_augment_ranges : tri_trivial_augment_ranges;
    return tri_augment_magnitude(&ranges[which], bin, 31, &image);
}

static void test_operations(void **state) {
    int operations = 0;
    uint8_t *got = malloc((size_t)tri_shape_count(&source_shape));
    for (int i = 0; i < tri_safetensors_count(goldens); i++) {
        const tri_safetensors_entry *entry = tri_safetensors_at(goldens, i);
        char table[16];
        int which, bin, sign;
        if (sscanf(entry->name, "%15[a-z]/%d/%d/%d", table, &which, &bin, &sign) != 4) continue;
        uint8_t *wanted = golden(entry);
        augment(source, which, sign * magnitude_of(table, which, bin), got);
        expect_bytes(got, wanted, entry->size_bytes, 0, entry->name);
        free(wanted);
        operations++;
    }
    assert_int_equal(operations, 50);
    free(got);
}

// An operation behind another reads what that one made, as if it were an image of its own.
static void test_operations_in_turn(void **state) {
    enum { OPERATIONS = TRI_AUGMENT_EQUALIZE + 1 };
    size_t bytes = (size_t)tri_shape_count(&source_shape);
    uint8_t *first = malloc(bytes), *both = malloc(bytes), *got = malloc(bytes);
    for (int i = 0; i < OPERATIONS * OPERATIONS; i++) {
        int one = i / OPERATIONS, two = i % OPERATIONS;
        augment(source, one, magnitude_of("rand", one, 9), first);
        augment(first, two, magnitude_of("rand", two, 9), both);
        tri_image image = tri_image_of_planes(source, TRI_U8, &source_shape);
        tri_transform_call call = {
            .memory = &memory.images[1], .rows = &memory.rows, .spare = &memory.spare};
        for (int k = 0; k < 2; k++) {
            int which = k ? two : one;
            assert_int_equal(tri_augment_apply(&call, &image, (tri_augment)which,
                                               magnitude_of("rand", which, 9), TRI_AFFINE_NEAREST,
                                               (tri_ints){fills, 3}),
                             TRI_OK);
        }
        tri_image_read(&image, got);
        char what[32];
        snprintf(what, sizeof what, "operations %d and %d", one, two);
        expect_bytes(got, both, bytes, 0, what);
    }
    free(first);
    free(both);
    free(got);
}

// rand_augment applies each operation equally often, and each sign of it.
static void test_operations_drawn(void **state) {
    enum { DRAWS = 2800, EACH = DRAWS / TRI_AUGMENTS };
    size_t size = (size_t)tri_shape_count(&source_shape);
    uint8_t *known = malloc(size * TRI_AUGMENTS * 2), *got = malloc(size);
    int counts[TRI_AUGMENTS][2] = {{0}};
    const tri_transforms *transforms =
        create("[{rand_augment: {num_ops: 1, fill: [10, 20, 30]}}]", &source_shape);
    for (int k = 0; k < 2 * TRI_AUGMENTS; k++) {
        double magnitude = magnitude_of("rand", k / 2, 9);
        augment(source, k / 2, k % 2 ? -magnitude : magnitude, known + (size_t)k * size);
    }
    for (int i = 0; i < DRAWS; i++) {
        int found = 0;
        apply(transforms, source, &source_shape, i, 3, got);
        while (found < 2 * TRI_AUGMENTS && memcmp(known + (size_t)found * size, got, size)) found++;
        assert_true(found < 2 * TRI_AUGMENTS);
        counts[found / 2][found % 2]++;
    }
    for (int which = 0; which < TRI_AUGMENTS; which++) {
        int both = counts[which][0] + counts[which][1];
        if (both < EACH * 3 / 4 || both > EACH * 5 / 4)
            fail_msg("operation %d is drawn %d times of %d", which, both, DRAWS);
        if (tri_rand_augment_ranges[which].is_signed)
            assert_true(counts[which][0] > EACH / 3 && counts[which][1] > EACH / 3);
    }
    free(known);
    free(got);
}

// Draws lie in the range, reach near its ends, and have its mean. Of `value` bytes of 100, the
// brightness that was drawn is what becomes of them.
static void test_jitter_drawn(void **state) {
    enum { DRAWS = 4000 };
    static const uint8_t grey[3] = {100, 100, 100};
    tri_shape one = tri_shape_of(3, 1, 1);
    const tri_transforms *transforms = create("[{color_jitter: {brightness: 0.4}}]", &one);
    double sum = 0, least = 255, most = 0;
    for (int i = 0; i < DRAWS; i++) {
        uint8_t out[3];
        apply(transforms, grey, &one, i, 0, out);
        sum += out[0];
        least = out[0] < least ? out[0] : least;
        most = out[0] > most ? out[0] : most;
    }
    assert_true(least >= 60 && least <= 61 && most >= 138 && most <= 140);
    assert_true(fabs(sum / DRAWS - 99.5) < 1.5);
}

// A tenth of the images become grey; and the width of a blur lies between its limits and reaches
// near them: of one bright pixel, the less remains in its place the wider the blur.
static void test_chances(void **state) {
    enum { DRAWS = 2000, SIDE = 9, MIDDLE = SIDE * SIDE / 2 };
    static const uint8_t red[3] = {200, 10, 10};
    tri_shape one = tri_shape_of(3, 1, 1), square = tri_shape_of(1, SIDE, SIDE);
    const tri_transforms *grey = create("[random_grayscale]", &one),
                         *blur = create("[{gaussian_blur: {kernel_size: 9, sigma: [0.5, 2]}}]",
                                        &square);
    uint8_t pixels[SIDE * SIDE] = {0}, out[SIDE * SIDE];
    int greys = 0, least = 255, most = 0;
    pixels[MIDDLE] = 255;
    for (int i = 0; i < DRAWS; i++) {
        apply(grey, red, &one, i, 0, out);
        greys += out[0] == out[1];
        apply(blur, pixels, &square, i, 0, out);
        least = out[MIDDLE] < least ? out[MIDDLE] : least;
        most = out[MIDDLE] > most ? out[MIDDLE] : most;
    }
    assert_true(abs(greys - DRAWS / 10) < 45);
    // 255 / (sum of exp(-k * k / 2 / sigma / sigma) for k from -4 to 4) squared, at both limits.
    assert_true(least >= 10 && least <= 11 && most >= 154 && most <= 158);
}

// The four changes come in all 24 orders. With fixed factors, several orders give the same image,
// but not as few as one order would.
static void test_jitter_orders(void **state) {
    enum { DRAWS = 500, MOST = 24 };
    size_t size = (size_t)tri_shape_count(&source_shape);
    uint8_t *seen = malloc(size * MOST), *got = malloc(size);
    int kinds = 0;
    const tri_transforms *transforms =
        create("[{color_jitter: {brightness: [1.6, 1.6], contrast: [1.7, 1.7], saturation: [1.9, "
               "1.9], hue: [0.3, 0.3]}}]",
               &source_shape);
    for (int i = 0; i < DRAWS; i++) {
        int found = 0;
        apply(transforms, source, &source_shape, i, 0, got);
        while (found < kinds && memcmp(seen + (size_t)found * size, got, size)) found++;
        if (found < kinds) continue;
        assert_true(kinds < MOST);
        memcpy(seen + (size_t)kinds++ * size, got, size);
    }
    assert_int_equal(kinds, MOST);
    free(seen);
    free(got);
}

// The angle is uniform: a dark image with one bright pixel far to the right of the middle, which
// goes up or down.
static void test_rotation_drawn(void **state) {
    enum { SIDE = 101, DRAWS = 600, REACH = 45 };
    static uint8_t image[SIDE * SIDE], out[SIDE * SIDE];
    tri_shape shape = tri_shape_of(1, SIDE, SIDE);
    const tri_transforms *transforms = create("[{random_rotation: 20}]", &shape);
    double sum = 0, squares = 0;
    for (int y = -1; y <= 1; y++) // so that the nearest pixels of one at least are bright
        for (int x = -1; x <= 1; x++) image[(SIDE / 2 + y) * SIDE + SIDE / 2 + REACH + x] = 255;
    for (int i = 0; i < DRAWS; i++) {
        double x = 0, y = 0, n = 0;
        apply(transforms, image, &shape, i, 0, out);
        for (int p = 0; p < SIDE * SIDE; p++)
            if (out[p]) n++, x += p % SIDE - SIDE / 2, y += SIDE / 2 - p / SIDE;
        double degrees = atan2(y / n, x / n) * 180 / M_PI;
        assert_true(fabs(degrees) < 21);
        sum += degrees;
        squares += degrees * degrees;
    }
    assert_true(fabs(sum / DRAWS) < 2);
    assert_true(fabs(sqrt(squares / DRAWS) - 20 / sqrt(3)) < 1);
}

// Half of the images lose a rectangle, whose area is a part of the image's as `scale` says.
static void test_erasing_drawn(void **state) {
    enum { SIDE = 64, DRAWS = 2000, PIXELS = SIDE * SIDE };
    static uint8_t image[PIXELS], out[PIXELS];
    memset(image, 255, sizeof image);
    tri_shape shape = tri_shape_of(1, SIDE, SIDE);
    const tri_transforms *transforms =
        create("[{random_erasing: {scale: [0.1, 0.2], value: 7}}]", &shape);
    int erased = 0;
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) {
        int count = 0, top = SIDE, bottom = -1, left = SIDE, right = -1;
        apply(transforms, image, &shape, i, 0, out);
        for (int p = 0; p < PIXELS; p++) {
            if (out[p] == 255) continue;
            int x = p % SIDE, y = p / SIDE;
            assert_int_equal(out[p], 7);
            top = y < top ? y : top;
            bottom = y > bottom ? y : bottom;
            left = x < left ? x : left;
            right = x > right ? x : right;
            count++;
        }
        if (count == 0) continue;
        double part = (double)count / PIXELS, ratio = (bottom - top + 1.0) / (right - left + 1.0);
        assert_int_equal(count, (bottom - top + 1) * (right - left + 1));
        assert_true(part > 0.09 && part < 0.21 && ratio > 0.27 && ratio < 3.6);
        sum += part;
        erased++;
    }
    assert_true(abs(erased - DRAWS / 2) < 100);
    assert_true(fabs(sum / erased - 0.15) < 0.005);
    transforms = create("[{random_erasing: {probability: 1, noise: true}}]", &shape);
    apply(transforms, image, &shape, 0, 0, out);
    int kinds = 0;
    bool seen[256] = {0};
    for (int p = 0; p < PIXELS; p++) {
        kinds += !seen[out[p]];
        seen[out[p]] = true;
    }
    assert_true(kinds > 40);
}

// A sample's image depends on the sample and the epoch, and on nothing that came before.
static void test_repeats(void **state) {
    enum { SAMPLES = 12 };
    size_t size = (size_t)tri_shape_count(&source_shape);
    uint8_t *first = malloc(size * SAMPLES), *again = malloc(size);
    const tri_transforms *transforms =
        create("[random_rotation, {color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, "
               "hue: 0.1}}, random_grayscale, gaussian_blur, {rand_augment: 3}, "
               "trivial_augment_wide, random_erasing]",
               &source_shape);
    int changed = 0;
    tri_pixel_scale scale; // bytes stay bytes, so that a device can normalise them
    assert_true(tri_transforms_scale(transforms, &scale));
    for (int i = 0; i < SAMPLES; i++)
        apply(transforms, source, &source_shape, i, 5, first + (size_t)i * size);
    for (int i = SAMPLES - 1; i >= 0; i--) {
        apply(transforms, source, &source_shape, i, 6, again);
        changed += memcmp(first + (size_t)i * size, again, size) != 0;
        apply(transforms, source, &source_shape, i, 5, again);
        assert_memory_equal(first + (size_t)i * size, again, size);
    }
    assert_int_equal(changed, SAMPLES);
    free(first);
    free(again);
}

static void test_refuses(void **state) {
    static const struct {
        const char *yaml;
        tri_dtype stored;
        int64_t channels;
        const char *parts;
    } rows[] = {
        {"[{color_jitter: {hue: 0.6}}]", TRI_U8, 3, "hue|0.5"},
        {"[{color_jitter: {hue: -0.1}}]", TRI_U8, 3, "'hue'"},
        {"[{color_jitter: {contrast: [2, 1]}}]", TRI_U8, 3, "'contrast'"},
        {"[{color_jitter: {brightnes: 1}}]", TRI_U8, 3, "brightness"},
        {"[{color_jitter: 0.1}]", TRI_U8, 2, "color_jitter|2 channels"},
        {"[{color_jitter: 0.1}]", TRI_F32, 3, "'color_jitter'|F32"},
        {"[{grayscale: 2}]", TRI_U8, 3, "num_output_channels"},
        {"[{random_grayscale: 1.5}]", TRI_U8, 3, "probability"},
        {"[{random_rotation: {degrees: [3, 1]}}]", TRI_U8, 3, "'degrees'"},
        {"[{random_rotation: {fill: [1, 2]}}]", TRI_U8, 3, "random_rotation|'fill'"},
        {"[{gaussian_blur: 4}]", TRI_U8, 3, "'kernel_size'"},
        {"[{gaussian_blur: [3, 63]}]", TRI_U8, 3, "'kernel_size'"},
        {"[{gaussian_blur: {sigma: [2, 1]}}]", TRI_U8, 3, "'sigma'"},
        {"[{random_erasing: {ratio: [2, 1]}}]", TRI_U8, 3, "'ratio'"},
        {"[{random_erasing: {value: [1, 2]}}]", TRI_U8, 3, "random_erasing|'value'"},
        {"[{random_erasing: {value: 256}}]", TRI_U8, 3, "value|255"},
        {"[{rand_augment: {magnitude: 31}}]", TRI_U8, 3, "'magnitude'|31"},
        {"[{rand_augment: {num_magnitude_bins: 9}}]", TRI_U8, 3, "num_magnitude_bins=9"},
        {"[{rand_augment: 0}]", TRI_U8, 3, "num_ops"},
        {"[trivial_augment_wide]", TRI_U8, 4, "trivial_augment_wide|4 channels"},
        {"[normalize, {color_jitter: 0.1}]", TRI_U8, 3, "'color_jitter'|'normalize'"},
        {"[normalize, random_erasing]", TRI_U8, 3, "'random_erasing'|'normalize'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_shape shape = tri_shape_of(rows[i].channels, 21, 30);
        tri_transforms *transforms;
        assert_int_equal(tri_transforms_create(arena, parse(rows[i].yaml), rows[i].stored, &shape,
                                               true, 1, &transforms),
                         TRI_BAD_INPUT);
        message_check(tri_error_message(), rows[i].parts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_operations_in_turn),
        cmocka_unit_test(test_jitter_drawn),
        cmocka_unit_test(test_chances),
        cmocka_unit_test(test_jitter_orders),
        cmocka_unit_test(test_rotation_drawn),
        cmocka_unit_test(test_erasing_drawn),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_operations_drawn),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_follow),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

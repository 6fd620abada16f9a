// Compares decoded and scaled images with Pillow's, byte by byte, and decodes damaged files. The
// images come from support/make_image_goldens.py.
#include "data/transform/kind.h"
#include "format/image/image.h"
#include "format/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static tri_safetensors *goldens;

static int setup(void **state) {
    return tri_safetensors_open(TRIREME_SOURCE_DIR "/tests/support/goldens/images.safetensors",
                                &goldens) != TRI_OK;
}

static int teardown(void **state) {
    tri_safetensors_close(goldens);
    return 0;
}

// Reads the tensor `kind`/`name`. The caller frees it.
static uint8_t *golden(const char *kind, const char *name, tri_shape *shape) {
    char full[64];
    snprintf(full, sizeof full, "%s%s%s", kind, *name ? "/" : "", name);
    const tri_safetensors_entry *entry = tri_safetensors_find(goldens, full);
    if (!entry) fail_msg("the goldens have no %s", full);
    uint8_t *bytes = malloc((size_t)entry->size_bytes + 1);
    assert_int_equal(tri_safetensors_read(goldens, entry, 0, entry->size_bytes, bytes), TRI_OK);
    *shape = entry->shape;
    return bytes;
}

static void expect_image(const tri_image *image, const uint8_t *wanted, const tri_shape *shape,
                         const char *name) {
    tri_shape got = tri_image_shape(image);
    if (!tri_shape_equal(&got, shape)) fail_msg("%s has another shape", name);
    int64_t count = tri_shape_count(shape);
    uint8_t *bytes = malloc((size_t)count);
    tri_image_read(image, bytes);
    for (int64_t i = 0; i < count; i++)
        if (bytes[i] != wanted[i])
            fail_msg("%s: value %lld is %d and not %d", name, (long long)i, bytes[i], wanted[i]);
    free(bytes);
}

// Each file of each format, and then every shorter piece of it: a piece is damaged, or gives an
// image of the same size.
static void test_decode(void **state) {
    tri_image_decoder *decoder;
    int files = 0;
    assert_int_equal(tri_image_decoder_create(&decoder), TRI_OK);
    for (int i = 0; i < tri_safetensors_count(goldens); i++) {
        const char *name = tri_safetensors_at(goldens, i)->name;
        if (strncmp(name, "file/", 5) != 0) continue;
        tri_shape size, shape;
        uint8_t *file = golden("file", name + 5, &size),
                *wanted = golden("pixels", name + 5, &shape);
        tri_image image;
        if (tri_image_decode(decoder, file, (size_t)size.dims[0], name, &image) != TRI_OK)
            fail_msg("%s", tri_error_message());
        expect_image(&image, wanted, &shape, name);
        int damaged = 0, pieces = 0;
        for (int64_t piece = 0; piece < size.dims[0]; piece += 1 + piece / 16, pieces++) {
            uint8_t *copy = malloc((size_t)piece + 1);
            memcpy(copy, file, (size_t)piece);
            tri_status status = tri_image_decode(decoder, copy, (size_t)piece, name, &image);
            assert_true(status == TRI_CORRUPT || status == TRI_OK);
            damaged += status == TRI_CORRUPT;
            if (status == TRI_CORRUPT) assert_non_null(strstr(tri_error_message(), name));
            free(copy);
        }
        assert_true(damaged >= pieces - 2); // the last bytes of some formats carry no pixels
        free(file);
        free(wanted);
        files++;
    }
    assert_int_equal(files, 20);
    tri_image_decoder_destroy(decoder);
}

static void test_refuses(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } rows[] = {
        {"", 0, "is empty"},
        {"GIF89a and more", 15, "is no JPEG"},
        {"P6 65536 2 255\n", 16, "65536 x 2"},
        {"P6 65535 65535 255\n", 20, "65535 x 65535"},
        {"P5 2 2 65535\n12345678", 22, "a PGM with values up to 65535"},
        {"P6 2 2 65536\n", 14, "up to 65536"},
        {"P6 2 2 65535\n1234567890", 24, "cut off"},
        {"P6 2 2", 6, "cut off"},
        {"P6 2 2 255\n12345678901", 22, "cut off"},
        {"P6 0 2 255\n", 12, "0 x 2"},
        {"\xff\xd8\xff\xe2\x0c\x58 cut off", 14, "damaged JPEG"},
    };
    tri_image_decoder *decoder;
    assert_int_equal(tri_image_decoder_create(&decoder), TRI_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_image image;
        assert_int_equal(tri_image_decode(decoder, rows[i].bytes, rows[i].size, "x.ppm", &image),
                         TRI_CORRUPT);
        if (!strstr(tri_error_message(), rows[i].words))
            fail_msg("'%s' lacks '%s'", tri_error_message(), rows[i].words);
    }
    tri_image_decoder_destroy(decoder);
}

// Values up to another number than 255, as Pillow 9.4 converts them.
static void test_largest_value(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        uint8_t pixel[3];
    } rows[] = {
        {"P5 1 1 15\n\x03", 11, {51, 51, 51}},
        {"P5 1 1 15\n\xc8", 11, {255, 255, 255}},
        {"P6 1 1 100\n\x01\x32\x64", 14, {3, 128, 255}},
        {"P6 1 1 1023\n\0\x64\1\xf4\3\xff", 18, {25, 125, 255}},
    };
    tri_image_decoder *decoder;
    tri_shape shape = tri_shape_of(3, 1, 1);
    assert_int_equal(tri_image_decoder_create(&decoder), TRI_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_image image;
        if (tri_image_decode(decoder, rows[i].bytes, rows[i].size, "x.ppm", &image) != TRI_OK)
            fail_msg("%s", tri_error_message());
        expect_image(&image, rows[i].pixel, &shape, rows[i].bytes);
    }
    tri_image_decoder_destroy(decoder);
}

// Scales the source as planes, as pixels of four bytes and mirrored twice, with which it lies
// backwards in memory: the same bytes each time.
static void test_scale(void **state) {
    tri_shape shape;
    uint8_t *source = golden("source", "", &shape);
    int64_t height = shape.dims[1], width = shape.dims[2], plane = height * width;
    uint8_t *pixels = malloc((size_t)plane * 4), *mirrored = malloc((size_t)plane * 3);
    tri_image planes = tri_image_of_planes(source, TRI_U8, &shape);
    for (int64_t i = 0; i < plane; i++)
        for (int c = 0; c < 4; c++) pixels[4 * i + c] = c < 3 ? source[c * plane + i] : 77;
    tri_image flipped = tri_image_mirror(&planes);
    flipped = tri_image_turn_over(&flipped);
    tri_image_read(&flipped, mirrored);
    flipped = tri_image_of_planes(mirrored, TRI_U8, &shape);
    flipped = tri_image_mirror(&flipped);
    flipped = tri_image_turn_over(&flipped);
    const tri_image sources[] = {planes, tri_image_of_pixels(pixels, 3, height, width, 4), flipped};
    tri_transform_memory memory = {0};
    int results = 0;
    for (int i = 0; i < tri_safetensors_count(goldens); i++) {
        const char *name = tri_safetensors_at(goldens, i)->name, *slash = strchr(name, '/');
        if (*name != 'b') continue; // bilinear or bicubic
        tri_shape wanted_shape;
        uint8_t *wanted = golden(name, "", &wanted_shape);
        tri_resize_filter filter = slash - name == 7 ? TRI_RESIZE_BICUBIC : TRI_RESIZE_BILINEAR;
        for (int s = 0; s < 3; s++) {
            tri_image image = sources[s];
            tri_transform_call call = {.memory = &memory.images[0], .rows = &memory.rows};
            assert_int_equal(tri_transform_scale(&call, &image, wanted_shape.dims[1],
                                                 wanted_shape.dims[2], filter),
                             TRI_OK);
            expect_image(&image, wanted, &wanted_shape, name);
        }
        free(wanted);
        results++;
    }
    assert_int_equal(results, 12);
    tri_transform_memory_free(&memory);
    free(pixels);
    free(mirrored);
    free(source);
}

// Pixels of four bytes, which may be scaled in pairs, become the same bytes as planes, at all
// sizes.
static void test_scale_sizes(void **state) {
    enum { SIDE = 70, CASES = 300 };
    static uint8_t pixels[SIDE * SIDE * 4], of_planes[3 * SIDE * SIDE], of_pixels[3 * SIDE * SIDE];
    tri_transform_memory memory = {0};
    uint32_t random = 1;
    for (int i = 0; i < CASES; i++) {
        int64_t sides[4]; // height and width, before and after
        for (int k = 0; k < 4; k++)
            sides[k] = 1 + (int64_t)((random = random * 1664525 + 1013904223) >> 16) % SIDE;
        for (size_t k = 0; k < sizeof pixels; k++)
            pixels[k] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
        tri_image image = tri_image_of_pixels(pixels, 3, sides[0], sides[1], 4);
        tri_image_read(&image, of_planes);
        tri_shape shape = tri_shape_of(3, sides[0], sides[1]);
        tri_image planes = tri_image_of_planes(of_planes, TRI_U8, &shape);
        tri_transform_call call = {.memory = &memory.images[0], .rows = &memory.rows};
        tri_resize_filter filter = i % 2 ? TRI_RESIZE_BICUBIC : TRI_RESIZE_BILINEAR;
        assert_int_equal(tri_transform_scale(&call, &image, sides[2], sides[3], filter), TRI_OK);
        tri_image_read(&image, of_pixels);
        call.memory = &memory.images[1];
        assert_int_equal(tri_transform_scale(&call, &planes, sides[2], sides[3], filter), TRI_OK);
        tri_image_read(&planes, of_planes);
        assert_memory_equal(of_pixels, of_planes, (size_t)(3 * sides[2] * sides[3]));
    }
    tri_transform_memory_free(&memory);
}

// A rectangle that reaches over each edge of a 2 x 3 image, and one outside of it.
static void test_cut(void **state) {
    static const uint8_t source[6] = {1, 2, 3, 4, 5, 6};
    static const struct {
        int64_t top, left, height, width;
        uint8_t wanted[12];
    } rows[] = {
        {0, 1, 2, 2, {2, 3, 5, 6}}, {-1, -1, 2, 2, {0, 0, 0, 1}},
        {1, 2, 2, 2, {6, 0, 0, 0}}, {-1, -1, 3, 4, {0, 0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6}},
        {5, 7, 2, 2, {0, 0, 0, 0}}, {-4, 0, 2, 2, {0, 0, 0, 0}},
    };
    tri_transform_memory memory = {0};
    tri_shape shape = tri_shape_of(1, 2, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_image image = tri_image_of_planes(source, TRI_U8, &shape);
        tri_transform_call call = {.memory = &memory.images[0], .rows = &memory.rows};
        assert_int_equal(tri_transform_cut(&call, &image, rows[i].top, rows[i].left, rows[i].height,
                                           rows[i].width),
                         TRI_OK);
        tri_shape cut = tri_shape_of(1, rows[i].height, rows[i].width);
        expect_image(&image, rows[i].wanted, &cut, "a cut");
    }
    tri_transform_memory_free(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_largest_value), cmocka_unit_test(test_scale),
        cmocka_unit_test(test_scale_sizes),   cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

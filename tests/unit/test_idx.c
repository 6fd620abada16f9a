// Tests reading IDX files: raw and compressed ones, valid ones and ones that are damaged.
#include "format/idx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static char path[64];

static int setup(void **state) {
    snprintf(path, sizeof path, "/tmp/trireme-idx-XXXXXX");
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int teardown(void **state) { return unlink(path); }

static void put(const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

// Writes the data gzip-compressed: for `mode` "wb" to a new file, for "ab" as one more gzip member
// at the end of the file.
static void put_gzip(const void *data, size_t size, const char *mode) {
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    if (size) assert_int_equal(gzwrite(file, data, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
}

static void refuse(tri_idx_kind kind, tri_status status, const char *words) {
    tri_idx idx;
    assert_int_equal(tri_idx_read(path, kind, INT64_MAX, &idx), status);
    assert_null(idx.data);
    if (!strstr(tri_error_message(), words))
        fail_msg("'%s' lacks '%s'", tri_error_message(), words);
    assert_non_null(strstr(tri_error_message(), path));
}

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 10, 20, 30, 40};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9};

static void expect_images(void) {
    tri_idx idx;
    assert_int_equal(tri_idx_read(path, TRI_IDX_IMAGES, INT64_MAX, &idx), TRI_OK);
    tri_shape shape = tri_shape_of(2, 2, 1);
    assert_true(tri_shape_equal(&idx.shape, &shape));
    assert_int_equal(idx.dtype, TRI_U8);
    assert_int_equal(idx.size_bytes, 4);
    assert_memory_equal(idx.data, images + 16, 4);
    tri_idx_free(&idx);
}

static void test_reads(void **state) {
    put(images, sizeof images);
    expect_images();
    put_gzip(images, sizeof images, "wb");
    expect_images();
    // Two gzip members, of which the first one ends inside the IDX header.
    put_gzip(images, 5, "wb");
    put_gzip(images + 5, sizeof images - 5, "ab");
    expect_images();
    put_gzip("", 0, "ab");
    expect_images();

    tri_idx idx;
    put(labels, sizeof labels);
    assert_int_equal(tri_idx_read(path, TRI_IDX_LABELS, INT64_MAX, &idx), TRI_OK);
    assert_memory_equal(idx.data, "\7\10\11", 3);
    tri_idx_free(&idx);
}

static void test_types(void **state) {
    tri_idx idx;
    const uint8_t floats[] = {0, 0, 13, 1, 0, 0, 0, 2, 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0};
    put(floats, sizeof floats);
    assert_int_equal(tri_idx_read(path, TRI_IDX_ANY, INT64_MAX, &idx), TRI_OK);
    assert_true(((float *)idx.data)[0] == 1.0f && ((float *)idx.data)[1] == -2.0f);
    tri_idx_free(&idx);
    const uint8_t shorts[] = {0, 0, 11, 1, 0, 0, 0, 1, 0xff, 0xfe};
    put(shorts, sizeof shorts);
    assert_int_equal(tri_idx_read(path, TRI_IDX_ANY, INT64_MAX, &idx), TRI_OK);
    assert_int_equal(((int16_t *)idx.data)[0], -2);
    tri_idx_free(&idx);
    const uint8_t none[] = {0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 5};
    put(none, sizeof none);
    assert_int_equal(tri_idx_read(path, TRI_IDX_ANY, INT64_MAX, &idx), TRI_OK);
    assert_int_equal(idx.size_bytes, 0);
    tri_idx_free(&idx);
    put(shorts, sizeof shorts);
    refuse(TRI_IDX_IMAGES, TRI_BAD_INPUT, "swapped");
}

// Reads a file that is larger than the reader's buffer, and hard to compress.
static void test_large(void **state) {
    enum { COUNT = 300000 };
    uint8_t *file = malloc(COUNT + 8);
    assert_non_null(file);
    memcpy(file, (const uint8_t[]){0, 0, 8, 1, 0, COUNT >> 16, COUNT >> 8 & 255, COUNT & 255}, 8);
    uint32_t random = 1;
    for (int i = 0; i < COUNT; i++)
        file[8 + i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
    put_gzip(file, COUNT + 8, "wb");
    tri_idx idx;
    assert_int_equal(tri_idx_read(path, TRI_IDX_LABELS, INT64_MAX, &idx), TRI_OK);
    assert_memory_equal(idx.data, file + 8, COUNT);
    tri_idx_free(&idx);

    assert_int_equal(truncate(path, 200000), 0);
    refuse(TRI_IDX_LABELS, TRI_CORRUPT, "truncated");
    free(file);
}

static void test_refuses(void **state) {
    tri_idx idx;
    assert_int_equal(tri_idx_read("/nowhere/train-images", TRI_IDX_ANY, INT64_MAX, &idx),
                     TRI_NOT_FOUND);
    put("", 0);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "truncated");
    put(images, 10);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "truncated");
    put(images, sizeof images - 1);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "it has 4 bytes, ");
    put("\0\0\10\3hello, world", 16);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "overflows");
    put("\0\0\10\1\377\377\377\377", 8);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "it has 4294967295 bytes");
    put_gzip("\0\0\10\1\377\377\377\377", 8, "wb");
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "it has 4294967295 bytes");
    put("not an idx file at all", 22);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "magic number is 0x6e6f7420");
    put("\0\0\7\1\0\0\0\0", 8);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "magic");
    put("\0\0\10\0\0\0\0\0", 8);
    refuse(TRI_IDX_ANY, TRI_CORRUPT, "magic");
    put("\0\0\10\7\0\0\0\0", 8);
    refuse(TRI_IDX_ANY, TRI_UNSUPPORTED, "7 axes");
    put("\0\0\10\2\0\0\0\1\0\0\0\0", 12);
    refuse(TRI_IDX_IMAGES, TRI_BAD_INPUT, "2 axes");
    put(labels, sizeof labels);
    refuse(TRI_IDX_IMAGES, TRI_BAD_INPUT, "swapped");
    put(images, sizeof images);
    refuse(TRI_IDX_LABELS, TRI_BAD_INPUT, "swapped");
}

static void test_refuses_tail_and_damage(void **state) {
    uint8_t longer[sizeof images + 1] = {0};
    memcpy(longer, images, sizeof images);
    put(longer, sizeof longer);
    refuse(TRI_IDX_IMAGES, TRI_CORRUPT, "too many");
    put_gzip(longer, sizeof longer, "wb");
    refuse(TRI_IDX_IMAGES, TRI_CORRUPT, "too many");
    put_gzip(images, sizeof images, "wb");
    put_gzip("x", 1, "ab");
    refuse(TRI_IDX_IMAGES, TRI_CORRUPT, "too many");

    put_gzip(images, sizeof images, "wb");
    FILE *file = fopen(path, "r+b");
    uint8_t bytes[128];
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t cut = 1; cut < size; cut++) {
        tri_idx idx;
        put(bytes, size - cut);
        assert_int_equal(tri_idx_read(path, TRI_IDX_IMAGES, INT64_MAX, &idx), TRI_CORRUPT);
    }
    bytes[size - 6] ^= 1; // changes gzip's checksum
    put(bytes, size);
    refuse(TRI_IDX_IMAGES, TRI_CORRUPT, "checksum");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_tail_and_damage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests reading and writing safetensors files, and that files with any kind of damage are refused.
#include "format/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

static int setup(void **state) {
    snprintf(path, sizeof path, "/tmp/trireme-safetensors-XXXXXX");
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int teardown(void **state) { return unlink(path); }

// Writes a file of three parts: `count` (the header's size as the file claims it), the header, and
// the data.
static void put(uint64_t count, const char *header, const void *data, size_t data_bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(&count, 8, 1, file);
    fwrite(header, 1, strlen(header), file);
    fwrite(data, 1, data_bytes, file);
    fclose(file);
}

static void expect(const char *header, size_t data_bytes, tri_status status, const char *words) {
    static const char zeros[64];
    put(strlen(header), header, zeros, data_bytes);
    tri_safetensors *file;
    assert_int_equal(tri_safetensors_open(path, &file), status);
    if (status == TRI_OK) {
        tri_safetensors_close(file);
        return;
    }
    assert_null(file);
    if (!strstr(tri_error_message(), words))
        fail_msg("'%s' lacks '%s'", tri_error_message(), words);
    assert_non_null(strstr(tri_error_message(), path));
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void test_accepts(void **state) {
    expect("{}", 0, TRI_OK, "");
    expect("{\"__metadata__\":{\"format\":\"pt\"}}", 0, TRI_OK, "");
    expect("  \n\t{" T("a", "F32", "[2]", 0, 8) "}   ", 8, TRI_OK, "");
    expect("{" T("scalar", "F64", "[]", 0, 8) "}", 8, TRI_OK, "");
    expect("{" T("empty", "F32", "[3,0]", 0, 0) "," T("a", "I8", "[1]", 0,
                                                      1) "," T("z", "I8", "[0]", 1, 1) "}",
           1, TRI_OK, "");
    expect("{" T("b", "BF16", "[2]", 4, 8) "," T("a", "F32", "[1]", 0, 4) "}", 8, TRI_OK, "");
    expect("{" T("f8", "F8_E5M2", "[1]", 0, 1) "," T("g8", "F8_E4M3", "[1]", 1,
                                                     2) "," T("o", "BOOL", "[1]", 2, 3) "}",
           3, TRI_OK, "");
}

static void test_refuses(void **state) {
    expect("{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, TRI_CORRUPT,
           "'b' overlaps tensor 'a'");
    expect("{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 12, 20) "}", 20, TRI_CORRUPT,
           "hole of 4 bytes");
    expect("{" T("a", "F32", "[2]", 4, 12) "}", 12, TRI_CORRUPT, "hole");
    expect("{" T("a", "F32", "[2]", 0, 8) "}", 9, TRI_CORRUPT, "1 bytes too many");
    expect("{}", 3, TRI_CORRUPT, "3 bytes too many");
    expect("{" T("a", "F32", "[2]", 0, 8) "}", 7, TRI_CORRUPT, "truncated: tensor 'a'");
    expect("{" T("a", "F32", "[2]", 0, 8) "," T("a", "F32", "[2]", 8, 16) "}", 16, TRI_CORRUPT,
           "twice");
    expect("{\"a\":{\"dtype\":\"I8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
           TRI_CORRUPT, "twice");
    expect("{" T("a", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, TRI_CORRUPT, "overflows");
    expect("{" T("a", "F64", "[1152921504606846976]", 0, 0) "}", 0, TRI_CORRUPT, "overflows");
    expect("{" T("a", "F32", "[9223372036854775808]", 0, 0) "}", 0, TRI_CORRUPT, "not JSON");
    expect("{" T("a", "F32", "[3]", 0, 8) "}", 8, TRI_CORRUPT, "but 12 by its shape");
    expect("{" T("a", "F32", "[-1]", 0, 8) "}", 8, TRI_CORRUPT, "'a'");
    expect("{" T("a", "F32", "[1.0]", 0, 4) "}", 4, TRI_CORRUPT, "'a'");
    expect("{" T("a", "F32", "7", 0, 4) "}", 4, TRI_CORRUPT, "no list 'shape'");
    expect("{" T("a", "F32", "[1]", 4, 0) "}", 4, TRI_CORRUPT, "impossible data_offsets");
    expect("{" T("a", "F32", "[1]", -4, 0) "}", 4, TRI_CORRUPT, "impossible data_offsets");
    expect("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, TRI_CORRUPT,
           "data_offsets");
    expect("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TRI_CORRUPT, "no string 'dtype'");
    expect("{" T("a", "C64", "[1]", 0, 8) "}", 8, TRI_UNSUPPORTED, "tensor 'a' has dtype 'C64'");
    expect("{" T("a", "I8", "[1,1,1,1,1,1,1]", 0, 1) "}", 1, TRI_UNSUPPORTED, "7 axes");
    expect("{\"__metadata__\":{\"a\":1}}", 0, TRI_CORRUPT, "__metadata__ 'a'");
    expect("{\"__metadata__\":[]}", 0, TRI_CORRUPT, "__metadata__");
    expect("{\"a\":1}", 0, TRI_CORRUPT, "'a' is not described");
    expect("[]", 0, TRI_CORRUPT, "not a JSON object");
    expect("{\"a\"", 0, TRI_CORRUPT, "not JSON");
    expect("{} {}", 0, TRI_CORRUPT, "not JSON");
}

static void test_refuses_sizes(void **state) {
    tri_safetensors *file;
    put(1ull << 63, "{}", "", 0);
    assert_int_equal(tri_safetensors_open(path, &file), TRI_CORRUPT);
    assert_non_null(strstr(tri_error_message(), "9223372036854775808"));
    put(100000001, "{}", "", 0);
    assert_int_equal(tri_safetensors_open(path, &file), TRI_CORRUPT);
    put(3, "{}", "", 0);
    assert_int_equal(tri_safetensors_open(path, &file), TRI_CORRUPT);
    assert_non_null(strstr(tri_error_message(), "truncated: a header of 3 bytes"));
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(tri_safetensors_open(path, &file), TRI_CORRUPT);
    assert_int_equal(tri_safetensors_open("/nowhere/at/all", &file), TRI_NOT_FOUND);
    assert_int_equal(tri_safetensors_open("/tmp", &file), TRI_BAD_INPUT);
}

static void test_round_trip(void **state) {
    float weight[6] = {1, 2, 3, 4, 5, 6}, scalar = 7;
    int64_t label[3] = {-1, 0, 1};
    uint8_t byte[1] = {9};
    const tri_safetensors_spec specs[] = {
        {"z.byte", TRI_U8, tri_shape_of(1)},     {"b.weight", TRI_F32, tri_shape_of(2, 3)},
        {"empty", TRI_F32, tri_shape_of(0)},     {"labels", TRI_I64, tri_shape_of(3)},
        {"a \"quoted\" \303\251", TRI_F32, {0}},
    };
    const void *data[] = {byte, weight, NULL, label, &scalar};
    const tri_safetensors_pair pairs[] = {{"format", "pt"}, {"a", "line\nfeed"}};
    assert_int_equal(tri_safetensors_write(path, specs, data, 5, pairs, 2), TRI_OK);
    assert_true(tri_safetensors_probe(path));

    tri_safetensors *file;
    assert_int_equal(tri_safetensors_open(path, &file), TRI_OK);
    assert_int_equal(tri_safetensors_count(file), 5);
    assert_string_equal(tri_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(tri_safetensors_metadata(file, "a"), "line\nfeed");
    assert_null(tri_safetensors_metadata(file, "b"));
    assert_string_equal(tri_safetensors_at(file, 0)->name,
                        "labels"); // first, because I64 is the largest type
    assert_int_equal(tri_safetensors_at(file, 0)->offset % 8, 0);
    assert_string_equal(tri_safetensors_at(file, 4)->name, "z.byte");
    const tri_safetensors_entry *entry = tri_safetensors_find(file, "b.weight");
    assert_non_null(entry);
    assert_true(tri_shape_equal(&entry->shape, &specs[1].shape));
    float part[2];
    assert_int_equal(tri_safetensors_read(file, entry, 8, 8, part), TRI_OK);
    assert_true(part[0] == 3 && part[1] == 4);
    assert_non_null(tri_safetensors_find(file, specs[4].name));
    assert_null(tri_safetensors_find(file, "c"));
    tri_safetensors_close(file);
}

static void test_layout(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const tri_safetensors_spec one[] = {{"a", TRI_F32, tri_shape_of(2)},
                                        {"b", TRI_F64, tri_shape_of(1)}};
    const tri_safetensors_spec two[] = {{"b", TRI_F64, tri_shape_of(1)},
                                        {"a", TRI_F32, tri_shape_of(2)}};
    tri_safetensors_layout x, y;
    assert_int_equal(tri_safetensors_lay_out(arena, one, 2, NULL, 0, &x), TRI_OK);
    assert_int_equal(tri_safetensors_lay_out(arena, two, 2, NULL, 0, &y), TRI_OK);
    assert_int_equal(x.header_bytes, y.header_bytes);
    assert_memory_equal(x.header, y.header, (size_t)x.header_bytes);
    assert_int_equal(x.header_bytes % 8, 0);
    assert_int_equal(x.header[8], '{');
    assert_int_equal(x.entries[1].offset, x.header_bytes);
    assert_int_equal(x.entries[0].offset, x.header_bytes + 8);
    assert_int_equal(x.file_bytes, x.header_bytes + 16);
    assert_int_equal(x.order[0], 1);
    const tri_safetensors_spec twice[] = {{"a", TRI_F32, tri_shape_of(2)},
                                          {"a", TRI_F64, tri_shape_of(1)}};
    assert_int_equal(tri_safetensors_lay_out(arena, twice, 2, NULL, 0, &x), TRI_BAD_INPUT);
    const tri_safetensors_spec bad[] = {{"\xff", TRI_F32, tri_shape_of(2)}};
    assert_int_equal(tri_safetensors_lay_out(arena, bad, 1, NULL, 0, &x), TRI_BAD_INPUT);
    const tri_safetensors_spec huge[] = {{"a", TRI_F64, tri_shape_of(INT64_MAX)}};
    assert_int_equal(tri_safetensors_lay_out(arena, huge, 1, NULL, 0, &x), TRI_BAD_INPUT);
    assert_int_equal(tri_safetensors_lay_out(arena, NULL, 0, NULL, 0, &x), TRI_OK);
    tri_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_accepts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test(test_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

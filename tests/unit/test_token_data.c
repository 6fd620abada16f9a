// Tests the data set `tokens`: flat files of text or of numbers, what says their type, and which
// are refused.
#include "base/hash.h"
#include "base/os.h"
#include "data/dataset.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/dataset_cases.h"

static void put_numbers(const char *name, size_t width, int count, uint32_t first) {
    uint8_t *bytes = malloc(width * (size_t)count);
    for (int i = 0; i < count; i++) {
        uint32_t token = first + (uint32_t)i;
        memcpy(bytes + width * (size_t)i, &token, width);
    }
    fixture_put(name, bytes, width * (size_t)count);
    free(bytes);
}

// Writes `count` tokens as numbers of 64 bits.
static void put_long(const char *name, int count) {
    int64_t numbers[64];
    assert_true(count <= 64);
    for (int i = 0; i < count; i++) numbers[i] = i + 1;
    fixture_put(name, numbers, sizeof *numbers * (size_t)count);
}

// Writes a file of tokens as llm.c writes it: a header, which says that there are `promised`
// tokens, then `count` tokens of `width` bytes each.
static void put_headed(const char *name, int32_t magic, int32_t version, int32_t promised,
                       size_t width, int count) {
    int32_t header[256] = {magic, version, promised};
    char *bytes = calloc(1, sizeof header + width * (size_t)count);
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < count; i++) bytes[sizeof header + width * (size_t)i] = (char)(i + 1);
    fixture_put(name, bytes, sizeof header + width * (size_t)count);
    free(bytes);
}

// Checks that the samples are windows of `sequence` tokens that count up from `first`, and that a
// shorter last window is dropped.
static void check_windows(const char *yaml, int64_t samples, int sequence, int64_t first) {
    tri_data_options options = fixture_options(yaml);
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(tri_dataset_samples(dataset), samples);
    assert_int_equal(tri_dataset_find(dataset, "input_ids"), 0);
    assert_int_equal(tri_dataset_field(dataset, 0)->dtype, TRI_I64);
    assert_int_equal(tri_dataset_field(dataset, 0)->shape.rank, 1);
    assert_int_equal(tri_dataset_field(dataset, 0)->shape.dims[0], sequence);
    assert_int_equal(tri_dataset_classes(dataset, "input_ids"), first + samples * sequence);
    int64_t *ids = malloc((size_t)sequence * sizeof *ids);
    for (int64_t i = samples - 1; i >= 0; i--) {
        tri_dataset_hint(dataset, i);
        assert_int_equal(fixture_read(dataset, 0, i, 3, ids), TRI_OK);
        for (int k = 0; k < sequence; k++) assert_int_equal(ids[k], first + i * sequence + k);
    }
    free(ids);
    tri_dataset_close(dataset);
}

static void test_tokens(void **state) {
    fixture_put("text.txt", " !\"#$%&'()*+,-./0123", 20);
    put_numbers("gpt.bin", 2, 70, 50000);
    put_numbers("long.u32", 4, 30, 100000);
    put_headed("gpt-header.bin", 20240520, 1, 9, 2, 9);
    put_headed("llama-header.bin", 20240801, 7, 5, 4, 5);
    check_windows("name: tokens, train: text.txt, sequence: 6", 3, 6, ' ');
    check_windows("name: tokens, train: text.txt, sequence: 20", 1, 20, ' ');
    check_windows("name: tokens, train: text.txt, sequence: 6, limit: 2", 2, 6, ' ');
    check_windows("name: tokens, train: gpt.bin, sequence: 16", 4, 16, 50000);
    check_windows("name: tokens, train: gpt.bin, dtype: u16, sequence: 70", 1, 70, 50000);
    check_windows("name: tokens, train: long.u32, sequence: 7", 4, 7, 100000);
    check_windows("name: tokens, train: gpt-header.bin, sequence: 3", 3, 3, 1);
    check_windows("name: tokens, train: llama-header.bin, sequence: 2", 2, 2, 1);
    const char *alone = tri_arena_printf(fixture_arena, "{name: tokens, path: %s, sequence: 5}",
                                         fixture_path("text.txt"));
    tri_data_options options;
    assert_int_equal(fixture_try_options(alone, &options), TRI_OK);
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(tri_dataset_samples(dataset), 4);
    tri_dataset_close(dataset);
    assert_false(tri_data_has(&options, TRI_DATA_TEST));
    tri_data_field fields[TRI_MAX_DATA_FIELDS];
    int count;
    bool is_guess;
    assert_int_equal(tri_data_describe(&options, fields, &count, &is_guess), TRI_OK);
    assert_false(is_guess);
    assert_int_equal(count, 1);
    assert_int_equal(fields[0].size_bytes, 40);
}

// Writes an index as Megatron does: one document of three sequences of 5, 0 and `last` tokens.
static void put_megatron(const char *name, uint8_t code, int32_t width, int32_t last,
                         size_t bytes) {
    uint8_t index[34 + 3 * 12 + 16] = "MMIDIDX\0\0\1";
    const int64_t counts[] = {3, 2}, places[] = {0, 5 * width, 5 * width}, documents[] = {0, 3};
    const int32_t lengths[] = {5, 0, last};
    index[17] = code;
    memcpy(index + 18, counts, sizeof counts);
    memcpy(index + 34, lengths, sizeof lengths);
    memcpy(index + 46, places, sizeof places);
    memcpy(index + 70, documents, sizeof documents);
    fixture_put(name, index, bytes < sizeof index ? bytes : sizeof index);
}

// The index that Megatron writes beside its files names the type of the tokens, and has to be that
// of the file.
static void test_tokens_of_megatron(void **state) {
    enum { ALL = 86 };
    const char *recipe = "name: tokens, train: meg.bin, sequence: 15";
    put_numbers("meg.bin", 4, 30, 70000);
    fixture_put("meg.idx", "no index, but short", 10);
    refuse("name: tokens, train: meg.bin, sequence: 70", TRI_DATA_TRAIN, TRI_BAD_INPUT, "meg.bin");
    put_megatron("meg.idx", 4, 4, 25, ALL); // I32
    check_windows(recipe, 2, 15, 70000);
    put_megatron("meg.idx", 5, 4, 25, ALL); // I64
    refuse(recipe, TRI_DATA_TRAIN, TRI_UNSUPPORTED, "meg.idx|code 5|meg.bin");
    check_windows("name: tokens, train: meg.bin, dtype: u32, sequence: 15", 2, 15, 70000);
    put_megatron("meg.idx", 4, 4, 55, ALL);
    refuse(recipe, TRI_DATA_TRAIN, TRI_CORRUPT, "meg.bin|meg.idx|60 tokens|240 bytes|has 120");
    put_megatron("meg.idx", 8, 2, 25, ALL); // U16, of another file
    refuse(recipe, TRI_DATA_TRAIN, TRI_CORRUPT, "meg.bin|meg.idx|60 bytes|has 120");
    put_megatron("meg.idx", 4, 2, 25, ALL);
    refuse(recipe, TRI_DATA_TRAIN, TRI_CORRUPT, "meg.idx|do not follow");
    assert_int_equal(unlink(fixture_path("meg.idx")), 0);
    assert_int_equal(symlink("meg.idx", fixture_path("meg.idx")), 0); // it cannot be opened
    refuse(recipe, TRI_DATA_TRAIN, TRI_BAD_INPUT, "meg.idx");
    assert_int_equal(unlink(fixture_path("meg.idx")), 0);
    const size_t cuts[] = {20, 30, 50, ALL - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        put_megatron("meg.idx", 4, 4, 25, cuts[i]);
        refuse(recipe, TRI_DATA_TRAIN, TRI_CORRUPT, "meg.idx|data.dtype");
    }
}

static int64_t read_bytes;

static ssize_t counted_pread(int fd, void *data, size_t size, off_t offset) {
    read_bytes += (int64_t)size;
    return tri_os_system.pread(fd, data, size, offset);
}

// Of a large file the largest token is looked for once; a wrong one reaches no model.
static void test_largest_is_kept(void **state) {
    // A later start reads the head, and the parts by which a change is noticed.
    enum { BYTES = 65 << 20, HEAD_BYTES = (1 << 17) + TRI_HASH_FILE_BLOCKS * TRI_HASH_BLOCK_BYTES };
    const uint16_t token = 777;
    int64_t window[4];
    tri_dataset *large;
    tri_data_options options = fixture_options(tri_arena_printf(
        fixture_arena, "name: tokens, train: large.bin, sequence: 4, cache: %s/kept",
        fixture_folder));
    fixture_put("large.bin", "", 0);
    assert_int_equal(truncate(fixture_path("large.bin"), BYTES), 0);
    int fd = open(fixture_path("large.bin"), O_WRONLY);
    assert_int_equal(pwrite(fd, &token, sizeof token, BYTES / 2), sizeof token);
    close(fd);
    for (int turn = 0; turn < 2; turn++) {
        tri_os.pread = counted_pread;
        read_bytes = 0;
        assert_int_equal(tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &large), TRI_OK);
        tri_os = tri_os_system;
        if (turn == 0) assert_true(read_bytes >= BYTES);
        if (turn == 1) assert_true(read_bytes <= HEAD_BYTES);
        assert_int_equal(tri_dataset_classes(large, "input_ids"), token + 1);
        tri_dataset_close(large);
    }
    glob_t found;
    assert_int_equal(glob(fixture_path("kept/.large.bin.*.json"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_int_equal(tri_os_replace_fleeting(found.gl_pathv[0], "{\"largest\": 5}", 14), TRI_OK);
    globfree(&found);
    assert_int_equal(tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &large), TRI_OK);
    assert_int_equal(fixture_read(large, 0, 0, 0, window), TRI_OK);
    assert_int_equal(fixture_read(large, 0, BYTES / 16, 0, window), TRI_IO);
    tri_dataset_close(large);
}

static void test_tokens_refused(void **state) {
    fixture_put("text.txt", "0123456789", 10);
    fixture_put("empty.txt", "", 0);
    fixture_put("odd.bin", "0123456", 7);
    put_numbers("huge.u32", 4, 8, 3000000000u);
    put_numbers("wide.bin", 4, 40, 500);
    put_long("long.bin", 40);
    put_long("long.u32", 40);
    put_headed("lies.bin", 20240520, 1, 10, 2, 9);
    put_headed("later.bin", 20240520, 2, 9, 2, 9);
    put_headed("hollow.bin", 20240520, 1, 0, 2, 0);
    const struct {
        const char *yaml;
        tri_status status;
        const char *parts;
    } rows[] = {
        {"train: nowhere.txt", TRI_NOT_FOUND, "nowhere.txt"},
        {"train: empty.txt", TRI_BAD_INPUT, "empty.txt|empty"},
        {"train: /", TRI_BAD_INPUT, "file"},
        {"train: text.txt, sequence: 11", TRI_BAD_INPUT, "text.txt|10 tokens"},
        {"train: odd.bin, sequence: 2", TRI_BAD_INPUT, "odd.bin|7 bytes"},
        {"train: wide.bin, sequence: 2", TRI_BAD_INPUT, "wide.bin|data.dtype|u32"},
        {"train: long.bin, sequence: 2", TRI_BAD_INPUT, "long.bin|64-bit"},
        {"train: long.u32, sequence: 2", TRI_BAD_INPUT, "long.u32|64-bit"},
        {"train: text.txt, dtype: u32, sequence: 2", TRI_BAD_INPUT, "text.txt|10 bytes"},
        {"train: huge.u32, sequence: 2", TRI_BAD_INPUT, "huge.u32|token 3000000007"},
        {"train: lies.bin, sequence: 2", TRI_CORRUPT, "lies.bin|10 tokens"},
        {"train: hollow.bin, sequence: 2", TRI_BAD_INPUT, "hollow.bin|empty"},
        {"train: later.bin, sequence: 2", TRI_UNSUPPORTED, "later.bin|version 2"},
        {"train: text.txt, sequence: 2, transform: [random_horizontal_flip]", TRI_BAD_INPUT,
         "images"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuse(tri_arena_printf(fixture_arena, "name: tokens, %s", rows[i].yaml), TRI_DATA_TRAIN,
               rows[i].status, rows[i].parts);
    refuse("name: tokens, train: text.txt", TRI_DATA_TEST, TRI_NOT_FOUND, "data.test");
    tri_data_options options;
    assert_int_equal(fixture_try_options("{name: tokens, sequence: 1}", &options), TRI_BAD_INPUT);
    message_check(tri_error_message(), "data.sequence");
    tri_dataset *dataset;
    assert_int_equal(fixture_try_options("{name: tokens}", &options), TRI_OK);
    assert_int_equal(tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &dataset), TRI_BAD_INPUT);
    message_check(tri_error_message(), "data.train is not set");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_tokens),
        TEST(test_tokens_of_megatron),
        TEST(test_tokens_refused),
        TEST(test_largest_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

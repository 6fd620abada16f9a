// Tests the kinds of data sets, their transforms, and which inputs they refuse.
#include "base/hash.h"
#include "data/check.h"
#include "data/dataset.h"
#include "format/safetensors.h"

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/dataset_cases.h"
#include "support/message.h"

static void read_field(const tri_dataset *dataset, int field, int64_t sample, int64_t epoch,
                       void *out) {
    assert_int_equal(fixture_read(dataset, field, sample, epoch, out), TRI_OK);
}

static void test_idx(void **state) {
    fixture_put_idx("train", 300);
    fixture_put_idx("t10k", 20);
    tri_data_options options =
        fixture_options("name: idx, transform: [{normalize: {mean: [0.1307], std: [0.3081]}}]");
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN), *test = opened(&options, TRI_DATA_TEST);
    assert_int_equal(tri_dataset_samples(train), 300);
    assert_int_equal(tri_dataset_samples(test), 20);
    assert_int_equal(tri_dataset_classes(train, "labels"), 10);
    assert_int_equal(tri_dataset_find(train, "images"), 0);
    assert_int_equal(tri_dataset_find(train, "labels"), 1);
    assert_int_equal(tri_dataset_find(train, "inputs"), -1);
    const tri_data_field *images = tri_dataset_field(train, 0);
    tri_shape shape = tri_shape_of(1, 2, 3);
    assert_true(tri_shape_equal(&images->shape, &shape) && images->dtype == TRI_F32);
    assert_int_equal(images->size_bytes, 24);
    float pixels[6];
    int64_t label;
    read_field(train, 0, 299, 0, pixels);
    for (int p = 0; p < 6; p++) {
        float x = (float)((7 * 299 + p) % 256) / 255.0f;
        assert_true(pixels[p] == (x - 0.1307f) / 0.3081f);
    }
    read_field(train, 1, 299, 0, &label);
    assert_int_equal(label, 9);
    tri_dataset_close(train);
    tri_dataset_close(test);

    options = fixture_options("name: idx, limit: 5");
    train = opened(&options, TRI_DATA_TRAIN);
    test = opened(&options, TRI_DATA_TEST);
    assert_int_equal(tri_dataset_samples(train), 5);
    assert_int_equal(tri_dataset_samples(test), 20); // data.limit applies to training data only
    read_field(train, 0, 0, 0, pixels);
    assert_true(pixels[5] == 5.0f / 255.0f);
    tri_dataset_close(train);
    tri_dataset_close(test);
}

static void test_idx_refuses(void **state) {
    refuse("name: idx", TRI_DATA_TRAIN, TRI_NOT_FOUND, "train-images-idx3-ubyte");
    fixture_put_idx("train", 30);
    refuse("name: idx", TRI_DATA_TEST, TRI_NOT_FOUND, "t10k-images-idx3-ubyte");
    fixture_put_idx("other", 20);
    assert_int_equal(
        rename(fixture_path("other-labels-idx1-ubyte"), fixture_path("train-labels-idx1-ubyte")),
        0);
    refuse("name: idx", TRI_DATA_TRAIN, TRI_BAD_INPUT, "30 images|20 labels");
    assert_int_equal(rename(fixture_path("train-labels-idx1-ubyte"), fixture_path("kept")), 0);
    assert_int_equal(
        rename(fixture_path("train-images-idx3-ubyte"), fixture_path("train-labels-idx1-ubyte")),
        0);
    assert_int_equal(rename(fixture_path("kept"), fixture_path("train-images-idx3-ubyte")), 0);
    refuse("name: idx", TRI_DATA_TRAIN, TRI_BAD_INPUT, "swapped");
    fixture_put_idx("letters", 0);
    refuse("name: idx, train: letters", TRI_DATA_TRAIN, TRI_BAD_INPUT, "no images");
    fixture_put_idx("letters", 3);
    tri_data_options options = fixture_options("name: idx, train: letters");
    tri_dataset_close(opened(&options, TRI_DATA_TRAIN));
    assert_int_equal(truncate(fixture_path("letters-images-idx3-ubyte"), 33), 0);
    refuse("name: idx, train: letters", TRI_DATA_TRAIN, TRI_CORRUPT, "truncated");
}

static void put_tensors(const char *name, int count, const tri_safetensors_spec *specs,
                        const void *const *data) {
    assert_int_equal(tri_safetensors_write(fixture_path(name), specs, data, count, NULL, 0),
                     TRI_OK);
}

static void test_tensors(void **state) {
    uint8_t images[2 * 2 * 1 * 2] = {0, 255, 51, 102, 1, 2, 3, 4};
    int32_t labels[2] = {3, -100};
    const tri_safetensors_spec specs[] = {{"images", TRI_U8, tri_shape_of(2, 2, 1, 2)},
                                          {"labels", TRI_I32, tri_shape_of(2)}};
    const void *data[] = {images, labels};
    put_tensors("train", 2, specs, data);
    tri_data_options options =
        fixture_options("name: tensors, train: train, "
                        "transform: [normalize: {mean: [0, 0.5], std: [0.5]}]");
    assert_false(tri_data_has(&options, TRI_DATA_TEST));
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(tri_dataset_classes(dataset, "labels"), 4);
    float pixels[4];
    read_field(dataset, tri_dataset_find(dataset, "images"), 0, 0, pixels);
    assert_true(pixels[0] == 0 && pixels[1] == 2);
    assert_true(pixels[2] == (0.2f - 0.5f) / 0.5f && pixels[3] == (0.4f - 0.5f) / 0.5f);
    int64_t label;
    read_field(dataset, tri_dataset_find(dataset, "labels"), 1, 0, &label);
    assert_int_equal(label, -100);
    tri_dataset_close(dataset);

    uint16_t inputs[3] = {0x3c00, 0xc000, 0x0001}; // F16: 1, -2, 2^-24
    double targets[6] = {1, 2, 3, 4, 5, 6};
    const tri_safetensors_spec regression[] = {{"inputs", TRI_F16, tri_shape_of(3, 1)},
                                               {"targets", TRI_F64, tri_shape_of(3, 2)}};
    const void *numbers[] = {inputs, targets};
    put_tensors("test", 2, regression, numbers);
    options = fixture_options("name: tensors, test: test");
    dataset = opened(&options, TRI_DATA_TEST);
    float value, pair[2];
    const float expected[] = {1, -2, 0x1p-24f};
    for (int i = 0; i < 3; i++) {
        read_field(dataset, tri_dataset_find(dataset, "inputs"), i, 0, &value);
        assert_true(value == expected[i]);
    }
    read_field(dataset, tri_dataset_find(dataset, "targets"), 2, 0, pair);
    assert_true(pair[0] == 5 && pair[1] == 6);
    tri_dataset_close(dataset);
}

static void refuse_tensors(int count, const tri_safetensors_spec *specs, const void *const *data,
                           const char *parts) {
    put_tensors("bad", count, specs, data);
    refuse("name: tensors, train: bad", TRI_DATA_TRAIN, TRI_BAD_INPUT, parts);
}

static void test_tensors_refuses(void **state) {
    static const char zeros[256];
    const void *data[] = {zeros, zeros};
    refuse("name: tensors", TRI_DATA_TEST, TRI_NOT_FOUND, "data.test");
    refuse("name: tensors, train: nowhere", TRI_DATA_TRAIN, TRI_NOT_FOUND, "nowhere");
    refuse_tensors(0, NULL, data, "0 tensors");
    refuse_tensors(1, &(tri_safetensors_spec){"image", TRI_F32, tri_shape_of(2, 1, 2, 2)}, data,
                   "images");
    refuse_tensors(1, &(tri_safetensors_spec){"images", TRI_F32, tri_shape_of(2, 2, 2)}, data,
                   "[N, C, H, W]");
    refuse_tensors(1, &(tri_safetensors_spec){"labels", TRI_F32, tri_shape_of(2)}, data, "I64");
    refuse_tensors(1, &(tri_safetensors_spec){"labels", TRI_I64, {0}}, data, "scalar");
    refuse_tensors(1, &(tri_safetensors_spec){"labels", TRI_I64, tri_shape_of(0)}, data,
                   "no samples");
    refuse_tensors(1, &(tri_safetensors_spec){"inputs", TRI_F32, tri_shape_of(2, 0)}, data,
                   "0 elements");
    const tri_safetensors_spec unlike[] = {{"inputs", TRI_F32, tri_shape_of(3, 1)},
                                           {"targets", TRI_F32, tri_shape_of(2, 1)}};
    refuse_tensors(2, unlike, data, "has 3");
    const int64_t labels[] = {0, -1};
    const void *bad[] = {labels};
    refuse_tensors(1, &(tri_safetensors_spec){"labels", TRI_I64, tri_shape_of(2)}, bad,
                   "labels|sample 1|-1");
    fixture_put("bad", "no safetensors", 14);
    refuse("name: tensors, train: bad", TRI_DATA_TRAIN, TRI_CORRUPT, "bad|safetensors");
}

static void test_synthetic(void **state) {
    tri_data_options options = fixture_options("name: synthetic, shape: [1, 8, 8], samples: 128");
    assert_false(tri_data_has(&options, TRI_DATA_TEST));
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN), *other;
    assert_int_equal(tri_dataset_samples(dataset), 128);
    float x[64], y[64], again[64];
    double sum = 0;
    for (int i = 0; i < 128; i++) {
        read_field(dataset, tri_dataset_find(dataset, "inputs"), i, 0, x);
        read_field(dataset, tri_dataset_find(dataset, "targets"), i, 0, y);
        assert_memory_not_equal(x, y, sizeof x);
        for (int k = 0; k < 64; k++) {
            assert_true(x[k] >= 0 && x[k] < 1);
            sum += (double)x[k];
        }
    }
    assert_true(sum / (128 * 64) > 0.48 && sum / (128 * 64) < 0.52);
    read_field(dataset, 0, 127, 9, again);
    assert_memory_equal(x, again, sizeof x); // the same in every epoch
    assert_int_equal(tri_dataset_open(&options, TRI_DATA_TRAIN, 2, &other), TRI_OK);
    read_field(other, 0, 127, 0, again);
    assert_memory_not_equal(x, again, sizeof x);
    tri_dataset_close(other);
    tri_dataset_close(dataset);

    options = fixture_options(
        "name: synthetic, shape: [3, 4, 4], samples: 50, classes: 7, test_samples: 5");
    tri_data_field fields[TRI_MAX_DATA_FIELDS];
    int count;
    bool is_guess;
    assert_int_equal(tri_data_describe(&options, fields, &count, &is_guess), TRI_OK);
    assert_false(is_guess);
    assert_int_equal(count, 2);
    assert_string_equal(fields[0].name, "images");
    dataset = opened(&options, TRI_DATA_TEST);
    int64_t label;
    read_field(dataset, 1, 4, 0, &label);
    assert_true(label >= 0 && label < 7);
    tri_dataset_close(dataset);
    refuse("name: synthetic, shape: [4, 4], classes: 3", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "[N, C, H, W]");
    refuse("name: synthetic", TRI_DATA_TEST, TRI_NOT_FOUND, "test_samples");
    refuse("name: synthetic, shape: [2], classes: 3, vocabulary: 4", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "exclude");
    refuse("name: synthetic, shape: [2], vocabulary: 4", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "data.sequence");
    options = fixture_options("name: synthetic, sequence: 9, vocabulary: 5");
    dataset = opened(&options, TRI_DATA_TRAIN);
    int64_t ids[9];
    assert_int_equal(tri_dataset_field(dataset, 0)->size_bytes, sizeof ids);
    read_field(dataset, 0, 1, 0, ids);
    for (int i = 0; i < 9; i++) assert_true(ids[i] >= 0 && ids[i] < 5);
    tri_dataset_close(dataset);
    refuse("name: synthetic, shape: [2], transform: [random_horizontal_flip]", TRI_DATA_TRAIN,
           TRI_BAD_INPUT, "for images");
}

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

// If one file has labels and tokens, the number of classes is found separately for each of the two
// fields.
static void test_labels_beside_tokens(void **state) {
    int64_t ids[6] = {0, 4, 29, 7, 7, 7}, labels[3] = {1, 0, 1};
    const tri_safetensors_spec specs[] = {{"input_ids", TRI_I64, tri_shape_of(3, 2)},
                                          {"labels", TRI_I64, tri_shape_of(3)}};
    const void *data[] = {ids, labels};
    put_tensors("train", 2, specs, data);
    tri_data_options options = fixture_options("name: tensors, train: train");
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(tri_dataset_classes(dataset, "labels"), 2);
    assert_int_equal(tri_dataset_classes(dataset, "input_ids"), 30);
    tri_dataset_close(dataset);
    tri_data_report report;
    assert_int_equal(tri_data_check(fixture_arena, &options, TRI_DATA_TRAIN, 1, &report), TRI_OK);
    assert_int_equal(report.classes, 2);
    ids[3] = -100; // -100 means "ignored", which is allowed for labels but not for tokens
    put_tensors("train", 2, specs, data);
    refuse("name: tensors, train: train", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "input_ids|sample 1|-100|0");
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
        read_field(dataset, 0, i, 3, ids);
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

// The index that Megatron writes beside its files names the type of the tokens.
static void test_tokens_of_megatron(void **state) {
    uint8_t index[34] = "MMIDIDX\0\0\1";
    put_numbers("meg.bin", 4, 30, 70000);
    fixture_put("meg.idx", "no index, but short", 10);
    refuse("name: tokens, train: meg.bin, sequence: 70", TRI_DATA_TRAIN, TRI_BAD_INPUT, "meg.bin");
    index[17] = 4; // I32
    fixture_put("meg.idx", index, sizeof index);
    check_windows("name: tokens, train: meg.bin, sequence: 15", 2, 15, 70000);
    index[17] = 5; // I64
    fixture_put("meg.idx", index, sizeof index);
    refuse("name: tokens, train: meg.bin, sequence: 15", TRI_DATA_TRAIN, TRI_UNSUPPORTED,
           "meg.idx|code 5|meg.bin");
    check_windows("name: tokens, train: meg.bin, dtype: u32, sequence: 15", 2, 15, 70000);
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

// Checks random transforms. A flip gives the stored image or its mirror image, and both occur; it
// does not change test samples. A crop of 3 x 3 pixels from an image of 2 x 3, padded by 1 on every
// side, has 2 x 3 possible positions; it gives the pixels of one of them, and each occurs.
static void test_random_transforms(void **state) {
    fixture_put_idx("train", 300);
    fixture_put_idx("t10k", 30);
    tri_data_options options = fixture_options("name: idx, transform: [random_horizontal_flip]");
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN), *test = opened(&options, TRI_DATA_TEST);
    float pixels[36], again[36];
    int flipped = 0, changed = 0;
    for (int i = 0; i < 200; i++) {
        read_field(train, 0, i, 0, pixels);
        bool is_flipped = pixels[0] == (float)((7 * i + 2) % 256) / 255.0f;
        for (int p = 0; p < 6; p++) {
            int from = is_flipped ? p / 3 * 3 + 2 - p % 3 : p;
            assert_true(pixels[p] == (float)((7 * i + from) % 256) / 255.0f);
        }
        flipped += is_flipped;
        read_field(train, 0, i, 1, again);
        changed += memcmp(pixels, again, 6 * sizeof *pixels) != 0;
        read_field(train, 0, i, 0, again);
        assert_memory_equal(pixels, again, 6 * sizeof *pixels);
    }
    assert_true(flipped > 70 && flipped < 130 && changed > 70 && changed < 130);
    read_field(test, 0, 29, 0, pixels);
    assert_true(pixels[0] == 203.0f / 255.0f); // test samples are not transformed
    tri_dataset_close(train);
    tri_dataset_close(test);

    options = fixture_options("name: idx, transform: [random_crop: {size: 3, padding: 1}, "
                              "normalize: {mean: [0.5], std: [0.25]}]");
    train = opened(&options, TRI_DATA_TRAIN);
    tri_shape shape = tri_shape_of(1, 3, 3);
    assert_true(tri_shape_equal(&tri_dataset_field(train, 0)->shape, &shape));
    int seen = 0;
    for (int i = 1; i < 30; i++) {
        read_field(train, 0, i, 0, pixels);
        int found = 0;
        for (int top = -1; top <= 0; top++)
            for (int left = -1; left <= 1; left++) {
                bool same = true;
                for (int y = 0; y < 3; y++)
                    for (int x = 0; x < 3; x++) {
                        int v = top + y, u = left + x;
                        bool inside = v >= 0 && v < 2 && u >= 0 && u < 3;
                        float value = inside ? (float)((7 * i + 3 * v + u) % 256) / 255.0f : 0.0f;
                        same = same && pixels[3 * y + x] == (value - 0.5f) / 0.25f;
                    }
                if (!same) continue;
                found++;
                seen |= 1 << ((top + 1) * 3 + left + 1);
            }
        assert_int_equal(found, 1);
    }
    assert_int_equal(seen, 0x3f); // each of the six positions of the crop was drawn
    tri_dataset_close(train);
}

// Images that are read as bytes and scaled afterwards have the same bits as images that are read as
// floats, also if a transform moves pixels. tri_dataset_scale returns false if the pixels do not
// follow from stored bytes by one mean and one standard deviation for each channel: here because
// there are two `normalize` transforms, or because the data set does not store bytes.
static void test_bytes(void **state) {
    fixture_put_idx("train", 40);
    tri_data_options options =
        fixture_options("name: idx, transform: [random_crop: {size: 3, padding: 1}, "
                        "random_horizontal_flip, normalize: {mean: [0.1307], std: [0.3081]}]");
    tri_dataset *floats = opened(&options, TRI_DATA_TRAIN),
                *bytes = opened(&options, TRI_DATA_TRAIN);
    tri_pixel_scale scale;
    assert_true(tri_dataset_scale(bytes, &scale));
    assert_int_equal(scale.channels, 1);
    assert_int_equal(tri_dataset_field(bytes, 0)->dtype, TRI_F32);
    tri_dataset_keep_bytes(bytes);
    assert_int_equal(tri_dataset_field(bytes, 0)->dtype, TRI_U8);
    assert_int_equal(tri_dataset_field(bytes, 0)->size_bytes, 9);
    for (int i = 0; i < 40; i++)
        for (int epoch = 0; epoch < 3; epoch++) {
            float wanted[9];
            uint8_t got[9];
            read_field(floats, 0, i, epoch, wanted);
            read_field(bytes, 0, i, epoch, got);
            for (int k = 0; k < 9; k++) {
                float value = (float)got[k] / 255.0f - (float)scale.mean[0];
                assert_true(value / (float)scale.std[0] == wanted[k]);
            }
        }
    tri_dataset_close(floats);
    tri_dataset_close(bytes);
    options = fixture_options("name: idx, transform: [normalize, normalize]");
    floats = opened(&options, TRI_DATA_TRAIN);
    assert_false(tri_dataset_scale(floats, &scale));
    tri_dataset_close(floats);
    options = fixture_options("name: synthetic, shape: [1, 4, 4], classes: 3");
    floats = opened(&options, TRI_DATA_TRAIN);
    assert_false(tri_dataset_scale(floats, &scale));
    tri_dataset_close(floats);
}

static void refuse_options(const char *yaml, const char *parts) {
    tri_data_options options;
    assert_int_equal(fixture_try_options(yaml, &options), TRI_BAD_INPUT);
    message_check(tri_error_message(), parts);
    message_check(tri_error_message(), "test.yaml");
}

static void test_options(void **state) {
    tri_data_options options = fixture_options("name: idx");
    assert_true(options.shuffle && !options.drop_last);
    assert_int_equal(options.workers, 2);
    assert_int_equal(options.sequence, 512);
    refuse_options("{name: idxx}", "idx");
    refuse_options("{name: idx, suffle: true}", "shuffle");
    refuse_options("{name: idx, samples: 3}", "samples");
    refuse_options("{name: idx, transform: 3}", "list");
    refuse_options("{name: idx, transform: [normalise]}", "normalise|normalize");
    refuse_options("{name: idx, transform: [{normalize: {mean: [1], sdt: [1]}}]}", "std");
    refuse_options("{name: idx, transform: [{normalize: {std: [0]}}]}", "std");
    refuse_options("{name: idx, transform: [{normalize: {}, random_horizontal_flip: {}}]}",
                   "one name");
    refuse_options("{name: idx, workers: -1}", "workers");
    fixture_put_idx("train", 3);
    refuse("name: idx, transform: [normalize: {mean: [0, 0], std: [1]}]", TRI_DATA_TRAIN,
           TRI_BAD_INPUT, "2|mean");
    // The list is applied in its order: what is cut out behind `normalize` would have to be filled
    // with another number than 0.
    refuse("name: idx, transform: [normalize, random_crop: 2]", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "random_crop|normalize");
    refuse("name: idx, transform: [random_crop: {size: 9}]", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "2 x 3");
}

static void test_check(void **state) {
    fixture_put_idx("train", 25);
    tri_data_options options = fixture_options("name: idx");
    tri_data_report report;
    assert_int_equal(tri_data_check(fixture_arena, &options, TRI_DATA_TRAIN, 1, &report), TRI_OK);
    assert_int_equal(report.samples, 25);
    assert_int_equal(report.classes, 10);
    assert_int_equal(report.min_class_samples, 2);
    assert_int_equal(report.max_class_samples, 3);
    assert_int_equal(report.field_count, 2);
    assert_true(report.fields[0].stats.all.min == 0 && report.fields[1].stats.all.max == 9);
    double mean = (7.0 * 12 + 2.5) / 255;
    assert_true(report.fields[0].stats.all.mean > mean - 1e-6 &&
                report.fields[0].stats.all.mean < mean + 1e-6);
    float inputs[4] = {1, 3, NAN, INFINITY};
    const void *data[] = {inputs};
    put_tensors("train", 1, &(tri_safetensors_spec){"inputs", TRI_F32, tri_shape_of(4, 1)}, data);
    options = fixture_options("name: tensors, train: train");
    assert_int_equal(tri_data_check(fixture_arena, &options, TRI_DATA_TRAIN, 1, &report), TRI_OK);
    assert_int_equal(report.fields[0].stats.not_finite, 2);
    assert_true(report.fields[0].stats.all.mean == 2 && report.fields[0].stats.all.std == 1 &&
                report.classes == 0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_idx),
        TEST(test_idx_refuses),
        TEST(test_tensors),
        TEST(test_tensors_refuses),
        TEST(test_synthetic),
        TEST(test_random_transforms),
        TEST(test_bytes),
        TEST(test_options),
        TEST(test_check),
        TEST(test_tokens),
        TEST(test_tokens_of_megatron),
        TEST(test_tokens_refused),
        TEST(test_largest_is_kept),
        TEST(test_labels_beside_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

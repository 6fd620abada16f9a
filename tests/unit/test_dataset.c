// Tests the kinds of data sets, their transforms, and which inputs they refuse.
#include "data/check.h"
#include "data/dataset.h"
#include "format/safetensors.h"

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
        TEST(test_idx),       TEST(test_idx_refuses),
        TEST(test_tensors),   TEST(test_tensors_refuses),
        TEST(test_synthetic), TEST(test_random_transforms),
        TEST(test_bytes),     TEST(test_options),
        TEST(test_check),     TEST(test_labels_beside_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests the validation data of every kind of data set. They are a part of the training data
// (data.val_fraction) or lie in files of their own (data.val).
#include "data/dataset.h"
#include "data/loader.h"
#include "data/split.h"
#include "format/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/data_fixture.h"

// Checks that the training samples and the validation samples are each in the data's order, and
// that the two sets together have every sample once.
static void check_subsets(const tri_validation_split *split) {
    uint8_t *seen = calloc((size_t)split->total, 1);
    for (int validation = 0; validation < 2; validation++) {
        int64_t count = validation ? split->validation_samples
                                   : split->total - split->validation_samples,
                before = -1;
        for (int64_t i = 0; i < count; i++) {
            int64_t sample =
                validation ? tri_validation_sample(split, i) : tri_training_sample(split, i);
            assert_true(sample > before && sample < split->total);
            assert_int_equal(seen[sample]++, 0);
            before = sample;
        }
    }
    assert_null(memchr(seen, 0, (size_t)split->total));
    free(seen);
}

static void test_subsets(void **state) {
    static const double fractions[] = {1e-9, 0.01, 0.1, 0.25, 0.333, 0.5, 0.5001, 0.75, 0.9, 0.999};
    for (int64_t total = 2; total < 3000; total += total / 5 + 1)
        for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++) {
            tri_validation_split split =
                tri_validation_split_make((uint64_t)total, total, fractions[f]);
            assert_true(split.validation_samples >= 1);
            if (split.validation_samples < total) check_subsets(&split);
        }
    tri_validation_split split = tri_validation_split_make(7, 60000, 0.1);
    assert_int_equal(split.validation_samples, 6000);
    check_subsets(&split);
    split = tri_validation_split_make(7, INT64_C(1) << 48, 0.3);
    int64_t trained = split.total - split.validation_samples;
    assert_true(tri_validation_sample(&split, split.validation_samples - 1) < split.total);
    assert_true(tri_training_sample(&split, trained - 1) >= split.total - 4);
}

// One validation sample is drawn from each group of 4 samples. Over many seeds, every sample is
// drawn about equally often, and neighbouring groups draw independently of each other: the first
// two have their validation samples at the same position in a quarter of the cases.
static void test_is_random(void **state) {
    enum { SEEDS = 8000, TOTAL = 20, HELD = 5 };
    int held[TOTAL] = {0}, both = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        tri_validation_split split = tri_validation_split_make(seed, TOTAL, 0.25);
        assert_int_equal(split.validation_samples, HELD);
        int64_t first = tri_validation_sample(&split, 0), second = tri_validation_sample(&split, 1);
        both += first % 4 == second % 4;
        for (int64_t i = 0; i < HELD; i++) held[tri_validation_sample(&split, i)]++;
    }
    // Each count is how often something with probability 1/4 happened in 8000 cases, so its mean is
    // 2000 and its standard deviation 39.
    for (int i = 0; i < TOTAL; i++) assert_in_range(held[i], 1800, 2200);
    assert_in_range(both, 1800, 2200);
}

static tri_dataset *opened(const tri_data_options *options, tri_data_split split, uint64_t seed) {
    tri_dataset *dataset;
    if (tri_dataset_open(options, split, seed, &dataset) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return dataset;
}

static void read_sample(const tri_dataset *dataset, int64_t sample, int64_t epoch, void *out) {
    assert_int_equal(fixture_read(dataset, 0, sample, epoch, out), TRI_OK);
}

static void assert_same(const tri_dataset *a, int64_t i, const tri_dataset *b, int64_t k) {
    uint8_t one[256], other[256];
    assert_int_equal(tri_dataset_field(a, 0)->size_bytes, tri_dataset_field(b, 0)->size_bytes);
    assert_true(tri_dataset_field(a, 0)->size_bytes <= sizeof one);
    read_sample(a, i, 0, one);
    read_sample(b, k, 0, other);
    assert_memory_equal(one, other, tri_dataset_field(a, 0)->size_bytes);
}

// Checks one kind of data set. With val_fraction, training and validation data are the samples of
// the whole data that the split assigns to them. Validation data opened alone equal those opened
// beside the training data.
static void check_kind(const char *yaml, int64_t total) {
    tri_data_options all = fixture_options(yaml);
    tri_data_options some =
        fixture_options(tri_arena_printf(fixture_arena, "%s, val_fraction: 0.2", yaml));
    tri_dataset *whole = opened(&all, TRI_DATA_TRAIN, 3), *train = opened(&some, TRI_DATA_TRAIN, 3);
    tri_dataset *alone = opened(&some, TRI_DATA_VAL, 3), *val;
    assert_int_equal(tri_dataset_open_validation(train, &val), TRI_OK);
    assert_int_equal(tri_dataset_samples(whole), total);
    assert_int_equal(tri_dataset_samples(val), (total + 2) / 5);
    assert_int_equal(tri_dataset_samples(alone), (total + 2) / 5);
    assert_int_equal(tri_dataset_samples(train), total - (total + 2) / 5);
    assert_int_equal(tri_dataset_classes(val, "labels"), tri_dataset_classes(whole, "labels"));
    tri_validation_split split = tri_validation_split_make(3, total, 0.2);
    for (int64_t i = 0; i < tri_dataset_samples(train); i++)
        assert_same(train, i, whole, tri_training_sample(&split, i));
    for (int64_t i = 0; i < tri_dataset_samples(val); i++) {
        assert_same(val, i, whole, tri_validation_sample(&split, i));
        assert_same(val, i, alone, i);
    }
    tri_dataset_close(val);
    tri_dataset_close(alone);
    tri_dataset_close(train);
    tri_dataset_close(whole);
}

static void put_tensors(const char *name, int count) {
    float inputs[64];
    for (int i = 0; i < count; i++) inputs[i] = (float)(100 * count + i);
    const tri_safetensors_spec spec = {"inputs", TRI_F32, tri_shape_of(count, 1)};
    const void *data[] = {inputs};
    assert_int_equal(tri_safetensors_write(fixture_path(name), &spec, data, 1, NULL, 0), TRI_OK);
}

static void test_kinds(void **state) {
    fixture_put_idx("train", 50);
    fixture_put("text.txt", "the quick brown fox jumps over the lazy dog", 42);
    put_tensors("train", 33);
    check_kind("name: idx", 50);
    check_kind("name: idx, limit: 20", 20); // the limit is applied before the fraction
    check_kind("name: tensors, train: train", 33);
    check_kind("name: tokens, train: text.txt, sequence: 3", 14);
    check_kind("name: synthetic, samples: 40, shape: [2, 3]", 40);
}

static void test_own_files(void **state) {
    fixture_put_idx("train", 20);
    fixture_put_idx("held", 7);
    fixture_put("text.txt", "0123456789", 10);
    fixture_put("held.txt", "abcdef", 6);
    put_tensors("train", 5);
    put_tensors("held", 4);
    static const struct {
        const char *yaml;
        int64_t samples;
    } rows[] = {{"name: idx, val: held, limit: 2", 7},
                {"name: tensors, train: train, val: held", 4},
                {"name: tokens, train: text.txt, val: held.txt, sequence: 3", 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_data_options options = fixture_options(rows[i].yaml);
        assert_true(tri_data_has(&options, TRI_DATA_VAL));
        tri_dataset *train = opened(&options, TRI_DATA_TRAIN, 1), *val;
        assert_int_equal(tri_dataset_open_validation(train, &val), TRI_OK);
        assert_int_equal(tri_dataset_samples(val), rows[i].samples);
        tri_dataset_close(train);
        tri_dataset_close(val);
    }
}

// Random transforms do not act on validation samples.
static void test_transforms(void **state) {
    fixture_put_idx("train", 40);
    const char *flip = "name: idx, transform: [random_horizontal_flip: {probability: 1}]";
    tri_data_options plain = fixture_options("name: idx, val_fraction: 0.25");
    tri_data_options flipped =
        fixture_options(tri_arena_printf(fixture_arena, "%s, val_fraction: 0.25", flip));
    tri_dataset *as_is = opened(&plain, TRI_DATA_VAL, 1), *val = opened(&flipped, TRI_DATA_VAL, 1);
    for (int64_t i = 0; i < tri_dataset_samples(val); i++) assert_same(as_is, i, val, i);
    tri_dataset_close(as_is);
    tri_dataset_close(val);
}

// An epoch of training has every training sample once.
static void test_epoch(void **state) {
    tri_data_options options =
        fixture_options("name: synthetic, samples: 103, val_fraction: 0.1, shape: [1]");
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN, 5);
    tri_sampler sampler;
    tri_sampler_options sampling = {
        .samples = tri_dataset_samples(train), .global = 8, .replicas = 1, .seed = 5};
    assert_int_equal(tri_sampler_make(&sampling, &sampler), TRI_OK);
    tri_loader *loader;
    tri_loader_options loading = {.end_epoch = 1};
    assert_int_equal(tri_loader_create(train, &sampler, &loading, &loader), TRI_OK);
    uint8_t seen[103] = {0};
    int64_t count = 0;
    tri_validation_split split = tri_validation_split_make(5, 103, 0.1);
    const tri_data_batch *batch;
    for (;;) {
        assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
        if (!batch) break;
        for (int64_t i = 0; i < batch->micro.size; i++, count++)
            seen[tri_training_sample(&split, batch->samples[i])]++;
        tri_loader_release(loader, batch);
    }
    tri_loader_destroy(loader);
    tri_dataset_close(train);
    assert_int_equal(count, 93);
    for (int64_t i = 0; i < split.validation_samples; i++) seen[tri_validation_sample(&split, i)]++;
    for (int i = 0; i < 103; i++) assert_int_equal(seen[i], 1);
}

static void refuse(const char *yaml, const char *words) {
    tri_data_options options;
    tri_dataset *dataset;
    const char *text = tri_arena_printf(fixture_arena, "{%s}", yaml);
    tri_status status = fixture_try_options(text, &options);
    if (status == TRI_OK) status = tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &dataset);
    assert_int_equal(status, TRI_BAD_INPUT);
    if (!strstr(tri_error_message(), words))
        fail_msg("'%s' lacks '%s'", tri_error_message(), words);
}

static void test_refused(void **state) {
    refuse("name: synthetic, val_fraction: 1.0", "less than 1");
    refuse("name: synthetic, val_fraction: -0.1", "val_fraction");
    refuse("name: synthetic, val_fraction: .nan", "val_fraction");
    refuse("name: synthetic, val: file", "val_fraction");
    refuse("name: idx, val: file, val_fraction: 0.1", "exclude each other");
    refuse("name: synthetic, samples: 1, val_fraction: 0.1", "data.val_fraction=0.1 of 1 ");
    refuse("name: synthetic, limit: 1, val_fraction: 0.1", "data.val_fraction=0.1 of 1 ");
    refuse("name: synthetic, samples: 3, val_fraction: 0.999", "data.val_fraction=0.999 of 3 ");
    tri_data_options options = fixture_options("name: synthetic");
    tri_dataset *dataset;
    assert_false(tri_data_has(&options, TRI_DATA_VAL));
    assert_int_equal(tri_dataset_open(&options, TRI_DATA_VAL, 1, &dataset), TRI_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subsets),
        cmocka_unit_test(test_is_random),
        cmocka_unit_test_setup_teardown(test_kinds, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_own_files, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_transforms, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_epoch, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_refused, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

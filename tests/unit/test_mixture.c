// Tests data sets that are mixed of several sources: how often each sample comes, and when.
#include "data/check.h"
#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/dataset_cases.h"

enum { FIRST = 7, SECOND = 3, TOTAL = FIRST + SECOND };

static int setup(void **state) {
    if (fixture_setup(state)) return 1;
    fixture_put_idx("a", FIRST);
    fixture_put_idx("b", SECOND);
    fixture_put_idx("c", 4);
    return 0;
}

#define SOURCES(a, b) "name: mixture, mix: [{name: idx, train: a" a "}, {name: idx, train: b" b "}]"

// Counts, by sample of the source, how often an epoch has it; pixel 0 of sample i is 7 i. The
// epoch's samples from `first` up to `end` are the source's.
static void count(const tri_dataset *dataset, int64_t epoch, int first, int end, int *counts) {
    float pixels[6];
    for (int i = first; i < end; i++) {
        assert_int_equal(fixture_read(dataset, 0, i, epoch, pixels), TRI_OK);
        counts[(int)(pixels[0] * 255.0f / 7.0f + 0.5f)]++;
    }
}

// Without weights, every sample comes once.
static void test_all(void **state) {
    tri_data_options options = fixture_options(SOURCES("", ""));
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(tri_dataset_samples(dataset), TOTAL);
    assert_int_equal(tri_dataset_classes(dataset, "labels"), FIRST);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int a[FIRST] = {0}, b[SECOND] = {0};
        count(dataset, epoch, 0, FIRST, a);
        count(dataset, epoch, FIRST, TOTAL, b);
        for (int i = 0; i < FIRST; i++) assert_int_equal(a[i], 1);
        for (int i = 0; i < SECOND; i++) assert_int_equal(b[i], 1);
    }
    tri_dataset_close(dataset);
}

// Of 10 samples, weights of 1 and 2 give 3.3 and 6.7: 3 and 7. In an epoch, each sample comes a
// whole number of times or once more; over as many epochs as samples, all come equally often.
static void test_weights(void **state) {
    enum { PART = 3, EPOCHS = FIRST * SECOND };
    tri_data_options options = fixture_options(SOURCES(", weight: 1", ", weight: 2"));
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    int all_a[FIRST] = {0}, all_b[SECOND] = {0};
    assert_int_equal(tri_dataset_samples(dataset), TOTAL);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int a[FIRST] = {0}, b[SECOND] = {0};
        count(dataset, epoch, 0, PART, a);
        count(dataset, epoch, PART, TOTAL, b);
        for (int i = 0; i < FIRST; i++) {
            assert_true(a[i] <= 1);
            all_a[i] += a[i];
        }
        for (int i = 0; i < SECOND; i++) {
            assert_true(b[i] == 2 || b[i] == 3);
            all_b[i] += b[i];
        }
    }
    for (int i = 0; i < FIRST; i++) assert_int_equal(all_a[i], EPOCHS * PART / FIRST);
    for (int i = 0; i < SECOND; i++) assert_int_equal(all_b[i], EPOCHS * (TOTAL - PART) / SECOND);
    tri_dataset_close(dataset);
}

// Checks read every sample once, whatever the weights; a run on a few samples has those of epoch 0.
static void test_epochs(void **state) {
    tri_data_options options = fixture_options(SOURCES(", weight: 1", ", weight: 2"));
    tri_data_report report;
    assert_int_equal(tri_data_check(fixture_arena, &options, TRI_DATA_TRAIN, 1, &report), TRI_OK);
    assert_int_equal(report.classes, FIRST);
    for (int i = 0; i < FIRST; i++) assert_int_equal(report.class_counts[i], i < SECOND ? 2 : 1);
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    bool differs = false;
    for (int i = 0; i < TOTAL; i++) {
        float pixels[6];
        int64_t stored = tri_dataset_at_epoch(dataset, i, 1);
        assert_int_equal(fixture_read(dataset, 0, i, 1, pixels), TRI_OK);
        assert_int_equal((int)(pixels[0] * 255.0f / 7.0f + 0.5f), stored % FIRST);
        differs |= stored != tri_dataset_at_epoch(dataset, i, 0);
    }
    assert_true(differs);
    tri_dataset_repeat_epoch(dataset);
    for (int i = 0; i < TOTAL; i++)
        assert_int_equal(tri_dataset_at_epoch(dataset, i, 1), tri_dataset_at_epoch(dataset, i, 0));
    tri_dataset_close(dataset);
}

// Test data are those of all sources, once each, whatever the weights.
static void test_other_splits(void **state) {
    tri_data_options options =
        fixture_options(SOURCES(", test: c, weight: 1", ", test: b, weight: 9"));
    tri_dataset *dataset = opened(&options, TRI_DATA_TEST);
    assert_int_equal(tri_dataset_samples(dataset), 4 + SECOND);
    tri_dataset_close(dataset);
}

// A split has the samples of the sources that name it: never training samples in their place.
static void test_named_splits(void **state) {
    tri_data_options none = fixture_options(SOURCES("", "")),
                     second = fixture_options(SOURCES("", ", val: c")),
                     both = fixture_options(SOURCES(", val: a", ", val: c, test: b"));
    assert_false(tri_data_has(&none, TRI_DATA_VAL) || tri_data_has(&none, TRI_DATA_TEST));
    assert_true(tri_data_has(&second, TRI_DATA_VAL) && !tri_data_has(&second, TRI_DATA_TEST));
    assert_true(tri_data_has(&both, TRI_DATA_VAL) && tri_data_has(&both, TRI_DATA_TEST));
    const struct {
        const tri_data_options *options;
        tri_data_split split;
        int64_t samples;
    } rows[] = {{&second, TRI_DATA_VAL, 4},
                {&both, TRI_DATA_VAL, FIRST + 4},
                {&both, TRI_DATA_TEST, SECOND}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_dataset *dataset = opened(rows[i].options, rows[i].split);
        assert_int_equal(tri_dataset_samples(dataset), rows[i].samples);
        tri_dataset_close(dataset);
    }
    refuse(SOURCES("", ""), TRI_DATA_TEST, TRI_NOT_FOUND, "data.mix|test");
}

// What belongs to all sources is set for the whole, and what has no effect is refused.
static void test_settings(void **state) {
    static const char *const of_all[] = {"mix: [{name: idx}]",  "shapes: {images: [1, 2, 3]}",
                                         "transform: [resize]", "extra_fields: {x: f32}",
                                         "on_error: skip",      "val_fraction: 0.5"};
    static const char *const of_sources[] = {"train", "val", "test"};
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++)
        refuse(tri_arena_printf(fixture_arena, "name: mixture, mix: [{name: idx, train: a, %s}]",
                                of_all[i]),
               TRI_DATA_TRAIN, TRI_BAD_INPUT, "data");
    for (size_t i = 0; i < sizeof of_sources / sizeof *of_sources; i++)
        refuse(tri_arena_printf(fixture_arena, SOURCES("", "") ", %s: c", of_sources[i]),
               TRI_DATA_TRAIN, TRI_BAD_INPUT, of_sources[i]);
    refuse(SOURCES(", sequence: 3", ""), TRI_DATA_TRAIN, TRI_BAD_INPUT, "sequence");
    refuse(SOURCES(", weight: 1000", ", weight: 1"), TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "weight|source 2");
    fixture_put("text", "abcdefghij", 10);
    tri_data_options text =
        fixture_options("name: mixture, sequence: 3, mix: [{name: tokens, train: text}]");
    assert_true(tri_data_is_text(&text) && !tri_data_is_text(&(tri_data_options){.name = "idx"}));
    assert_true(tri_data_is_text(&(tri_data_options){.name = "jsonl"}));
    tri_dataset *dataset = opened(&text, TRI_DATA_TRAIN);
    assert_int_equal(tri_dataset_samples(dataset), 3);
    bool is_usual;
    assert_non_null(strstr(tri_dataset_rest(dataset, &is_usual), "1 token"));
    assert_true(is_usual);
    tri_dataset_close(dataset);
}

// Plans know the fields where all sources have known ones.
static void test_described(void **state) {
    tri_data_options known = fixture_options("transform: [resize: [4, 5]], name: mixture, mix: "
                                             "[{name: imagefolder}, {name: webdataset}]"),
                     unknown = fixture_options("transform: [resize: [4, 5]], name: mixture, "
                                               "mix: [{name: imagefolder}, {name: npy}]");
    tri_data_field fields[TRI_MAX_DATA_FIELDS];
    int count;
    bool is_guess;
    assert_int_equal(tri_data_describe(&known, fields, &count, &is_guess), TRI_OK);
    assert_int_equal(count, 2);
    assert_string_equal(fields[0].name, "images");
    assert_int_equal(fields[0].shape.dims[1], 4);
    assert_int_equal(tri_data_describe(&unknown, fields, &count, &is_guess), TRI_OK);
    assert_int_equal(count, 0);
    // What `data check` prints of images whose sizes differ.
    tri_data_options said =
        fixture_options("transform: [resize: [4, 5]], name: mixture, mix: [{name: npy}], "
                        "shapes: {images: [3, -1, -1], labels: []}");
    assert_int_equal(tri_data_describe(&said, fields, &count, &is_guess), TRI_OK);
    assert_int_equal(count, 2);
    assert_int_equal(fields[0].shape.dims[1], 4);
    static const char *const bad[] = {"images: [-1, 4, 4]", "inputs: [3, -1, -1]", "labels: [-1]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(
            fixture_try_options(
                tri_arena_printf(fixture_arena, "{name: npy, shapes: {%s}}", bad[i]), &said),
            TRI_BAD_INPUT);
}

static void test_refuses(void **state) {
    refuse("name: mixture", TRI_DATA_TRAIN, TRI_BAD_INPUT, "data.mix");
    refuse("name: mixture, mix: []", TRI_DATA_TRAIN, TRI_BAD_INPUT, "data.mix");
    refuse(SOURCES(", weight: 0", ", weight: 1"), TRI_DATA_TRAIN, TRI_BAD_INPUT, "weight");
    refuse(SOURCES(", weight: 1", ""), TRI_DATA_TRAIN, TRI_BAD_INPUT, "weight");
    refuse(SOURCES(", limit: 3", ""), TRI_DATA_TRAIN, TRI_BAD_INPUT, "limit");
    refuse(SOURCES("", "") ", limit: 3", TRI_DATA_TRAIN, TRI_BAD_INPUT, "data.limit");
    refuse(SOURCES("", "") ", val_fraction: 0.5", TRI_DATA_VAL, TRI_BAD_INPUT, "val_fraction");
    refuse("name: mixture, mix: [{name: nope}]", TRI_DATA_TRAIN, TRI_BAD_INPUT, "nope");
    refuse("name: mixture, mix: [{name: idx, train: a}, {name: synthetic, samples: 3}]",
           TRI_DATA_TRAIN, TRI_BAD_INPUT, "source 2");
    refuse("name: mixture, mix: [{name: idx, train: nope}]", TRI_DATA_TRAIN, TRI_NOT_FOUND, "nope");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),          cmocka_unit_test(test_weights),
        cmocka_unit_test(test_epochs),       cmocka_unit_test(test_other_splits),
        cmocka_unit_test(test_named_splits), cmocka_unit_test(test_settings),
        cmocka_unit_test(test_described),    cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}

// Tests data sets that are mixed of several sources: how often each sample comes, and when.
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

#define SOURCES(a, b)                                                                              \
    "name: mixture, sources: [{name: idx, train: a" a "}, {name: idx, train: b" b "}]"

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

// Test data are those of all sources, once each, whatever the weights.
static void test_other_splits(void **state) {
    tri_data_options options =
        fixture_options(SOURCES(", test: c, weight: 1", ", test: b, weight: 9"));
    tri_dataset *dataset = opened(&options, TRI_DATA_TEST);
    assert_int_equal(tri_dataset_samples(dataset), 4 + SECOND);
    tri_dataset_close(dataset);
}

static void test_refuses(void **state) {
    refuse("name: mixture", TRI_DATA_TRAIN, TRI_BAD_INPUT, "data.sources");
    refuse("name: mixture, sources: []", TRI_DATA_TRAIN, TRI_BAD_INPUT, "data.sources");
    refuse(SOURCES(", weight: 0", ", weight: 1"), TRI_DATA_TRAIN, TRI_BAD_INPUT, "weight");
    refuse(SOURCES(", weight: 1", ""), TRI_DATA_TRAIN, TRI_BAD_INPUT, "weight");
    refuse(SOURCES(", limit: 3", ""), TRI_DATA_TRAIN, TRI_BAD_INPUT, "limit");
    refuse(SOURCES("", "") ", limit: 3", TRI_DATA_TRAIN, TRI_BAD_INPUT, "data.limit");
    refuse(SOURCES("", "") ", val_fraction: 0.5", TRI_DATA_VAL, TRI_BAD_INPUT, "val_fraction");
    refuse("name: mixture, sources: [{name: nope}]", TRI_DATA_TRAIN, TRI_BAD_INPUT, "nope");
    refuse("name: mixture, sources: [{name: idx, train: a}, {name: synthetic, samples: 3}]",
           TRI_DATA_TRAIN, TRI_BAD_INPUT, "source 2");
    refuse("name: mixture, sources: [{name: idx, train: nope}]", TRI_DATA_TRAIN, TRI_NOT_FOUND,
           "nope");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_other_splits),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}

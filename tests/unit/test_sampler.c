// Tests the order of samples and their division among replicas.
#include "data/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_is_permutation(void **state) {
    static const int64_t counts[] = {1,  2,  3,   4,   5,   7,    8,    9,     15,    16,   17,
                                     31, 33, 100, 127, 128, 1000, 4096, 10000, 60000, 65537};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            tri_permutation order = tri_permutation_make(seed, 5, counts[i]);
            uint8_t *seen = calloc((size_t)counts[i], 1);
            for (int64_t k = 0; k < counts[i]; k++) {
                int64_t at = tri_permutation_at(&order, k);
                assert_true(at >= 0 && at < counts[i]);
                assert_int_equal(seen[at]++, 0);
            }
            free(seen);
        }
    }
    tri_permutation order = tri_permutation_make(1, 0, INT64_C(1) << 60);
    assert_int_not_equal(tri_permutation_at(&order, 0), tri_permutation_at(&order, 1));
    assert_true(tri_permutation_at(&order, (INT64_C(1) << 60) - 1) >= 0);
}

static void test_epochs_and_seeds_differ(void **state) {
    enum { COUNT = 60000 };
    tri_permutation one = tri_permutation_make(1, 0, COUNT),
                    epoch = tri_permutation_make(1, 1, COUNT),
                    seed = tri_permutation_make(2, 0, COUNT),
                    again = tri_permutation_make(1, 0, COUNT);
    int same_epoch = 0, same_seed = 0, fixed = 0, neighbours = 0;
    double correlation = 0;
    for (int64_t k = 0; k < COUNT; k++) {
        int64_t at = tri_permutation_at(&one, k);
        assert_int_equal(at, tri_permutation_at(&again, k));
        same_epoch += at == tri_permutation_at(&epoch, k);
        same_seed += at == tri_permutation_at(&seed, k);
        fixed += at == k;
        if (k > 0) neighbours += llabs(at - tri_permutation_at(&one, k - 1)) == 1;
        correlation += ((double)at / COUNT - 0.5) * ((double)k / COUNT - 0.5) * 12 / COUNT;
    }
    // On average a random order leaves one item where it was and two pairs of neighbours together.
    // The standard deviation of its correlation with the old order is 1/√COUNT, about 1/245.
    assert_true(same_epoch < 8 && same_seed < 8 && fixed < 8 && neighbours < 12);
    assert_true(correlation > -0.02 && correlation < 0.02);
}

// How many standard deviations chi² lies above what equally likely cases give on average. `seen`
// has the counts of `cases` cases in `draws` draws.
static double excess(const int *seen, int cases, double draws) {
    double expected = draws / cases, chi = 0;
    for (int i = 0; i < cases; i++) chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    return (chi - (cases - 1)) / sqrt(2.0 * (cases - 1));
}

// The number of an order among all N! orders: digit k of a mixed base counts later, smaller items.
static int number_of(const tri_permutation *order) {
    int number = 0;
    for (int64_t k = 0; k < order->count; k++) {
        int smaller = 0;
        for (int64_t later = k + 1; later < order->count; later++)
            smaller += tri_permutation_at(order, later) < tri_permutation_at(order, k);
        number = number * (int)(order->count - k) + smaller;
    }
    return number;
}

// Over many epochs all orders of 2 to 6 items appear equally often.
static void test_small_orders_are_fair(void **state) {
    enum { EPOCHS = 40000, MOST_ORDERS = 720 };
    for (int64_t count = 2, orders = 2; count <= 6; orders *= ++count) {
        int seen[MOST_ORDERS] = {0};
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            tri_permutation order = tri_permutation_make(1, epoch, count);
            seen[number_of(&order)]++;
        }
        double above = excess(seen, (int)orders, EPOCHS);
        if (above > 4) fail_msg("orders of %lld items: %g", (long long)count, above);
    }
}

// With more items, all pairs follow each other equally often, and each item is equally often at
// each position.
static void test_neighbours_are_fair(void **state) {
    static const int64_t counts[] = {7, 8, 9, 16, 32, 64};
    enum { EPOCHS = 10000, MOST = 64 };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        static int pairs[MOST * MOST], places[MOST * MOST];
        int64_t count = counts[i];
        memset(pairs, 0, sizeof pairs);
        memset(places, 0, sizeof places);
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            tri_permutation order = tri_permutation_make(1, epoch, count);
            for (int64_t k = 0; k < count; k++) {
                int64_t item = tri_permutation_at(&order, k);
                places[k * count + item]++;
                if (k == 0) continue;
                int64_t before = tri_permutation_at(&order, k - 1);
                pairs[before * (count - 1) + item - (item > before)]++;
            }
        }
        double of_places = excess(places, (int)(count * count), (double)(EPOCHS * count)),
               of_pairs = excess(pairs, (int)(count * (count - 1)), (double)(EPOCHS * (count - 1)));
        if (of_places > 5 || of_pairs > 5)
            fail_msg("%lld items: places %g, pairs %g", (long long)count, of_places, of_pairs);
    }
}

// Checks that, however a step is divided, an epoch has every sample once, and the sizes and numbers
// of micro-batches are as specified.
static void walk(tri_sampler_options options, int64_t expected) {
    tri_sampler sampler;
    if (tri_sampler_make(&options, &sampler) != TRI_OK) fail_msg("%s", tri_error_message());
    int replicas = (int)sampler.options.replicas;
    uint8_t *seen = calloc((size_t)options.samples, 1);
    int64_t total = 0;
    tri_permutation order = tri_sampler_order(&sampler, 3);
    for (int64_t step = 0; step < sampler.steps; step++) {
        int64_t size = tri_sampler_step_size(&sampler, step);
        int64_t rounds = tri_micro_batch_rounds(size, options.micro, replicas), next_first = 0,
                batches = 0;
        int64_t most = tri_micro_batch_largest(size, options.micro, replicas);
        for (int64_t round = 0; round < rounds; round++) {
            for (int replica = 0; replica < replicas; replica++) {
                tri_micro_batch batch =
                    tri_micro_batch_of(size, options.micro, replicas, replica, round);
                if (batch.size == 0) continue;
                // It begins where the one before it ended.
                assert_int_equal(batch.first, next_first);
                assert_true(batch.size <= most);
                next_first += batch.size;
                batches++;
                for (int64_t k = 0; k < batch.size; k++)
                    assert_int_equal(
                        seen[tri_sampler_at(&sampler, &order, step, batch.first + k)]++, 0);
            }
        }
        assert_int_equal(next_first, size);
        assert_int_equal(batches, tri_micro_batch_count(size, options.micro, replicas));
        total += size;
    }
    assert_int_equal(total, expected);
    free(seen);
}

static void test_every_sample_once(void **state) {
    for (int64_t replicas = 1; replicas <= 5; replicas++) {
        for (int64_t micro = 0; micro <= 4; micro++) {
            for (int64_t samples = 1; samples < 70; samples += 3)
                walk(
                    (tri_sampler_options){
                        .samples = samples, .global = 17, .micro = micro, .replicas = replicas},
                    samples);
        }
        walk((tri_sampler_options){.samples = 60000, .global = 64, .replicas = replicas}, 60000);
        walk(
            (tri_sampler_options){
                .samples = 60000, .global = 64, .replicas = replicas, .keep_order = true},
            60000);
        walk(
            (tri_sampler_options){
                .samples = 60000, .global = 64, .replicas = replicas, .drop_last = true},
            59968);
    }
}

static void test_division(void **state) {
    tri_micro_batch batch = tri_micro_batch_of(32, 0, 3, 0, 0);
    assert_true(batch.first == 0 && batch.size == 11);
    batch = tri_micro_batch_of(32, 0, 3, 2, 0);
    assert_true(batch.first == 22 && batch.size == 10);
    batch = tri_micro_batch_of(2, 0, 3, 2, 0);
    assert_true(batch.size == 0);
    assert_int_equal(tri_micro_batch_rounds(64, 10, 2), 4);
    batch = tri_micro_batch_of(64, 10, 2, 0, 3);
    assert_true(batch.index == 6 && batch.first == 60 && batch.size == 4);
    batch = tri_micro_batch_of(64, 10, 2, 1, 3);
    assert_int_equal(batch.size, 0);
}

static void refuse(tri_sampler_options options, const char *words) {
    tri_sampler sampler;
    assert_int_equal(tri_sampler_make(&options, &sampler), TRI_BAD_INPUT);
    if (!strstr(tri_error_message(), words))
        fail_msg("'%s' lacks '%s'", tri_error_message(), words);
}

static void test_refuses(void **state) {
    refuse((tri_sampler_options){.samples = 100, .global = 3, .replicas = 4},
           "batch.global to 4 or more");
    refuse((tri_sampler_options){.samples = 100, .global = 64, .micro = 64, .replicas = 2},
           "batch.micro to 63");
    refuse((tri_sampler_options){.samples = 100, .global = 64, .micro = 32, .replicas = 3},
           "batch.global to 65");
    refuse((tri_sampler_options){.samples = 100, .global = 64, .micro = 32, .replicas = 3},
           "batch.micro to 31");
    refuse((tri_sampler_options){.samples = 63, .global = 64, .drop_last = true}, "data.drop_last");
    refuse((tri_sampler_options){.samples = 0, .global = 64}, "no samples");
    refuse((tri_sampler_options){.samples = 5}, "batch.global");
    // The settings that the messages advise are accepted.
    assert_int_equal(tri_sampler_check_step(64, 63, 2), TRI_OK);
    assert_int_equal(tri_sampler_check_step(64, 31, 3), TRI_OK);
    assert_int_equal(tri_sampler_check_step(65, 32, 3), TRI_OK);
}

static void test_evaluation(void **state) {
    for (int64_t replicas = 1; replicas <= 4; replicas++) {
        tri_sampler sampler;
        assert_int_equal(tri_sampler_make_evaluation(1003, 100, 64, 0, replicas, &sampler), TRI_OK);
        int64_t rounds = tri_micro_batch_rounds(1003, sampler.options.micro, replicas), total = 0;
        for (int64_t round = 0; round < rounds; round++)
            for (int64_t replica = 0; replica < replicas; replica++) {
                tri_micro_batch batch = tri_micro_batch_of(1003, 100, replicas, replica, round);
                assert_int_equal(batch.first, batch.size ? total : 1003);
                total += batch.size;
            }
        assert_int_equal(total, 1003);
        assert_int_equal(tri_sampler_at(&sampler, NULL, 0, 77), 77);
    }
    tri_sampler chosen;
    assert_int_equal(tri_sampler_make_evaluation(1000, 0, 64, 16, 1, &chosen), TRI_OK);
    assert_int_equal(chosen.options.micro, 16);
    assert_int_equal(tri_sampler_make_evaluation(3, 0, 64, 0, 8, &chosen), TRI_OK);
    assert_int_equal(chosen.options.micro, 3);
    assert_int_equal(tri_sampler_make_evaluation(0, 0, 64, 0, 1, &chosen), TRI_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_permutation),
        cmocka_unit_test(test_epochs_and_seeds_differ),
        cmocka_unit_test(test_small_orders_are_fair),
        cmocka_unit_test(test_neighbours_are_fair),
        cmocka_unit_test(test_every_sample_once),
        cmocka_unit_test(test_division),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests that a loop that threads share does every item exactly once, also where threads cannot be
// started.
#include "base/parallel.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS = 1000 };

static int threads_left; // how many threads can still be started
static _Atomic int calls;

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context) {
    if (threads_left-- <= 0) return 11; // EAGAIN
    return __real_pthread_create(thread, attributes, body, context);
}

static void count_items(void *context, int64_t first, int64_t end) {
    int *done = context;
    calls++;
    for (int64_t i = first; i < end; i++) done[i]++;
}

// Returns the number of calls that did all items.
static int loop(int threads, int64_t count, int64_t grain, int startable) {
    int done[ITEMS + 1] = {0};
    threads_left = startable;
    calls = 0;
    tri_parallel_for(threads, count, grain, count_items, done);
    for (int64_t i = 0; i <= ITEMS; i++) assert_int_equal(done[i], i < count);
    return calls;
}

static void test_every_item_once(void **state) {
    (void)state;
    for (int threads = 1; threads < 100; threads += 1 + threads / 4)
        for (int64_t count = 0; count <= ITEMS; count += 1 + count / 3)
            (void)loop(threads, count, 1, 100);
}

static void test_parts(void **state) {
    (void)state;
    assert_int_equal(loop(4, 0, 1, 100), 0);
    assert_int_equal(loop(4, 1000, 1, 100), 4);
    assert_int_equal(loop(4, 1000, 400, 100), 2); // each part has at least 400 items
    assert_int_equal(loop(4, 1000, 2000, 100), 1);
    assert_int_equal(loop(0, 1000, 1, 100), 1);
    assert_true(tri_parallel_threads() >= 1);
}

static void test_no_threads(void **state) {
    (void)state;
    for (int startable = 0; startable < 8; startable++)
        assert_int_equal(loop(8, 1000, 1, startable), 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_item_once),
                                       cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_no_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

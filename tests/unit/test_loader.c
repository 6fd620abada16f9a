// Checks that the loader returns the same micro-batches with any number of threads, and when it
// begins at any step of a run.
#include "data/loader.h"
#include "format/safetensors.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/data_fixture.h"

enum { SAMPLES = 301, PIXELS = 6 };

static tri_data_options options;
static tri_dataset *dataset;

static int setup(void **state) {
    if (fixture_setup(state)) return 1;
    fixture_put_idx("train", SAMPLES);
    options = fixture_options("name: idx, transform: [random_horizontal_flip]");
    return tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &dataset) != TRI_OK;
}

static int teardown(void **state) {
    tri_dataset_close(dataset);
    tri_os = tri_os_system;
    return fixture_teardown(state);
}

static tri_sampler sampler_of(int64_t global, int64_t micro, int64_t replicas) {
    tri_sampler sampler;
    const tri_sampler_options wanted = {.samples = tri_dataset_samples(dataset),
                                        .global = global,
                                        .micro = micro,
                                        .replicas = replicas,
                                        .seed = 3};
    if (tri_sampler_make(&wanted, &sampler) != TRI_OK) fail_msg("%s", tri_error_message());
    return sampler;
}

static tri_loader *loader_of(const tri_sampler *sampler, tri_loader_options wanted) {
    tri_loader *loader;
    if (tri_loader_create(dataset, sampler, &wanted, &loader) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return loader;
}

static const tri_data_batch *next(tri_loader *loader) {
    const tri_data_batch *batch;
    if (tri_loader_next(loader, &batch) != TRI_OK) fail_msg("%s", tri_error_message());
    return batch;
}

static void expect_same(const tri_data_batch *a, const tri_data_batch *b) {
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->round, b->round);
    assert_memory_equal(&a->micro, &b->micro, sizeof a->micro);
    assert_memory_equal(a->samples, b->samples, (size_t)a->micro.size * sizeof *a->samples);
    assert_memory_equal(a->fields[0], b->fields[0], (size_t)a->micro.size * PIXELS * sizeof(float));
    assert_memory_equal(a->fields[1], b->fields[1], (size_t)a->micro.size * sizeof(int64_t));
}

// Checks that a batch holds the fields of its samples.
static void expect_content(const tri_data_batch *batch) {
    const float *pixels = batch->fields[0];
    const int64_t *labels = batch->fields[1];
    assert_int_equal((uintptr_t)pixels % 64, 0);
    for (int64_t i = 0; i < batch->micro.size; i++) {
        int64_t sample = batch->samples[i];
        assert_int_equal(labels[i], sample % 10);
        float middle =
            (float)((7 * sample + 1) % 256) / 255.0f; // a flip does not move the middle column
        assert_true(pixels[PIXELS * i + 1] == middle);
    }
}

static void test_each_sample_once(void **state) {
    static const struct {
        int64_t global, micro, replicas, workers;
    } cases[] = {{64, 0, 1, 0},   {64, 0, 1, 3}, {64, 0, 3, 1},  {50, 7, 3, 2},
                 {301, 10, 4, 2}, {7, 0, 7, 1},  {1000, 9, 2, 4}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tri_sampler sampler = sampler_of(cases[c].global, cases[c].micro, cases[c].replicas);
        uint8_t seen[2][SAMPLES] = {0};
        for (int64_t replica = 0; replica < cases[c].replicas; replica++) {
            tri_loader *loader = loader_of(
                &sampler, (tri_loader_options){
                              .replica = replica, .workers = cases[c].workers, .end_epoch = 2});
            for (const tri_data_batch *batch; (batch = next(loader));
                 tri_loader_release(loader, batch)) {
                expect_content(batch);
                for (int64_t i = 0; i < batch->micro.size; i++)
                    seen[batch->epoch][batch->samples[i]]++;
            }
            assert_null(next(loader)); // further calls return no batch either
            tri_loader_destroy(loader);
        }
        for (int i = 0; i < SAMPLES; i++) assert_true(seen[0][i] == 1 && seen[1][i] == 1);
    }
}

static void test_resumes_anywhere(void **state) {
    tri_sampler sampler = sampler_of(40, 9, 2);
    tri_loader *whole = loader_of(
        &sampler, (tri_loader_options){.replica = 1, .workers = 2, .end_epoch = 2, .hold = 3});
    int locations = 0;
    for (const tri_data_batch *batch; (batch = next(whole));
         tri_loader_release(whole, batch), locations++) {
        for (int64_t workers = 0; workers <= 2; workers++) {
            tri_loader *resumed = loader_of(&sampler, (tri_loader_options){.replica = 1,
                                                                           .workers = workers,
                                                                           .epoch = batch->epoch,
                                                                           .step = batch->step,
                                                                           .round = batch->round,
                                                                           .end_epoch = 2});
            expect_same(next(resumed), batch);
            tri_loader_destroy(resumed);
        }
    }
    // Two epochs. Each has 7 steps of 40 samples, in 2 micro-batches of this replica, and one step
    // of 21 samples, in 1 of them; the other replica has one more in each.
    assert_int_equal(locations, 2 * (7 * 2 + 1));
    tri_loader_destroy(whole);
}

// A replica without samples in a round can hold the batches before and behind it, in no more
// buffers than it may hold; one that never has samples gets nothing.
static void test_holds_around_empty_rounds(void **state) {
    tri_sampler sampler = sampler_of(30, 10, 2); // rounds of 20 and 10 samples; at last 1 sample
    for (int64_t workers = 0; workers < 2; workers++) {
        tri_loader *loader = loader_of(
            &sampler,
            (tri_loader_options){.replica = 1, .workers = workers, .hold = 2, .end_epoch = 2});
        const tri_data_batch *before = next(loader), *batch;
        int count = 1;
        for (; (batch = next(loader)); count++, before = batch) {
            assert_true(batch->round == 0 && batch->micro.size == 10);
            expect_content(before);
            tri_loader_release(loader, before);
        }
        assert_int_equal(count, 2 * (SAMPLES / 30));
        tri_loader_release(loader, before);
        tri_loader_destroy(loader);
    }
    assert_int_equal(tri_sampler_make_evaluation(2, 0, 64, 0, 3, &sampler), TRI_OK);
    for (int64_t workers = 0; workers < 2; workers++) {
        tri_loader *loader =
            loader_of(&sampler, (tri_loader_options){.replica = 2, .workers = workers});
        assert_null(next(loader));
        tri_loader_destroy(loader);
    }
}

// Holds several batches and releases them in another order.
static void test_holds(void **state) {
    tri_sampler sampler = sampler_of(20, 5, 1);
    tri_loader *loader = loader_of(&sampler, (tri_loader_options){.workers = 2, .hold = 4});
    tri_loader *plain = loader_of(&sampler, (tri_loader_options){0});
    for (int group = 0; group < 20; group++) {
        const tri_data_batch *held[4];
        for (int i = 0; i < 4; i++) held[i] = next(loader);
        for (int i = 0; i < 4; i++) {
            const tri_data_batch *expected = next(plain);
            expect_same(held[i], expected);
            tri_loader_release(plain, expected);
        }
        for (int i = 0; i < 4; i++) tri_loader_release(loader, held[(i * 3 + group) % 4]);
    }
    tri_loader_destroy(loader);
    tri_loader_destroy(plain);
}

static void test_limits_and_empty_rounds(void **state) {
    tri_sampler sampler = sampler_of(64, 0, 1);
    tri_loader *loader = loader_of(
        &sampler, (tri_loader_options){.steps_per_epoch = 2, .end_epoch = 3, .workers = 1});
    for (int i = 0; i < 6; i++) {
        const tri_data_batch *batch = next(loader);
        assert_true(batch->epoch == i / 2 && batch->step == i % 2);
        tri_loader_release(loader, batch);
    }
    assert_null(next(loader));
    tri_loader_destroy(loader);

    sampler = sampler_of(300, 0, 3); // step 1 has only one sample, for three replicas
    loader = loader_of(&sampler, (tri_loader_options){.replica = 2, .end_epoch = 1, .workers = 1});
    const tri_data_batch *batch = next(loader);
    assert_int_equal(batch->micro.size, 100);
    tri_loader_release(loader, batch);
    assert_null(next(loader));
    tri_loader_destroy(loader);
}

static ssize_t failing_pread(int fd, void *data, size_t size, off_t offset) {
    errno = EIO;
    return -1;
}

static void test_errors_reach_the_caller(void **state) {
    tri_dataset *kept = dataset;
    static const float zeros[8];
    const tri_safetensors_spec inputs = {"inputs", TRI_F32, tri_shape_of(8, 1)};
    const void *data = zeros;
    assert_int_equal(tri_safetensors_write(fixture_path("train"), &inputs, &data, 1, NULL, 0),
                     TRI_OK);
    tri_data_options tensors = fixture_options("name: tensors, train: train");
    assert_int_equal(tri_dataset_open(&tensors, TRI_DATA_TRAIN, 1, &dataset), TRI_OK);
    tri_sampler sampler = sampler_of(4, 0, 1);
    for (int64_t workers = 0; workers <= 2; workers++) {
        tri_os.pread = failing_pread;
        tri_loader *loader = loader_of(&sampler, (tri_loader_options){.workers = workers});
        for (int i = 0; i < 2; i++) {
            const tri_data_batch *batch;
            assert_int_equal(tri_loader_next(loader, &batch), TRI_IO);
            assert_null(batch);
            assert_non_null(strstr(tri_error_message(), fixture_path("train")));
            assert_non_null(strstr(tri_error_message(), "inputs"));
        }
        tri_loader_destroy(loader);
        tri_os.pread = tri_os_system.pread;
    }
    tri_dataset_close(dataset);
    dataset = kept;
}

// A file that another process truncates while it is open leads to an error, with and without
// threads.
static void test_shortened_files(void **state) {
    tri_dataset *kept = dataset;
    static const float zeros[64];
    const tri_safetensors_spec inputs = {"inputs", TRI_F32, tri_shape_of(64, 1)};
    const void *data = zeros;
    static const char *const recipes[] = {"name: tokens, train: data, dtype: u16, sequence: 2",
                                          "name: tensors, train: data"};
    for (int kind = 0; kind < 2; kind++)
        for (int64_t workers = 0; workers <= 2; workers++) {
            fixture_put("data", zeros, sizeof zeros);
            if (kind == 1)
                assert_int_equal(
                    tri_safetensors_write(fixture_path("data"), &inputs, &data, 1, NULL, 0),
                    TRI_OK);
            tri_data_options some = fixture_options(recipes[kind]);
            assert_int_equal(tri_dataset_open(&some, TRI_DATA_TRAIN, 1, &dataset), TRI_OK);
            assert_int_equal(truncate(fixture_path("data"), 2), 0);
            tri_sampler sampler = sampler_of(4, 0, 1);
            tri_loader *loader = loader_of(&sampler, (tri_loader_options){.workers = workers});
            const tri_data_batch *batch;
            assert_int_equal(tri_loader_next(loader, &batch), TRI_IO);
            assert_non_null(strstr(tri_error_message(), fixture_path("data")));
            tri_loader_destroy(loader);
            tri_dataset_close(dataset);
        }
    dataset = kept;
}

static volatile sig_atomic_t handled_by_main;
static pthread_t main_thread;
static void on_signal(int number) {
    handled_by_main = pthread_equal(pthread_self(), main_thread) ? 1 : -1;
}

static void test_threads_take_no_signals(void **state) {
    tri_sampler sampler = sampler_of(4, 0, 1);
    tri_loader *loader = loader_of(&sampler, (tri_loader_options){.workers = 4});
    main_thread = pthread_self();
    signal(SIGTERM, on_signal);
    for (int i = 0; i < 50; i++) {
        handled_by_main = 0;
        kill(getpid(), SIGTERM);
        assert_int_equal(handled_by_main, 1);
        tri_loader_release(loader, next(loader));
    }
    signal(SIGTERM, SIG_DFL);
    assert_true(tri_loader_waited_ns(loader) > 0);
    tri_loader_destroy(loader);
    tri_loader_destroy(NULL);
}

static int64_t memory_bytes(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

// Writes an array of `count` rows of four bytes, which are zeros that take no room on the disk.
static void put_hollow_array(const char *name, int64_t count) {
    char head[128];
    int length =
        snprintf(head, sizeof head,
                 "\x93NUMPY\x01%cv%c{'descr': '|u1', 'fortran_order': False, 'shape': (%lld, 4)}",
                 0, 0, (long long)count);
    memset(head + length, ' ', sizeof head - (size_t)length);
    head[sizeof head - 1] = '\n';
    fixture_put(name, head, sizeof head);
    assert_int_equal(truncate(fixture_path(name), (off_t)sizeof head + 4 * count), 0);
}

// An epoch of ten billion samples takes no memory, in random order and from any place on.
static void check_ten_billion(const char *yaml, int64_t samples) {
    int64_t before = memory_bytes();
    tri_data_options many = fixture_options(yaml);
    tri_dataset *fixture = dataset;
    assert_int_equal(tri_dataset_open(&many, TRI_DATA_TRAIN, 1, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_samples(dataset), samples);
    tri_sampler sampler = sampler_of(64, 0, 2);
    for (int place = 0; place < 3; place++) {
        const tri_loader_options at = {
            .workers = 1, .replica = 1, .epoch = 7 * place, .step = sampler.steps / 3 * place};
        tri_loader *loader = loader_of(&sampler, at);
        int64_t largest = 0;
        for (int step = 0; step < 4; step++) {
            const tri_data_batch *batch = next(loader);
            for (int64_t i = 0; i < batch->micro.size; i++)
                if (batch->samples[i] > largest) largest = batch->samples[i];
            tri_loader_release(loader, batch);
        }
        assert_in_range(largest, samples / 2, samples - 1);
        tri_loader_destroy(loader);
    }
    assert_true(memory_bytes() - before < 64 << 20); // a bit a sample would be 1192 MiB
    tri_dataset_close(dataset);
    dataset = fixture;
}

static void test_ten_billion(void **state) {
    const int64_t many = INT64_C(10000000000);
    put_hollow_array("hollow.npy", many);
    check_ten_billion("name: npy, train: {inputs: hollow.npy}", many);
    check_ten_billion("name: npy, train: {inputs: hollow.npy}, val_fraction: 0.1",
                      many - many / 10);
    check_ten_billion("name: synthetic, shape: [4], samples: 10000000000", many);
    check_ten_billion("name: mixture, mix: [{name: npy, train: {inputs: hollow.npy}, weight: 1},"
                      " {name: npy, train: {inputs: hollow.npy}, weight: 3}]",
                      2 * many);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_each_sample_once),
        TEST(test_resumes_anywhere),
        TEST(test_holds),
        TEST(test_holds_around_empty_rounds),
        TEST(test_limits_and_empty_rounds),
        TEST(test_errors_reach_the_caller),
        TEST(test_shortened_files),
        TEST(test_threads_take_no_signals),
        TEST(test_ten_billion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

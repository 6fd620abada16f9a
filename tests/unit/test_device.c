// Checks on every device what all of them have to do: memory, copies, queues and tickets. A queue
// is a device's list of work, done in order; a ticket stands for work that was issued and may be
// waited for. `far` is a CPU that behaves like a GPU, and `cuda` runs on an emulated GPU or, if
// TRIREME_TEST_GPU is set, on the GPU of this host.
#include "base/os.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/far/far.h"
#include "device/null/null.h"
#include "device/queue.h"
#include "device/ref/ref.h"
#include "support/test_gpu.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const tri_device_backend *const backends[] = {
    &tri_device_ref, &tri_device_cpu, &tri_device_cuda, &tri_device_null, &tri_device_far};
enum { BACKENDS = sizeof backends / sizeof *backends };

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static tri_device *open_device(const tri_device_backend *backend) {
    tri_device *device;
    ok(backend->open(&(tri_device_config){.threads = 2}, &device));
    return device;
}

static void test_memory(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 4096, 3000000};
    for (int b = 0; b < BACKENDS; b++) {
        tri_device *device = open_device(backends[b]);
        tri_queue *queue;
        ok(tri_queue_open(device, &queue));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *memory;
            unsigned char *host = malloc(sizes[i] + 1), *back = malloc(sizes[i] + 1);
            ok(backends[b]->alloc(device, sizes[i], &memory));
            assert_int_equal((uintptr_t)memory % 64, 0);
            memset(back, 1, sizes[i]);
            ok(tri_queue_read(queue, back, memory, sizes[i]));
            for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(back[k], 0);
            for (size_t k = 0; k < sizes[i]; k++) host[k] = (unsigned char)(7 * k);
            ok(tri_queue_write(queue, memory, host, sizes[i]));
            ok(tri_queue_read(queue, back, memory, sizes[i]));
            assert_memory_equal(host, back, sizes[i]);
            ok(backends[b]->zero(queue, memory, sizes[i]));
            ok(tri_queue_read(queue, back, memory, sizes[i]));
            for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(back[k], 0);
            backends[b]->free(device, memory);
            free(host);
            free(back);
        }
        tri_queue_close(queue);
        backends[b]->close(device);
    }
}

// Memory that alloc_host allocates, host memory for copies to and from the device, is aligned to 64
// bytes and zeroed, and can be copied in both directions.
static void test_memory_for_copies(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 64, 4096, 300001};
    int found = 0;
    for (int b = 0; b < BACKENDS; b++) {
        assert_true(!backends[b]->alloc_host == !backends[b]->free_host);
        if (!backends[b]->alloc_host) continue;
        found++;
        tri_device *device = open_device(backends[b]);
        tri_queue *queue;
        ok(tri_queue_open(device, &queue));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *memory, *host;
            unsigned char *back = malloc(sizes[i]);
            ok(backends[b]->alloc(device, sizes[i], &memory));
            ok(backends[b]->alloc_host(device, sizes[i], &host));
            assert_int_equal((uintptr_t)host % 64, 0);
            unsigned char *bytes = host;
            for (size_t k = 0; k < sizes[i]; k++) {
                assert_int_equal(bytes[k], 0);
                bytes[k] = (unsigned char)(5 * k + 1);
            }
            ok(tri_queue_write(queue, memory, host, sizes[i]));
            ok(tri_queue_read(queue, back, memory, sizes[i]));
            assert_memory_equal(host, back, sizes[i]);
            backends[b]->free_host(device, host);
            backends[b]->free(device, memory);
            free(back);
        }
        backends[b]->free_host(device, NULL);
        tri_queue_close(queue);
        backends[b]->close(device);
    }
    assert_true(found > 0);
}

// A queue carries out copies and additions in order, although nothing waits between them. `host` is
// overwritten at once, which is allowed after a copy_in of at most TRI_SMALL_COPY_BYTES.
static void test_order_in_a_queue(void **state) {
    (void)state;
    enum { COUNT = 32, TURNS = 40 };
    for (int b = 0; b < BACKENDS; b++) {
        if (backends[b] == &tri_device_null) continue; // the device `null` does not add
        tri_device *device = open_device(backends[b]);
        tri_queue *queue;
        void *sum, *term;
        float host[COUNT];
        ok(tri_queue_open(device, &queue));
        ok(backends[b]->alloc(device, sizeof host, &sum));
        ok(backends[b]->alloc(device, sizeof host, &term));
        assert_true(sizeof host <= TRI_SMALL_COPY_BYTES);
        for (int turn = 0; turn < TURNS; turn++) {
            for (int i = 0; i < COUNT; i++) host[i] = (float)(turn + i);
            ok(backends[b]->copy_in(queue, term, host, sizeof host));
            ok(backends[b]->add(queue, sum, term, COUNT));
        }
        ok(tri_queue_read(queue, host, sum, sizeof host));
        for (int i = 0; i < COUNT; i++) {
            float wanted = (float)(TURNS * (TURNS - 1) / 2 + TURNS * i);
            assert_true(host[i] == wanted);
        }
        backends[b]->free(device, sum);
        backends[b]->free(device, term);
        tri_queue_close(queue);
        backends[b]->close(device);
    }
}

// Two queues take turns: queue 0 adds cell 0 to cell 1, then queue 1 adds cell 1 to cell 0, and so
// on, so that the cells get Fibonacci's numbers. Before an addition, its queue waits for the last
// addition of the other queue.
static void test_order_between_queues(void **state) {
    (void)state;
    enum { TURNS = 100 };
    for (int b = 0; b < BACKENDS; b++) {
        if (backends[b] == &tri_device_null) continue;
        tri_device *device = open_device(backends[b]);
        tri_queue *queues[2];
        void *cells[2];
        float one = 1, last;
        for (int i = 0; i < 2; i++) {
            ok(tri_queue_open(device, &queues[i]));
            ok(backends[b]->alloc(device, sizeof one, &cells[i]));
        }
        ok(tri_queue_write(queues[0], cells[0], &one, sizeof one));
        for (int turn = 0; turn < TURNS; turn++) { // the sums are 1, 2, 3, 5, …
            tri_queue *queue = queues[turn % 2];
            tri_ticket ticket;
            ok(backends[b]->add(queue, cells[(turn + 1) % 2], cells[turn % 2], 1));
            ok(backends[b]->record(queue, &ticket));
            ok(backends[b]->wait(queues[(turn + 1) % 2], &ticket));
        }
        ok(tri_queue_finish(queues[0]));
        ok(tri_queue_finish(queues[1]));
        ok(tri_queue_read(queues[0], &last, cells[TURNS % 2], sizeof last));
        float wanted[2] = {1, 0};
        for (int turn = 0; turn < TURNS; turn++) wanted[(turn + 1) % 2] += wanted[turn % 2];
        assert_true(last == wanted[TURNS % 2]);
        for (int i = 0; i < 2; i++) {
            backends[b]->free(device, cells[i]);
            tri_queue_close(queues[i]);
        }
        backends[b]->close(device);
    }
}

static tri_status fails(void *source, uint64_t number) {
    (void)source;
    return TRI_FAIL(TRI_IO, "work %d of another lane failed", (int)number);
}

static bool is_done(void *source, uint64_t number) {
    (void)source;
    (void)number;
    return true;
}

// Allocates zeroed memory of the host for times. An asynchronous device writes them itself, into
// memory of alloc_host.
static int64_t *alloc_times(tri_device *device, int count) {
    size_t size_bytes = (size_t)count * sizeof(int64_t);
    void *memory = device->backend->alloc_host ? NULL : calloc(1, size_bytes);
    if (device->backend->alloc_host) ok(device->backend->alloc_host(device, size_bytes, &memory));
    assert_non_null(memory);
    return memory;
}

static void free_times(tri_device *device, int64_t *times) {
    if (device->backend->free_host)
        device->backend->free_host(device, times);
    else
        free(times);
}

// tri_queue_time records when the queue has done the work that was issued before, not when the work
// was issued.
static void test_times(void **state) {
    (void)state;
    enum { STAMPS = 5, BYTES = 1 << 20 };
    for (int b = 0; b < BACKENDS; b++) {
        tri_device *device = open_device(backends[b]);
        tri_queue *queue;
        void *memory;
        int64_t *stamps = alloc_times(device, STAMPS), before = tri_os.monotonic_ns();
        ok(tri_queue_open(device, &queue));
        ok(backends[b]->alloc(device, BYTES, &memory));
        for (int i = 0; i < STAMPS; i++) {
            ok(backends[b]->zero(queue, memory, BYTES));
            ok(tri_queue_time(queue, &stamps[i]));
        }
        ok(tri_queue_finish(queue));
        int64_t after = tri_os.monotonic_ns();
        for (int i = 0; i < STAMPS; i++)
            assert_true(stamps[i] >= (i > 0 ? stamps[i - 1] : before) && stamps[i] <= after);
        free_times(device, stamps);
        backends[b]->free(device, memory);
        tri_queue_close(queue);
        backends[b]->close(device);
    }
}

// If a queue waits for another queue's work, the next time that tri_queue_time records is the end
// of that work or later. So a measurement that begins there does not contain the time of waiting.
static void test_time_of_waiting(void **state) {
    (void)state;
    tri_device *device = open_device(&tri_device_far);
    tri_queue *first, *second;
    void *memory;
    int64_t *done = alloc_times(device, 2), *begun = done + 1;
    ok(tri_queue_open(device, &first));
    ok(tri_queue_open(device, &second));
    ok(tri_device_far.alloc(device, 8, &memory));
    for (int i = 0; i < 50; i++) ok(tri_device_far.zero(first, memory, 8));
    ok(tri_queue_time(first, done));
    tri_ticket ticket;
    ok(tri_device_far.record(first, &ticket));
    ok(tri_device_far.wait(second, &ticket));
    ok(tri_queue_time(second, begun));
    ok(tri_queue_finish(second));
    assert_true(*done > 0 && *begun >= *done);
    free_times(device, done);
    tri_device_far.free(device, memory);
    tri_queue_close(first);
    tri_queue_close(second);
    device->backend->close(device);
}

// A queue waits for work that fails, for example that of a communicator. The wait or a later call
// on the queue returns the failure's status and message.
static void test_failure_of_a_ticket(void **state) {
    (void)state;
    static const tri_ticket_kind kind = {.wait = fails, .is_done = is_done};
    for (int b = 0; b < BACKENDS; b++) {
        tri_device *device = open_device(backends[b]);
        tri_queue *queue;
        tri_ticket broken = {.kind = &kind, .number = 7};
        ok(tri_queue_open(device, &queue));
        tri_status status = backends[b]->wait(queue, &broken);
        if (status == TRI_OK) status = tri_queue_finish(queue);
        assert_int_equal(status, TRI_IO);
        assert_string_equal(tri_error_message(), "work 7 of another lane failed");
        tri_queue_close(queue);
        backends[b]->close(device);
    }
}

static tri_status wait_until_open(void *source, uint64_t number) {
    while (!__atomic_load_n((bool *)source, __ATOMIC_ACQUIRE)) sched_yield();
    return TRI_OK;
}

static bool is_open(void *source, uint64_t number) {
    return __atomic_load_n((bool *)source, __ATOMIC_ACQUIRE);
}

typedef struct other_work {
    tri_queue *queue;
    void *memory;
    bool is_open;
    _Atomic int issued; // calls behind the ticket
} other_work;

// Waits until no more calls are issued: all of them are, or the queue takes no more.
static void wait_for_calls(const other_work *w) {
    enum { TURNS = 10000 };
    for (int before = -1; before != w->issued;) {
        before = w->issued;
        for (int i = 0; i < TURNS; i++) sched_yield();
    }
}

// A thread that issues work of its own and only then completes the ticket for which a queue waits.
static void *work_then_open(void *context) {
    other_work *w = context;
    unsigned char bytes[64] = {1};
    wait_for_calls(w);
    ok(tri_queue_write(w->queue, w->memory, bytes, sizeof bytes));
    __atomic_store_n(&w->is_open, true, __ATOMIC_RELEASE);
    return NULL;
}

// A queue waits for a ticket, which becomes done only after another thread has done work on its own
// queue. However many calls are issued behind the ticket, that thread must still be able to issue.
static void test_much_behind_a_ticket(void **state) {
    (void)state;
    enum { CALLS = 5000 };
    static const tri_ticket_kind kind = {.wait = wait_until_open, .is_done = is_open};
    for (int b = 0; b < BACKENDS; b++) {
        if (!backends[b]->is_asynchronous) continue;
        tri_device *device = open_device(backends[b]);
        other_work w = {0};
        tri_ticket ticket = {.kind = &kind, .source = &w.is_open};
        tri_queue *queue;
        pthread_t thread;
        ok(tri_queue_open(device, &queue));
        ok(tri_queue_open(device, &w.queue));
        ok(backends[b]->alloc(device, 64, &w.memory));
        assert_int_equal(pthread_create(&thread, NULL, work_then_open, &w), 0);
        ok(backends[b]->wait(queue, &ticket));
        alarm(60);
        for (int i = 0; i < CALLS; i++, w.issued++) ok(backends[b]->zero(queue, w.memory, 64));
        ok(tri_queue_finish(queue));
        assert_true(w.is_open);
        alarm(0);
        pthread_join(thread, NULL);
        backends[b]->free(device, w.memory);
        tri_queue_close(w.queue);
        tri_queue_close(queue);
        backends[b]->close(device);
    }
}

// A queue of the device `cuda` has a fixed number of CUDA events, which it reuses for later
// tickets. A ticket that is done stays done, even if its event now belongs to a later ticket of the
// queue that is not done.
static void test_old_ticket(void **state) {
    (void)state;
    static const tri_ticket_kind kind = {.wait = wait_until_open, .is_done = is_open};
    const tri_device_backend *cuda = &tri_device_cuda;
    bool opened = false;
    tri_ticket gate = {&kind, &opened, 1}, old, last;
    tri_device *device = open_device(cuda);
    tri_queue *queue, *other;
    ok(tri_queue_open(device, &queue));
    ok(tri_queue_open(device, &other));
    ok(cuda->record(queue, &old));
    ok(tri_ticket_wait(&old));
    ok(cuda->wait(queue, &gate));
    for (int i = 0; i < 256; i++) ok(cuda->record(queue, &last));
    assert_false(tri_ticket_is_done(&last));
    assert_true(tri_ticket_is_done(&old));
    ok(tri_ticket_wait(&old));
    ok(cuda->wait(other, &old));
    ok(tri_queue_finish(other));
    __atomic_store_n(&opened, true, __ATOMIC_RELEASE);
    ok(tri_ticket_wait(&last));
    tri_queue_close(other);
    tri_queue_close(queue);
    cuda->close(device);
}

static sigjmp_buf before_crash;
static volatile sig_atomic_t has_crashed;
static struct sigaction other_action;

static void crash(int number) {
    has_crashed = true;
    siglongjmp(before_crash, 1);
}

// Whether to do what may end the process by this signal: true at first; false if it has done so,
// which brings the process back here. end_crash returns whether it has.
#define begin_crash(number) (catch_crash(number), sigsetjmp(before_crash, 1) == 0)

static void catch_crash(int number) {
    struct sigaction action = {.sa_handler = crash};
    has_crashed = false;
    sigaction(number, &action, &other_action);
}

static bool end_crash(int number) {
    sigaction(number, &other_action, NULL);
    return has_crashed;
}

// If the host writes to a device's memory, this works where the backend's `host_memory` is true.
// Else the process crashes at once, instead of going on with wrong numbers.
static void test_host_memory(void **state) {
    (void)state;
    for (int b = 0; b < BACKENDS; b++) {
        if (backends[b] == &tri_device_cuda) continue; // memory of the emulated GPU is the host's
        tri_device *device = open_device(backends[b]);
        void *memory;
        ok(backends[b]->alloc(device, 64, &memory));
        if (begin_crash(SIGSEGV)) *(volatile char *)memory = 1;
        assert_int_equal(end_crash(SIGSEGV), !backends[b]->host_memory);
        backends[b]->free(device, memory);
        backends[b]->close(device);
    }
}

// Plans are made from descriptions, so an opened device must be as it was described.
static void test_description(void **state) {
    (void)state;
    for (int b = 0; b < BACKENDS; b++) {
        tri_device_description described;
        tri_device *device = open_device(backends[b]);
        ok(backends[b]->describe(&(tri_device_config){.threads = 2}, &described));
        assert_ptr_equal(described.backend, backends[b]);
        assert_ptr_equal(device->description.backend, backends[b]);
        assert_int_equal(device->description.threads, described.threads);
        assert_int_equal(device->description.features, described.features);
        backends[b]->close(device);
    }
}

static tri_status plan_some(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    *out = 64;
    return TRI_OK;
}

static tri_status need(tri_kernel *kernel, size_t bytes) {
    assert_int_equal(kernel->workspace_bytes, 64);
    kernel->workspace_bytes = bytes;
    return TRI_OK;
}

static tri_status need_less(tri_device *device, const tri_graph *graph, const tri_node *node,
                            tri_kernel *kernel) {
    return need(kernel, 32);
}

static tri_status need_more(tri_device *device, const tri_graph *graph, const tri_node *node,
                            tri_kernel *kernel) {
    return need(kernel, 65);
}

// Checks that the process aborts if a kernel needs more workspace than it has planned: the kernel
// would write over other memory.
static void test_planned_workspace(void **state) {
    (void)state;
    tri_kernel_def def = {.name = "test", .workspace = plan_some, .prepare = need_less};
    tri_kernel kernel;
    tri_device *device = open_device(&tri_device_ref);
    ok(tri_kernel_prepare(&def, device, NULL, NULL, &kernel));
    assert_int_equal(kernel.workspace_bytes, 32);
    def.prepare = NULL;
    ok(tri_kernel_prepare(&def, device, NULL, NULL, &kernel));
    assert_int_equal(kernel.workspace_bytes, 64);
    def.prepare = need_more;
    if (begin_crash(SIGABRT)) tri_kernel_prepare(&def, device, NULL, NULL, &kernel);
    assert_true(end_crash(SIGABRT));
    device->backend->close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_for_copies),
        cmocka_unit_test(test_order_in_a_queue),
        cmocka_unit_test(test_order_between_queues),
        cmocka_unit_test(test_much_behind_a_ticket),
        cmocka_unit_test(test_old_ticket),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_time_of_waiting),
        cmocka_unit_test(test_failure_of_a_ticket),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_planned_workspace),
    };
    setenv("TRIREME_FAR_DELAY_US", "100", 1);
    test_gpu_choose();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests the engine with real plans. After the first step of each shape (full, an epoch's smaller
// last one, evaluation, test) nothing is allocated, not by OpenMP either, except what oneDNN frees
// in the same call. A gradient that is not finite is reported with its parameter's name; neither
// its step nor one in flight (issued after it) changes anything. Offloaded optimizer states give
// the same results. After a failure of their file every later call fails too.
#include "base/os.h"
#include "comm/comm.h"
#include "device/cpu/cpu.h"
#include "device/far/far.h"
#include "device/ref/ref.h"
#include "engine/engine.h"
#include "nn/models/models.h"
#include "support/count_allocations.h"
#include "support/model_options.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_comm *comm;
    tri_plan *plan;
    tri_optimizer optimizer;
    tri_engine *engine;
    int shape, round;
    float *numbers;       // what every floating-point field of a micro-batch contains
    int64_t labels[4096]; // what every integer field contains (labels or tokens)
    tri_field fields[TRI_TASK_MAX_FIELDS];
    int field_count;
} rig;

static void check(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static tri_status next_batch(void *context, tri_engine_batch *out) {
    rig *r = context;
    const tri_step_plan *step = &r->plan->steps[r->shape];
    while (step->round_items[r->round].size == 0) r->round++;
    out->size = step->round_items[r->round++].size;
    for (int i = 0; i < r->field_count; i++)
        out->fields[i] = r->fields[i].dtype == TRI_I64 ? (void *)r->labels : (void *)r->numbers;
    return TRI_OK;
}

static tri_offload offload; // what open_rig lets the next rigs offload
static const tri_loss_scale_options *loss_scale;

static void open_rig(rig *r, const tri_device_backend *backend, const tri_task *task, int threads,
                     const char *optimizer, int64_t micro) {
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    check(backend->open(&(tri_device_config){.threads = threads}, &r->device));
    check(tri_comm_self_open(&r->comm));
    const tri_tree *small = small_model_options(r->arena, task->name);
    for (int i = 0; i < TRI_TASK_MAX_FIELDS && task->fields[i].name; i++) {
        r->fields[r->field_count++] = task->fields[i];
        tri_shape *shape = &r->fields[i].shape; // large images would only make the test slower
        int64_t most = small ? SMALL_IMAGE : 32;
        for (int k = 1; k < shape->rank; k++)
            if (shape->dims[k] > most) shape->dims[k] = most;
    }
    double betas[] = {0.9, 0.999};
    tri_optimizer_options options = {
        .name = optimizer, .lr = 0.01, .rho = 0.9, .eps = 1e-6, .betas = {betas, 2}};
    check(tri_optimizer_make(r->arena, &options, &r->optimizer));
    tri_model_request model = {.task = task,
                               .fields = r->fields,
                               .field_count = r->field_count,
                               .options = {.seed = 1, .model_options = small}};
    tri_strategy_options alone = {
        .name = TRI_STRATEGY_SINGLE, .recompute_every = 1, .offload = offload};
    tri_plan_request request = {.model = &model,
                                .options = &alone,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_FULL] = 6,
                                                 [TRI_STEP_TAIL] = 5,
                                                 [TRI_STEP_EVALUATE] = 7,
                                                 [TRI_STEP_TEST] = 6},
                                .micro = micro,
                                .eval_micro = 4,
                                .optimizer_states = r->optimizer.state_count};
    check(tri_plan_create(r->arena, &r->device->description, &request, &r->plan));
    check(tri_engine_create(&(tri_engine_config){.plan = r->plan,
                                                 .device = r->device,
                                                 .world = r->comm,
                                                 .optimizer = &r->optimizer,
                                                 .loss_scale = loss_scale},
                            &r->engine));
    assert_int_equal(tri_engine_initialize(r->engine, 1), TRI_OK);
    enum { NUMBERS = 7 * 20 * SMALL_IMAGE * SMALL_IMAGE };
    r->numbers = malloc(NUMBERS * sizeof *r->numbers);
    assert_non_null(r->numbers);
    for (int i = 0; i < NUMBERS; i++) r->numbers[i] = (float)(i * 7 % 13) / 13;
    for (int i = 0; i < 256; i++) r->labels[i] = i % 3;
}

static void close_rig(rig *r) {
    tri_engine_destroy(r->engine);
    tri_plan_destroy(r->plan);
    tri_comm_close(r->comm);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
    free(r->numbers);
}

// Issues a step. `known`: how many updates the host knows to be done.
static tri_status issue(rig *r, tri_step_shape shape, int64_t number, int64_t known) {
    r->shape = (int)shape;
    r->round = 0;
    tri_step_input input = {
        .shape = shape, .step = number, .clip = 1, .next = next_batch, .context = r};
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD; i++) input.lr[i] = 0.01 / (double)(known + i + 1);
    return tri_engine_issue(r->engine, &input);
}

static tri_status step(rig *r, tri_step_shape shape, int64_t number, tri_step_output *out) {
    tri_status status = issue(r, shape, number, 0);
    return status == TRI_OK ? tri_engine_collect(r->engine, out) : status;
}

// Counts the allocations of two steps of each shape.
static int count_steps(rig *r) {
    tri_step_output out;
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++)
        check(step(r, (tri_step_shape)shape, shape, &out));
    atomic_store(&allocations, 0);
    atomic_store(&library_held, 0);
    atomic_store(&counting, 1);
    tri_status status = TRI_OK;
    for (int i = 0; i < 2 * TRI_STEP_SHAPE_COUNT && status == TRI_OK; i++)
        status = step(r, (tri_step_shape)(i % TRI_STEP_SHAPE_COUNT), 3 + i, &out);
    atomic_store(&counting, 0);
    check(status);
    assert_true(out.count[0] > 0);
    assert_int_equal(atomic_load(&library_held), 0);
    return atomic_load(&allocations);
}

static void test_allocates_nothing(void **state) {
    (void)state;
    if (!COUNTS) {
        print_message("skipped: allocations cannot be counted under a sanitizer\n");
        skip();
    }
    atomic_store(&counting, 1); // checks that allocations are counted at all
    void *volatile one = malloc(10);
    atomic_store(&counting, 0);
    free(one);
    assert_int_equal(atomic_load(&allocations), 1);
    for (int i = 0; tri_models[i]; i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int64_t micro = 0; micro <= 4; micro += 4) {
                rig r;
                offload = micro ? TRI_OFFLOAD_OPTIMIZER : TRI_OFFLOAD_NONE;
                open_rig(&r, &tri_device_cpu, tri_models[i], threads, "adadelta", micro);
                offload = TRI_OFFLOAD_NONE;
                library_allocations = library_most_bytes = 0;
                int made = count_steps(&r);
                print_message("%s, %d threads, micro %d: oneDNN took %d times up to %d bytes\n",
                              tri_models[i]->name, threads, (int)micro, library_allocations,
                              library_most_bytes);
                close_rig(&r);
                if (made)
                    fail_msg("%s, %d threads, micro-batches of %d: %d allocations in 6 steps",
                             tri_models[i]->name, threads, (int)micro, made);
            }
}

static void linear(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value x = tri_linear(g, "first", batch->inputs, 3);
    tri_block(g, "second");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "second", x, 2), batch->targets));
}

static const tri_task linear_task = {
    .name = "linear",
    .build = linear,
    .fields = {{"inputs", TRI_F32, {1, {4}}}, {"targets", TRI_F32, {1, {2}}}}};

static void read_all(rig *r, float *out) {
    const tri_engine_tensor *tensors;
    for (int states = 0; states < 2; states++) {
        int count = states ? tri_engine_optimizer_tensors(r->engine, &tensors)
                           : tri_engine_model_tensors(r->engine, &tensors);
        for (int i = 0; i < count; i++) {
            int64_t elements = tri_shape_count(&tensors[i].shape);
            check(tri_engine_fetch(r->engine, &tensors[i]));
            tri_engine_read(r->engine, &tensors[i], 0, elements, out);
            out += elements;
        }
    }
}

static void test_not_finite(void **state) {
    (void)state;
    static const tri_device_backend *const backends[] = {&tri_device_ref, &tri_device_cpu,
                                                         &tri_device_far};
    for (int i = 0; i < 3; i++)
        for (int64_t micro = 0; micro <= 4; micro += 4) {
            rig r;
            open_rig(&r, backends[i], &linear_task, 1, "adadelta", micro);
            tri_step_output out;
            float before[128] = {0}, after[128] = {0};
            check(step(&r, TRI_STEP_FULL, 0, &out));
            read_all(&r, before);
            // The loss is about 1e40, finite in F64; the gradient of the first weights overflows.
            for (int k = 0; k < 16 * 4; k++) r.numbers[k] = 1e20f;
            // The message counts steps from 1: it says step 6, although one update was made.
            assert_int_equal(step(&r, TRI_STEP_FULL, 5, &out), TRI_NOT_FINITE);
            const char *said = tri_error_message();
            if (!strstr(said, "step 6") ||
                (!strstr(said, "first.weight") && !strstr(said, "the loss")))
                fail_msg("%s, micro %d: %s", backends[i]->name, (int)micro, said);
            r.numbers[0] = NAN;
            assert_int_equal(step(&r, TRI_STEP_TAIL, 1, &out), TRI_NOT_FINITE);
            assert_non_null(strstr(tri_error_message(), "the loss is nan"));
            read_all(&r, after);
            assert_memory_equal(before, after, sizeof before);
            close_rig(&r);
        }
}

// A sequence of steps, some with samples that make gradients overflow.
typedef struct course {
    float *numbers[2]; // [0]: of a good step; [1]: of a bad one, so large that gradients overflow
    uint64_t bad;      // bit i: step i is bad
} course;

enum { COURSE_STEPS = 24 };

// Runs the steps, with as many in flight as the device allows, until one fails or exhausts the loss
// scale. Returns that step's failure, or TRI_OK, and sets *end to the number of the step.
static tri_status run_course(rig *r, const course *c, tri_step_output *outs, int *end) {
    int ahead = tri_engine_steps_ahead(r->engine), issued = 0;
    int64_t known = 0;
    for (*end = 0; *end < COURSE_STEPS; (*end)++) {
        while (issued < COURSE_STEPS && issued - *end <= ahead) {
            r->numbers = c->numbers[c->bad >> issued & 1];
            check(issue(r, TRI_STEP_FULL, issued, known));
            issued++;
        }
        TRI_TRY(tri_engine_collect(r->engine, &outs[*end]));
        known = outs[*end].carried.updates;
        if (outs[*end].exhausted) break; // the steps issued after this one were dropped
    }
    return TRI_OK;
}

static course make_course(const rig *r, uint64_t bad) {
    enum { NUMBERS = 8 * 32 * 32 };
    course c = {.bad = bad};
    for (int kind = 0; kind < 2; kind++) {
        c.numbers[kind] = malloc(NUMBERS * sizeof(float));
        assert_non_null(c.numbers[kind]);
        for (int i = 0; i < NUMBERS; i++) c.numbers[kind][i] = kind ? 1e20f : r->numbers[i];
    }
    return c;
}

static void end_course(rig *r, course *c, float *own) {
    r->numbers = own;
    for (int kind = 0; kind < 2; kind++) free(c->numbers[kind]);
}

// An asynchronous device gives the same bits as one whose results are read after each step: loss
// scales, learning rates and bias corrections follow the updates, not the steps.
static void test_overflow_in_flight(void **state) {
    (void)state;
    static const tri_loss_scale_options options = {
        .initial = 1024, .window = 3, .hysteresis = 2, .minimum = 1};
    static const uint64_t patterns[] = {0, 0x1, 0x6, 0x085a5a, 0x00f0f1, 0xffffff};
    loss_scale = &options;
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        tri_step_output outs[2][COURSE_STEPS] = {0};
        float states[2][128] = {{0}};
        for (int i = 0; i < 2; i++) {
            rig r;
            int end;
            open_rig(&r, i ? &tri_device_far : &tri_device_cpu, &linear_task, 1, "adamw", 4);
            check(tri_engine_carry(r.engine,
                                   &(tri_carried){.scale = tri_loss_scale_start(&options)}));
            float *own = r.numbers;
            course c = make_course(&r, patterns[k]);
            assert_int_equal(tri_engine_steps_ahead(r.engine), i ? TRI_MAX_STEPS_AHEAD : 0);
            check(run_course(&r, &c, outs[i], &end));
            read_all(&r, states[i]);
            end_course(&r, &c, own);
            close_rig(&r);
        }
        for (int s = 0; s < COURSE_STEPS; s++) {
            const tri_step_output *a = &outs[0][s], *b = &outs[1][s];
            // All overflow: step 0 lowers the hysteresis, 1 to 10 halve 1024 to 1, 11 exhausts it.
            bool is_over = patterns[k] == 0xffffff && s >= 12;
            assert_int_equal(a->overflowed, !is_over && (patterns[k] >> s & 1));
            assert_int_equal(a->exhausted, patterns[k] == 0xffffff && s == 11);
            assert_int_equal(a->overflowed, b->overflowed);
            assert_int_equal(a->exhausted, b->exhausted);
            assert_memory_equal(&a->lr, &b->lr, sizeof a->lr);
            assert_memory_equal(&a->sum[0], &b->sum[0], sizeof a->sum[0]);
            assert_memory_equal(&a->carried, &b->carried, sizeof a->carried);
        }
        assert_memory_equal(states[0], states[1], sizeof states[0]);
    }
    loss_scale = NULL;
}

// Without a loss scale, the first step that is not finite ends the training. An asynchronous device
// has issued the next step by then, but its message and state have to be the same as the CPU's.
static void test_halt_in_flight(void **state) {
    (void)state;
    for (int bad = 0; bad < 5; bad++) {
        float states[3][128] = {{0}};
        char said[2][256] = {"", ""};
        for (int i = 0; i < 3; i++) { // the third run ends before the step that is not finite
            rig r;
            int end;
            open_rig(&r, i == 1 ? &tri_device_far : &tri_device_cpu, &linear_task, 1, "adamw", 4);
            float *own = r.numbers;
            course c = make_course(&r, UINT64_C(1) << bad);
            tri_step_output outs[COURSE_STEPS];
            if (i < 2) {
                assert_int_equal(run_course(&r, &c, outs, &end), TRI_NOT_FINITE);
                snprintf(said[i], sizeof said[i], "%s", tri_error_message());
                assert_int_equal(end, bad);
            } else {
                for (int s = 0; s < bad; s++) {
                    check(issue(&r, TRI_STEP_FULL, s, s));
                    check(tri_engine_collect(r.engine, &outs[s]));
                }
            }
            read_all(&r, states[i]);
            if (i < 2) { // after this failure the caller may issue further steps
                r.numbers = own;
                check(issue(&r, TRI_STEP_FULL, bad, bad));
                check(tri_engine_collect(r.engine, &outs[0]));
                assert_int_equal(outs[0].carried.updates, bad + 1);
            }
            end_course(&r, &c, own);
            close_rig(&r);
        }
        if (strcmp(said[0], said[1]) != 0 || !strstr(said[0], "first.weight"))
            fail_msg("step %d: '%s' and '%s'", bad, said[0], said[1]);
        assert_memory_equal(states[0], states[1], sizeof states[0]);
        assert_memory_equal(states[0], states[2], sizeof states[0]);
    }
}

static ssize_t failing_pwrite(int fd, const void *data, size_t size, off_t offset) {
    errno = EIO;
    return -1;
}

// Offloading changes only where the optimizer states lie, and no result. An error of the file ends
// the step.
static void test_offload(void **state) {
    (void)state;
    rig here, there;
    open_rig(&here, &tri_device_ref, &linear_task, 1, "adadelta", 4);
    offload = TRI_OFFLOAD_OPTIMIZER;
    open_rig(&there, &tri_device_ref, &linear_task, 1, "adadelta", 4);
    offload = TRI_OFFLOAD_NONE;
    const tri_memory_plan *kept = &here.plan->memory, *moved = &there.plan->memory;
    assert_int_equal(kept->offloaded, 0);
    assert_int_equal(moved->optimizer, 0);
    assert_int_equal(moved->offloaded, kept->optimizer);
    tri_step_output out;
    for (int i = 0; i < 6; i++) {
        tri_step_shape shape = (tri_step_shape)(i % TRI_STEP_SHAPE_COUNT);
        float wanted[128] = {0}, got[128] = {0};
        check(step(&here, shape, i, &out));
        check(step(&there, shape, i, &out));
        read_all(&here, wanted);
        read_all(&there, got);
        assert_memory_equal(got, wanted, sizeof got);
    }
    tri_os.pwrite = failing_pwrite;
    assert_int_equal(step(&there, TRI_STEP_FULL, 6, &out), TRI_IO);
    tri_os = tri_os_system;
    const char *said = tri_error_message();
    if (!strstr(said, "rank 0: strategy.offload: ") || !strstr(said, "trireme-offload-0-"))
        fail_msg("%s", said);
    assert_int_equal(step(&there, TRI_STEP_FULL, 6, &out), TRI_IO);
    close_rig(&here);
    close_rig(&there);
}

// If tri_engine_write cannot write to the offload file, it fails itself, and not a later step.
static void test_offload_write(void **state) {
    (void)state;
    rig r;
    offload = TRI_OFFLOAD_OPTIMIZER;
    open_rig(&r, &tri_device_ref, &linear_task, 1, "adadelta", 4);
    offload = TRI_OFFLOAD_NONE;
    const tri_engine_tensor *tensors;
    int count = tri_engine_optimizer_tensors(r.engine, &tensors);
    tri_status status = TRI_OK;
    float value = 1;
    tri_os.pwrite = failing_pwrite;
    for (int i = 0; i < count && status == TRI_OK; i++)
        status = tri_engine_write(r.engine, &tensors[i], 0, 1, &value);
    tri_os = tri_os_system;
    assert_int_equal(status, TRI_IO);
    assert_non_null(strstr(tri_error_message(), "rank 0: strategy.offload: "));
    close_rig(&r);
}

static void deep(tri_graph *g, const tri_batch *batch) {
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth"};
    tri_value x = batch->inputs;
    for (int i = 0; i < 5; i++) {
        tri_block(g, names[i]);
        x = tri_linear(g, names[i], x, 2);
    }
    tri_loss(g, tri_mse_loss(g, x, batch->targets));
}

enum { LATE_YIELDS = 20000 };
static ssize_t slow_pread(int fd, void *data, size_t size, off_t offset) {
    for (int i = 0; i < LATE_YIELDS; i++) sched_yield();
    return tri_os_system.pread(fd, data, size, offset);
}

static ssize_t slow_pwrite(int fd, const void *data, size_t size, off_t offset) {
    for (int i = 0; i < LATE_YIELDS; i++) sched_yield();
    return tri_os_system.pwrite(fd, data, size, offset);
}

// State of a device that fails once its compute queue has waited `waits_left` times for the
// storage. `waited_late`: something has waited for work of the queue after the queue was closed.
static int waits_left;
static atomic_bool is_closed, waited_late;
static _Atomic(const tri_ticket_kind *) far_kind;

static tri_status watched_wait(void *source, uint64_t number) {
    const tri_ticket_kind *kind = far_kind;
    if (!is_closed) return kind->wait(source, number);
    waited_late = true;
    return TRI_OK;
}

static bool watched_is_done(void *source, uint64_t number) {
    const tri_ticket_kind *kind = far_kind;
    return kind->is_done(source, number);
}

static const tri_ticket_kind watched = {.wait = watched_wait, .is_done = watched_is_done};

static tri_status breaking_wait(tri_queue *queue, const tri_ticket *ticket) {
    waits_left -= ticket->kind && ticket->kind != &watched;
    return tri_device_far.wait(queue, ticket);
}

static tri_status breaking_record(tri_queue *queue, tri_ticket *out) {
    if (waits_left == 0) {
        waits_left = -1;
        return TRI_FAIL(TRI_INTERNAL, "the device breaks");
    }
    check(tri_device_far.record(queue, out));
    far_kind = out->kind;
    out->kind = &watched;
    return TRI_OK;
}

static void breaking_close_queue(tri_queue *queue) {
    tri_device_far.close_queue(queue);
    is_closed = true;
}

// A step fails while the storage still has work of that step. The work waits for the device's
// queues, so these must not be closed before the work is done.
static void test_failure_behind(void **state) {
    (void)state;
    static const tri_task task = {
        .name = "deep",
        .build = deep,
        .fields = {{"inputs", TRI_F32, {1, {4}}}, {"targets", TRI_F32, {1, {2}}}}};
    tri_device_backend breaking = tri_device_far;
    breaking.wait = breaking_wait;
    breaking.record = breaking_record;
    breaking.close_queue = breaking_close_queue;
    rig r;
    setenv("TRIREME_FAR_DELAY_US", "500", 1);
    offload = TRI_OFFLOAD_OPTIMIZER;
    open_rig(&r, &tri_device_far, &task, 1, "adadelta", 4);
    offload = TRI_OFFLOAD_NONE;
    unsetenv("TRIREME_FAR_DELAY_US");
    r.device->backend = &breaking;
    tri_os.pread = slow_pread;
    tri_os.pwrite = slow_pwrite;
    waits_left = 2;
    assert_int_equal(issue(&r, TRI_STEP_FULL, 0, 0), TRI_INTERNAL);
    assert_int_equal(waits_left, -1);
    close_rig(&r);
    tri_os = tri_os_system;
    assert_true(is_closed && !waited_late);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocates_nothing),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_overflow_in_flight),
                                       cmocka_unit_test(test_halt_in_flight),
                                       cmocka_unit_test(test_offload),
                                       cmocka_unit_test(test_offload_write),
                                       cmocka_unit_test(test_failure_behind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

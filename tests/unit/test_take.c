// Checks the action TAKE, which brings a micro-batch to the device. On an asynchronous device it is
// copied there while the device computes the micro-batch before it, and the loader gets its memory
// back only after the copy. On other devices no second micro-batch is taken in advance, and no
// memory is planned for it.
#include "comm/comm.h"
#include "device/cpu/cpu.h"
#include "device/far/far.h"
#include "engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

enum { FEATURES = 96, STEP = 11, MICRO = 3, STEPS = 6 };

// A loader with room for two micro-batches. When the engine releases a micro-batch, its numbers are
// overwritten with NaN, so that an engine that releases it too early computes NaN.
typedef struct feed {
    float inputs[TRI_TAKEN_BATCHES][MICRO * FEATURES], targets[TRI_TAKEN_BATCHES][MICRO];
    int64_t left; // samples of the step that were not given yet
    int given, released, most_held;
} feed;

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_comm *comm;
    tri_plan *plan;
    tri_engine *engine;
    feed feed;
} rig;

static void check(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static void net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "hidden");
    tri_value x = tri_tanh(g, tri_linear(g, "hidden", batch->inputs, 7));
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", x, 1), batch->targets));
}

static tri_status next(void *context, tri_engine_batch *out) {
    feed *f = context;
    int at = f->given % TRI_TAKEN_BATCHES;
    out->size = f->left < MICRO ? f->left : MICRO;
    for (int i = 0; i < MICRO * FEATURES; i++)
        f->inputs[at][i] = (float)((i + f->given * 5) % 17) / 17;
    for (int i = 0; i < MICRO; i++) f->targets[at][i] = (float)((i + f->given) % 3);
    out->fields[0] = f->inputs[at];
    out->fields[1] = f->targets[at];
    f->left -= out->size;
    f->given++;
    int held = f->given - f->released;
    assert_true(held <= TRI_TAKEN_BATCHES);
    if (held > f->most_held) f->most_held = held;
    return TRI_OK;
}

static void release(void *context) {
    feed *f = context;
    int at = f->released++ % TRI_TAKEN_BATCHES;
    assert_true(f->released <= f->given);
    for (int i = 0; i < MICRO * FEATURES; i++) f->inputs[at][i] = NAN;
    for (int i = 0; i < MICRO; i++) f->targets[at][i] = NAN;
}

static void open_rig(rig *r, const tri_device_backend *backend) {
    static const tri_task task = {.name = "net", .build = net};
    static const tri_field fields[] = {{"inputs", TRI_F32, {1, {FEATURES}}},
                                       {"targets", TRI_F32, {1, {1}}}};
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    check(backend->open(&(tri_device_config){.threads = 1}, &r->device));
    check(tri_comm_self_open(&r->comm));
    tri_optimizer optimizer;
    tri_optimizer_options options = {.name = "adadelta", .lr = 0.5, .rho = 0.9, .eps = 1e-6};
    check(tri_optimizer_make(r->arena, &options, &optimizer));
    tri_model_request model = {
        .task = &task, .fields = fields, .field_count = 2, .options = {.seed = 1}};
    tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE, .recompute_every = 1};
    tri_plan_request request = {
        .model = &model,
        .options = &alone,
        .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
        .step_samples = {[TRI_STEP_FULL] = STEP, [TRI_STEP_EVALUATE] = STEP},
        .micro = MICRO,
        .eval_micro = MICRO,
        .loader_batches = 3,
        .optimizer_states = optimizer.state_count};
    check(tri_plan_create(r->arena, &r->device->description, &request, &r->plan));
    check(tri_engine_create(
        &(tri_engine_config){
            .plan = r->plan, .device = r->device, .world = r->comm, .optimizer = &optimizer},
        &r->engine));
    check(tri_engine_initialize(r->engine, 1));
}

static void close_rig(rig *r) {
    check(tri_engine_release_batches(r->engine));
    assert_int_equal(r->feed.given, r->feed.released);
    tri_engine_destroy(r->engine);
    tri_plan_destroy(r->plan);
    tri_comm_close(r->comm);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

static double step(rig *r, int number) {
    tri_step_output out;
    bool evaluates = number % 3 == 2;
    r->feed.left = STEP;
    check(tri_engine_step(r->engine,
                          &(tri_step_input){.shape = evaluates ? TRI_STEP_EVALUATE : TRI_STEP_FULL,
                                            .step = number,
                                            .lr = {0.5},
                                            .next = next,
                                            .release = release,
                                            .context = &r->feed},
                          &out));
    assert_int_equal((int)out.count[0], STEP);
    return out.sum[0];
}

static void test_copies(void **state) {
    (void)state;
    setenv("TRIREME_FAR_DELAY_US", "300", 1);
    for (int seed = 1; seed <= 8; seed++) {
        char text[16];
        snprintf(text, sizeof text, "%d", seed);
        setenv("TRIREME_FAR_SEED", text, 1);
        rig far, near;
        open_rig(&far, &tri_device_far);
        open_rig(&near, &tri_device_cpu);
        for (int i = 0; i < STEPS; i++) {
            double wanted = step(&near, i), got = step(&far, i);
            if (!(got == wanted)) fail_msg("step %d, seed %d: %g, not %g", i, seed, got, wanted);
        }
        assert_int_equal(near.feed.most_held, 1);
        assert_int_equal(near.feed.released, near.feed.given);
        assert_int_equal(far.feed.most_held, TRI_TAKEN_BATCHES);
        close_rig(&far);
        close_rig(&near);
    }
}

static void test_memory(void **state) {
    (void)state;
    rig far, near;
    open_rig(&far, &tri_device_far);
    open_rig(&near, &tri_device_cpu);
    int64_t inputs = near.plan->programs[0]->input_bytes;
    assert_int_equal(near.plan->sizes.heap_bytes[TRI_HEAP_INPUTS], 0);
    assert_int_equal(far.plan->sizes.heap_bytes[TRI_HEAP_INPUTS], inputs);
    assert_int_equal(tri_plan_held_batches(near.plan), 1);
    assert_int_equal(tri_plan_held_batches(far.plan), TRI_TAKEN_BATCHES);
    int64_t more = far.plan->memory.activations - near.plan->memory.activations;
    assert_true(more >= 2 * inputs && more <= 3 * inputs);
    close_rig(&far);
    close_rig(&near);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

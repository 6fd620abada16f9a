// Checks the plans of unusual models: one whose first pipeline stage computes nothing, one whose
// blocks share many weights, and one of 2000 blocks. A block is a layer or a group of layers; a
// stage is a run of blocks on one rank.
#include "device/ref/ref.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <trireme/trireme.h>

#include <cmocka.h>

enum { RANKS = 2 };

static int shared_weights; // how many weights the blocks of the model `borrows` share

// Builds a model whose first stage has only a view of the inputs.
static void views(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "flatten");
    tri_value x = tri_flatten(g, batch->inputs);
    tri_block(g, "first");
    x = tri_linear(g, "first", x, 5);
    tri_block(g, "second");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "second", x, 2), batch->targets));
}

// Builds a model whose blocks `first` and `second` both read every weight except that of `head`.
static void borrows(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_flatten(g, batch->inputs);
    for (int b = 0; b < 2; b++) {
        tri_block(g, b ? "second" : "first");
        for (int i = 0; i < shared_weights; i++) {
            char name[32], weight[32];
            snprintf(name, sizeof name, "layer%d.%d", b, i);
            snprintf(weight, sizeof weight, "layer0.%d.weight", i);
            x = tri_linear_with(
                g, name, x,
                (tri_linear_options){.features = 4, .no_bias = true, .weight = b ? weight : NULL});
        }
    }
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", x, 2), batch->targets));
}

static int depth; // how many blocks the model `deep` has

static void deep(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_flatten(g, batch->inputs);
    for (int b = 0; b < depth; b++) {
        tri_block(g, tri_name(g, "block%d", b));
        const char *up = tri_name(g, "block%d.up", b), *down = tri_name(g, "block%d.down", b);
        x = tri_add(g, x, tri_linear(g, down, tri_relu(g, tri_linear(g, up, x, 4)), 4));
        tri_split_layer(g, up, TRI_SPLIT_COLUMN);
        tri_split_layer(g, down, TRI_SPLIT_ROW);
    }
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", x, 2), batch->targets));
}

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_plan *plan;
    tri_status status;
} rig;

static void norms(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value x = tri_linear(g, "first", tri_flatten(g, batch->inputs), 3);
    x = tri_batch_norm(g, "norm", x, (tri_batch_norm_options){0});
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "second", x, 2), batch->targets));
}

// Makes the plan of a model by what the request has beside it.
static void open_plan(rig *r, void (*build)(tri_graph *g, const tri_batch *batch),
                      tri_strategy_options options, tri_plan_request request) {
    const tri_task task = {.name = "odd", .build = build};
    const tri_field fields[] = {{"inputs", TRI_F32, {2, {2, 2}}}, {"targets", TRI_F32, {1, {2}}}};
    tri_model_request model = {
        .task = &task, .fields = fields, .field_count = 2, .options = {.seed = 1}};
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    assert_int_equal(tri_device_ref.open(&(tri_device_config){.threads = 1}, &r->device), TRI_OK);
    options.recompute_every = options.stages_per_rank = 1;
    request.model = &model;
    request.options = &options;
    request.eval_micro = 4;
    r->status = tri_plan_create(r->arena, &r->device->description, &request, &r->plan);
}

static void open_rig(rig *r, void (*build)(tri_graph *g, const tri_batch *batch),
                     tri_strategy_options options, int pipeline, int rank) {
    open_plan(r, build, options,
              (tri_plan_request){.mesh = {.size = {pipeline, 1, 1, 1}, .ranks = pipeline},
                                 .rank = rank,
                                 .step_samples = {[TRI_STEP_FULL] = 7, [TRI_STEP_EVALUATE] = 4},
                                 .micro = 2});
}

static void close_rig(rig *r) {
    if (r->status == TRI_OK) tri_plan_destroy(r->plan);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

// A view of an input is not sent from stage to stage, because every rank has the inputs.
static void test_view_of_an_input(void **state) {
    (void)state;
    char *names[] = {"first"};
    for (int rank = 0; rank < RANKS; rank++) {
        rig r;
        open_rig(&r, views,
                 (tri_strategy_options){.name = TRI_STRATEGY_PIPELINE,
                                        .stages = {.items = (void *)names, .count = 1}},
                 RANKS, rank);
        if (r.status != TRI_OK) fail_msg("%s", tri_error_message());
        for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
            const tri_step_plan *step = &r.plan->steps[i];
            for (int k = 0; k < step->schedule.count; k++)
                assert_int_not_equal(tri_action_subject(step->schedule.actions[k].kind),
                                     TRI_SUBJECT_EDGE);
        }
        close_rig(&r);
    }
}

static void test_many_shared_weights(void **state) {
    (void)state;
    static const int counts[] = {1, 20, TRI_MAX_BLOCK_UNITS - 1, TRI_MAX_BLOCK_UNITS};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        rig r;
        shared_weights = counts[i];
        open_rig(&r, borrows, (tri_strategy_options){.name = TRI_STRATEGY_SINGLE}, 1, 0);
        bool too_many = counts[i] >= TRI_MAX_BLOCK_UNITS;
        assert_int_equal(r.status, too_many ? TRI_BAD_INPUT : TRI_OK);
        if (too_many)
            assert_non_null(strstr(tri_error_message(), "block first reads 64 parameters"));
        else
            assert_int_equal(r.plan->blocks[1].unit_count, 1 + counts[i]);
        close_rig(&r);
    }
}

// Batch norm needs two values: of a micro-batch or, if it is synchronised, of a step.
static void test_batch_norm_values(void **state) {
    (void)state;
    static const struct {
        int replicas;
        bool is_synchronised;
        int64_t full, tail, micro;
        const char *advice; // NULL: the plan is made
    } cases[] = {{1, false, 4, 1, 0, "data.drop_last"},
                 {1, false, 5, 0, 2, "batch.micro"},
                 {1, false, 1, 0, 0, "batch.global"},
                 {1, false, 4, 2, 2, NULL},
                 {2, true, 2, 0, 0, NULL},
                 {2, true, 4, 3, 0, NULL},
                 {1, true, 4, 1, 0, "data.drop_last"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        int replicas = cases[i].replicas;
        tri_plan_request request = {
            .mesh = {.size = {1, 1, 1, 1}, .ranks = replicas},
            .step_samples = {[TRI_STEP_FULL] = cases[i].full, [TRI_STEP_TAIL] = cases[i].tail},
            .micro = cases[i].micro,
            .sync_batchnorm = cases[i].is_synchronised};
        request.mesh.size[TRI_AXIS_REPLICATE] = replicas;
        open_plan(&r, norms, (tri_strategy_options){.name = TRI_STRATEGY_DDP}, request);
        assert_int_equal(r.status, cases[i].advice ? TRI_BAD_INPUT : TRI_OK);
        if (cases[i].advice) assert_non_null(strstr(tri_error_message(), cases[i].advice));
        close_rig(&r);
    }
}

static double seconds_of_plan(int blocks) {
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        rig r;
        struct timespec before, after;
        depth = blocks;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        open_rig(&r, deep, (tri_strategy_options){.name = TRI_STRATEGY_DDP}, 1, 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        if (r.status != TRI_OK) fail_msg("%s", tri_error_message());
        double seconds = (double)(after.tv_sec - before.tv_sec) +
                         1e-9 * (double)(after.tv_nsec - before.tv_nsec);
        if (seconds < best) best = seconds;
        close_rig(&r);
    }
    return best;
}

// Checks that a plan of eight times as many blocks takes about eight times as long; 20 leaves room
// for noise. When the planner looked each block up among all others, it took 64 times as long.
// Under AddressSanitizer, which keeps freed memory for a while, larger plans are slower.
#ifdef __SANITIZE_ADDRESS__
enum { MOST_TIMES = 40 };
#else
enum { MOST_TIMES = 20 };
#endif

static void test_deep_models(void **state) {
    (void)state;
    double some = seconds_of_plan(250), many = seconds_of_plan(2000);
    printf("250 blocks: %.0f ms, 2000 blocks: %.0f ms\n", 1e3 * some, 1e3 * many);
    assert_true(many < MOST_TIMES * some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view_of_an_input), cmocka_unit_test(test_many_shared_weights),
        cmocka_unit_test(test_batch_norm_values), cmocka_unit_test(test_deep_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// A checkpoint does not depend on the mesh: the same state, saved on any mesh, gives the same files
// to the last byte, and every mesh loads the same state from them, the optimizer's included.
#include "support/comm_ranks.h"

#include "base/os.h"
#include "device/cpu/cpu.h"
#include "nn/models/models.h"
#include "plan/schedule.h"
#include "train/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

#include <cmocka.h>

typedef struct cell {
    const char *name;
    tri_strategy_kind strategy;
    int size[TRI_AXIS_COUNT];
    const char *schedule; // strategy.schedule, if the mesh has a pipeline
} cell;

enum {
    P = TRI_AXIS_PIPELINE,
    R = TRI_AXIS_REPLICATE,
    S = TRI_AXIS_SHARD,
    T = TRI_AXIS_TENSOR_PARALLEL
};

static const cell cells[] = {
    {"single", TRI_STRATEGY_SINGLE, {1, 1, 1, 1}, NULL},
    {"ddp 2", TRI_STRATEGY_DDP, {[P] = 1, [R] = 2, [S] = 1, [T] = 1}, NULL},
    {"zero1 4", TRI_STRATEGY_ZERO1, {[P] = 1, [R] = 1, [S] = 4, [T] = 1}, NULL},
    {"zero2 2", TRI_STRATEGY_ZERO2, {[P] = 1, [R] = 1, [S] = 2, [T] = 1}, NULL},
    {"fsdp 4", TRI_STRATEGY_FSDP, {[P] = 1, [R] = 1, [S] = 4, [T] = 1}, NULL},
    {"fsdp 3", TRI_STRATEGY_FSDP, {[P] = 1, [R] = 1, [S] = 3, [T] = 1}, NULL},
    {"hybrid 4", TRI_STRATEGY_FSDP, {[P] = 1, [R] = 2, [S] = 2, [T] = 1}, NULL},
    {"pipeline 2", TRI_STRATEGY_PIPELINE, {[P] = 2, [R] = 1, [S] = 1, [T] = 1}, "1f1b"},
    {"interleaved 2", TRI_STRATEGY_PIPELINE, {[P] = 2, [R] = 1, [S] = 1, [T] = 1}, "interleaved"},
    {"pipeline 2 zero1 2", TRI_STRATEGY_ZERO1, {[P] = 2, [R] = 1, [S] = 2, [T] = 1}, "1f1b"},
    {"tensor 2", TRI_STRATEGY_DDP, {[P] = 1, [R] = 1, [S] = 1, [T] = 2}, NULL},
    {"tensor 2 fsdp 2", TRI_STRATEGY_FSDP, {[P] = 1, [R] = 1, [S] = 2, [T] = 2}, NULL},
    {"tensor 2 pipeline 2", TRI_STRATEGY_PIPELINE, {[P] = 2, [R] = 1, [S] = 1, [T] = 2}, "1f1b"},
};

// A layer whose weight files have transposed.
static tri_value transposed(tri_graph *g, const char *name, tri_value x, int64_t features) {
    tri_block(g, name);
    return tri_linear_with(g, name, x,
                           (tri_linear_options){.features = features, .stored_transposed = true});
}

// Fused layers, layers by rows, and whole ones, in files transposed.
static void fused(tri_graph *g, const tri_batch *batch) {
    tri_value x = batch->inputs;
    for (int i = 0; i < 2; i++) {
        const char *qkv = tri_name(g, "qkv%d", i), *out = tri_name(g, "out%d", i);
        tri_value y = transposed(g, qkv, x, 3 * 40);
        tri_split_fused_layer(g, qkv, 3);
        y = tri_mul(g, tri_chunk(g, y, 1, 3, 0), tri_slice(g, y, 1, 80, 120, 1));
        x = transposed(g, out, y, 37);
        tri_split_layer(g, out, TRI_SPLIT_ROW);
    }
    tri_loss(g, tri_mse_loss(g, transposed(g, "last", x, 5), batch->targets));
}

static const tri_task fused_task = {
    .name = "fused",
    .build = fused,
    .fields = {{"inputs", TRI_F32, {1, {29}}}, {"targets", TRI_F32, {1, {5}}}}};

static const struct {
    const tri_task *task;
    bool divides; // the model supports tensor parallelism, and has blocks for 4 pipeline stages
} models[] = {{&tri_model_llama, true}, {&tri_model_mnist_convnet, false}, {&fused_task, true}};

static char folder[64];

static int no_fsync(int fd) { return 0; } // no need to wait for a disk

static int setup(void **state) {
    tri_os.fsync = no_fsync;
    snprintf(folder, sizeof folder, "/tmp/trireme-mesh-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state) { return tri_os_remove_tree(folder) != TRI_OK; }

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_plan *plan;
    tri_optimizer optimizer;
    tri_engine *engine;
    tri_state_view model_view, optimizer_view;
} rig;

static int schedule_of(const char *name) {
    int index = 0;
    while (name && tri_orders[index] != tri_order_find(name)) index++;
    return index;
}

static void open_rig(rig *r, const cell *c, const tri_task *task, tri_comm *comm) {
    static double betas[] = {0.9, 0.999};
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    CHECK_OK(tri_device_cpu.open(&(tri_device_config){.threads = 1}, &r->device));
    CHECK_OK(tri_optimizer_make(
        r->arena,
        &(tri_optimizer_options){.name = "adamw", .lr = 0.01, .betas = {betas, 2}, .eps = 1e-8},
        &r->optimizer));
    int count = 0;
    while (count < TRI_TASK_MAX_FIELDS && task->fields[count].name) count++;
    tri_model_request model = {
        .task = task, .fields = task->fields, .field_count = count, .options = {.seed = 1}};
    tri_strategy_options options = {.name = c->strategy,
                                    .recompute_every = 1,
                                    .prefetch = 1,
                                    .stages_per_rank = 2,
                                    .schedule = schedule_of(c->schedule)};
    tri_plan_request request = {.model = &model,
                                .options = &options,
                                .rank = comm->rank,
                                .step_samples = {[TRI_STEP_FULL] = 12},
                                .micro = 1,
                                .optimizer_states = r->optimizer.state_count};
    CHECK_OK(tri_mesh_make(c->size, TRI_AXIS_SHARD, comm->size, &request.mesh));
    CHECK_OK(tri_plan_create(r->arena, &r->device->description, &request, &r->plan));
    CHECK_OK(tri_engine_create(
        &(tri_engine_config){
            .plan = r->plan, .device = r->device, .world = comm, .optimizer = &r->optimizer},
        &r->engine));
    tri_state_view_model(r->arena, r->engine, false, &r->model_view);
    tri_state_view_optimizer(r->arena, r->engine, &r->optimizer_view);
}

static void close_rig(rig *r) {
    tri_engine_destroy(r->engine);
    tri_plan_destroy(r->plan);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

// Writes a distinct value to every element, 1001 elements at a time, so that writes begin and end
// anywhere in a rank's shards and slices.
static void fill(const tri_state_sink *sink, uint32_t seed) {
    enum { SOME = 1001 };
    for (int i = 0; i < sink->count; i++) {
        int64_t total = tri_shape_count(&sink->tensors[i].shape);
        for (int64_t first = 0; first < total; first += SOME) {
            float values[SOME];
            int64_t number = 7 + i, count = total - first < SOME ? total - first : SOME;
            for (int64_t k = 0; k < count; k++)
                values[k] =
                    (float)(((uint32_t)(first + k) * 2654435761u + seed + (uint32_t)i) >> 8);
            bool is_number = sink->tensors[i].dtype == TRI_I64;
            CHECK_OK(sink->write(sink->context, i, first, count,
                                 is_number ? (void *)&number : (void *)values));
        }
    }
}

static void save(rig *r, const char *name, tri_comm *comm) {
    char run_dir[160];
    snprintf(run_dir, sizeof run_dir, "%s/%s", folder, name);
    CHECK_OK(tri_checkpoint_save(&(tri_checkpoint_save_request){
        .run_dir = run_dir,
        .step = 1,
        .model = &r->model_view.source,
        .optimizer = &r->optimizer_view.source,
        .training = tri_tree_map(r->arena),
        .monitor = {.name = "val_loss"},
        .comm = comm,
        .chunk_bytes = 40000, // some tensors have several chunks, others less than one
    }));
}

typedef struct order {
    const cell *cell;
    const tri_task *task;
} order;

static void body(tri_comm *comm, ranks_table *table, void *argument) {
    const order *o = argument;
    char reference[160];
    rig r;
    open_rig(&r, o->cell, o->task, comm);
    CHECK_OK(tri_engine_initialize(r.engine, 5));
    fill(&r.optimizer_view.sink, 1);
    save(&r, "initial", comm);
    fill(&r.model_view.sink, 2);
    save(&r, "filled", comm);
    snprintf(reference, sizeof reference, "%s/single", folder);
    CHECK(access(reference, F_OK) == 0 || comm->size == 1);
    if (comm->size > 1) {
        CHECK_OK(tri_checkpoint_load(NULL, reference,
                                     &(tri_checkpoint_sinks){.model = &r.model_view.sink,
                                                             .optimizer = &r.optimizer_view.sink},
                                     NULL));
        save(&r, "loaded", comm);
    }
    close_rig(&r);
}

static void check_same(const char *name, const char *reference, const char *what) {
    static const char *const files[] = {"model", "optimizer"};
    for (int i = 0; i < 2; i++) {
        char *text[2], path[200];
        size_t size[2];
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%s/checkpoints/step-00000001/%s.safetensors", folder,
                     k ? reference : name, files[i]);
            assert_int_equal(tri_os_read_file(path, 1 << 28, &text[k], &size[k]), TRI_OK);
        }
        if (size[0] != size[1] || memcmp(text[0], text[1], size[0]) != 0)
            fail_msg("%s: %s.safetensors is not that of one rank (%s)", what, files[i], name);
        free(text[0]);
        free(text[1]);
    }
}

static void move(const char *from, const char *to) {
    char old[160], new[160];
    snprintf(old, sizeof old, "%s/%s", folder, from);
    snprintf(new, sizeof new, "%s/%s", folder, to);
    assert_int_equal(rename(old, new), 0);
}

static void check_model(int m) {
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const cell *c = &cells[i];
        int size = 1;
        for (int k = 0; k < TRI_AXIS_COUNT; k++) size *= c->size[k];
        bool has_4_stages = c->schedule && tri_order_find(c->schedule)->loops_over_stages;
        if ((c->size[T] > 1 || has_4_stages) && !models[m].divides) continue;
        order all = {c, models[m].task};
        assert_int_equal(ranks_run(size, NULL, body, &all), 0);
        if (size == 1) {
            move("filled", "single");
            move("initial", "single-initial");
            continue;
        }
        char what[96];
        snprintf(what, sizeof what, "%s, %s", models[m].task->name, c->name);
        check_same("initial", "single-initial", what);
        check_same("filled", "single", what);
        check_same("loaded", "single", what);
    }
}

static void test_llama(void **state) { check_model(0); }
static void test_convnet(void **state) { check_model(1); }
static void test_fused(void **state) { check_model(2); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_llama, setup, teardown),
        cmocka_unit_test_setup_teardown(test_convnet, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests weights of plans that train nothing: they are kept in the type in which kernels read them,
// without masters, which the plan's memory counts; a parameter that is mapped from a file gives the
// same loss as one that is written, also after another file has taken the place of its own.
#include "device/cpu/cpu.h"
#include "device/far/far.h"
#include "device/ref/ref.h"
#include "engine/engine.h"
#include "tensor/half.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <cmocka.h>

enum { IN = 256, OUT = 160, TOKENS = 96, SAMPLES = 3, SHIFT = 8 };

static void check(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static void build(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "body");
    tri_value x = tri_embedding(g, "table", tri_batch_field(batch, "tokens"),
                                (tri_embedding_options){.tokens = TOKENS, .features = IN});
    x = tri_layer_norm(g, "norm", x, (tri_layer_norm_options){0});
    tri_block(g, "head");
    x = tri_linear(g, "head", x, OUT);
    tri_loss(g, tri_mse_loss(g, x, tri_batch_field(batch, "targets")));
}

static const tri_task task = {
    .name = "stored",
    .build = build,
    .fields = {{"tokens", TRI_I64, {0}}, {"targets", TRI_F32, {1, {OUT}}}}};

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_comm *comm;
    tri_plan *plan;
    tri_optimizer optimizer;
    tri_engine *engine;
    int64_t tokens[SAMPLES];
    float targets[SAMPLES * OUT];
} rig;

static tri_status next_batch(void *context, tri_engine_batch *out) {
    rig *r = context;
    *out = (tri_engine_batch){.size = SAMPLES, .fields = {r->tokens, r->targets}};
    return TRI_OK;
}

static void open_rig(rig *r, const tri_device_backend *backend, tri_precision precision,
                     bool half_weights, bool trains) {
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    check(backend->open(&(tri_device_config){.threads = 2}, &r->device));
    check(tri_comm_self_open(&r->comm));
    check(tri_optimizer_make(r->arena, &(tri_optimizer_options){.name = "sgd", .lr = 1},
                             &r->optimizer));
    tri_model_request model = {
        .task = &task,
        .fields = task.fields,
        .field_count = 2,
        .options = {.seed = 1, .precision = precision, .half_weights = half_weights}};
    tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE, .recompute_every = 1};
    tri_plan_request request = {.model = &model,
                                .options = &alone,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_EVALUATE] = SAMPLES},
                                .eval_micro = SAMPLES};
    if (trains) request.step_samples[TRI_STEP_FULL] = SAMPLES;
    check(tri_plan_create(r->arena, &r->device->description, &request, &r->plan));
    check(tri_engine_create(
        &(tri_engine_config){
            .plan = r->plan, .device = r->device, .world = r->comm, .optimizer = &r->optimizer},
        &r->engine));
    check(tri_engine_initialize(r->engine, 7));
    for (int i = 0; i < SAMPLES; i++) r->tokens[i] = i * 31 % TOKENS;
    for (int i = 0; i < SAMPLES * OUT; i++) r->targets[i] = (float)(i % 11) / 11;
}

static void close_rig(rig *r) {
    tri_engine_destroy(r->engine);
    tri_plan_destroy(r->plan);
    tri_comm_close(r->comm);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

static double loss_of(rig *r) {
    tri_step_output out;
    check(tri_engine_step(
        r->engine, &(tri_step_input){.shape = TRI_STEP_EVALUATE, .next = next_batch, .context = r},
        &out));
    check(tri_engine_release_batches(r->engine));
    return out.sum[0] / out.count[0];
}

static const tri_engine_tensor *find(const rig *r, const char *name) {
    const tri_engine_tensor *tensors;
    int count = tri_engine_model_tensors(r->engine, &tensors);
    for (int i = 0; i < count; i++)
        if (!strcmp(tensors[i].name, name)) return &tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void test_memory(void **state) {
    rig r;
    const int64_t table = TOKENS * IN, head = OUT * IN, bias = OUT, norm = 2 * IN;
    const struct {
        tri_precision precision;
        bool half_weights, trains;
        int64_t bytes;
    } rows[] = {{TRI_PRECISION_32_TRUE, false, false, 4 * (table + head + bias + norm)},
                {TRI_PRECISION_BF16_MIXED, false, false, 4 * (table + norm) + 2 * (head + bias)},
                {TRI_PRECISION_BF16_MIXED, true, false, 4 * norm + 2 * (table + head + bias)},
                {TRI_PRECISION_BF16_TRUE, true, false, 2 * (table + norm + head + bias)},
                {TRI_PRECISION_BF16_MIXED, false, true, 4 * (table + norm) + 6 * (head + bias)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_rig(&r, &tri_device_cpu, rows[i].precision, rows[i].half_weights, rows[i].trains);
        assert_int_equal(r.plan->memory.parameters, rows[i].bytes);
        tri_dtype kept =
            rows[i].precision == TRI_PRECISION_32_TRUE || rows[i].trains ? TRI_F32 : TRI_BF16;
        assert_int_equal(find(&r, "head.weight")->kept, kept);
        assert_int_equal(find(&r, "head.weight")->dtype, TRI_F32);
        close_rig(&r);
    }
}

// Without masters, devices give the loss that they give with them: each rounds the same F32 values.
static void test_same_loss(void **state) {
    static const tri_device_backend *const backends[] = {&tri_device_ref, &tri_device_cpu,
                                                         &tri_device_far};
    for (int i = 0; i < 3; i++)
        for (int p = TRI_PRECISION_BF16_MIXED; p <= TRI_PRECISION_BF16_TRUE; p++) {
            rig with, without;
            open_rig(&with, backends[i], (tri_precision)p, false, true);
            open_rig(&without, backends[i], (tri_precision)p, false, false);
            assert_float_equal(loss_of(&with), loss_of(&without), 0);
            close_rig(&with);
            close_rig(&without);
        }
}

// Writes the tensor as the engine keeps it to a file, `SHIFT` or one more bytes behind its begin.
static int write_file(const rig *r, const char *path, const tri_engine_tensor *tensor, int shift,
                      float factor) {
    int64_t count = tri_shape_count(&tensor->shape), width = (int64_t)tri_dtype_bytes(tensor->kept);
    uint16_t *values = malloc((size_t)(count * width));
    char gap[SHIFT + 1] = {0};
    assert_non_null(values);
    tri_engine_read(r->engine, tensor, 0, count, values);
    for (int64_t i = 0; i < count; i++)
        values[i] = tri_float_to_bf16(factor * tri_bf16_to_float(values[i]));
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, gap, (size_t)shift), shift);
    assert_int_equal(write(fd, values, (size_t)(count * width)), count * width);
    free(values);
    return fd;
}

static void test_mapped(void **state) {
    char folder[] = "/tmp/stored-XXXXXX", path[64], other[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/weights", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    rig r;
    open_rig(&r, &tri_device_cpu, TRI_PRECISION_BF16_MIXED, true, false);
    double written = loss_of(&r);
    const tri_engine_tensor *head = find(&r, "head.weight"), *table = find(&r, "table.weight");
    bool is_mapped;
    int fd = write_file(&r, path, head, SHIFT + 1, 1);
    check(tri_engine_map(r.engine, head, fd, SHIFT + 1, &is_mapped));
    assert_false(is_mapped); // kernels would read odd addresses
    close(fd);
    fd = write_file(&r, path, table, SHIFT, 1);
    check(tri_engine_map(r.engine, table, fd, SHIFT, &is_mapped));
    assert_false(is_mapped); // 49,152 bytes are copied
    close(fd);
    fd = write_file(&r, path, head, SHIFT, 1);
    check(tri_engine_map(r.engine, head, fd, SHIFT, &is_mapped));
    assert_true(is_mapped);
    close(fd);
    assert_float_equal(loss_of(&r), written, 0);
    fd = write_file(&r, other, head, SHIFT, 2); // reads the mapped values
    assert_int_equal(rename(other, path), 0);
    assert_float_equal(loss_of(&r), written, 0);
    check(tri_engine_map(r.engine, head, fd, SHIFT, &is_mapped));
    assert_true(is_mapped && loss_of(&r) != written);
    close(fd);
    // What is written takes the place of what was mapped.
    check(tri_engine_initialize(r.engine, 7));
    assert_float_equal(loss_of(&r), written, 0);
    close_rig(&r);
    // Where something is trained, or the host cannot use the device's memory, nothing is mapped.
    for (int i = 0; i < 2; i++) {
        open_rig(&r, i ? &tri_device_far : &tri_device_cpu, TRI_PRECISION_BF16_MIXED, false, !i);
        fd = open(path, O_RDONLY);
        check(tri_engine_map(r.engine, find(&r, "head.weight"), fd, SHIFT, &is_mapped));
        assert_false(is_mapped);
        close(fd);
        close_rig(&r);
    }
    unlink(path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_same_loss),
                                       cmocka_unit_test(test_mapped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Checks that plans are made from the description of a device (backend, memory, alignment), without
// opening it, that they obey the description's alignment and memory, and that a device is chosen by
// its name.
#include "device/choose.h"
#include "device/null/null.h"
#include "device/ref/ref.h"
#include "plan/fit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static tri_status never_open(const tri_device_config *config, tri_device **out) {
    fail_msg("a plan opened its device");
    return TRI_INTERNAL;
}

static tri_status never_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    fail_msg("a plan prepared a kernel");
    return TRI_INTERNAL;
}

enum { KERNELS = 256 };

static void model(tri_graph *g, const tri_batch *batch) {
    tri_value hidden = batch->inputs;
    // The layers are so large that sharding saves more than the memory that its communicators need.
    for (int i = 0; i < 4; i++) {
        tri_block(g, tri_name(g, "hidden%d", i));
        hidden = tri_relu(g, tri_linear(g, tri_name(g, "hidden%d", i), hidden, 1000));
    }
    tri_block(g, "head");
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", hidden, 3), batch->labels));
}

static const tri_task task = {.name = "test", .build = model};
static const tri_field fields[] = {{"inputs", TRI_F32, {1, {500}}}, {"labels", TRI_I64, {0, {0}}}};

static tri_plan_request request_of(tri_precision precision) {
    static tri_model_request of_model = {.task = &task, .fields = fields, .field_count = 2};
    static const tri_strategy_options ddp = {.name = TRI_STRATEGY_DDP, .recompute_every = 1};
    tri_plan_request request = {.model = &of_model,
                                .options = &ddp,
                                .step_samples = {[TRI_STEP_FULL] = 16},
                                .optimizer_states = 2};
    of_model.options.precision = precision;
    ok(tri_mesh_make((const int[TRI_AXIS_COUNT]){0}, TRI_AXIS_REPLICATE, 2, &request.mesh));
    return request;
}

// Plans for the reference device `ref`, whose `open` and `prepare` are replaced by functions that
// fail the test. Also searches for settings that fit into less memory.
static void test_plan_of_a_description(void **state) {
    (void)state;
    static tri_kernel_def defs[KERNELS];
    static const tri_kernel_def *kernels[KERNELS];
    for (int i = 0; tri_device_ref.kernels[i]; i++) {
        defs[i] = *tri_device_ref.kernels[i];
        defs[i].prepare = never_prepare;
        kernels[i] = &defs[i];
    }
    tri_device_backend closed = {.name = "closed", .kernels = kernels, .open = never_open};
    tri_device_description device = {.backend = &closed, .threads = 1, .alignment = 64};
    tri_plan_request request = request_of(TRI_PRECISION_32_TRUE);
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_plan *plan;
    ok(tri_plan_create(arena, &device, &request, &plan));
    assert_ptr_equal(plan->device.backend, &closed);
    assert_true(plan->sizes.workspace_bytes > 0); // matrix products need it for their sums
    tri_candidate found[TRI_MAX_CANDIDATES], least;
    int count = tri_fit_search(arena, &device, &request, &tri_rates_assumed, NULL,
                               plan->memory.peak - 1, found, &least);
    assert_true(count > 0 && found[0].peak_bytes < plan->memory.peak);
    tri_device_memory memory = {.bytes = plan->memory.peak, .whose = "of this test"};
    ok(tri_fit_check(&device, &request, plan->memory.peak, &memory));
    memory.bytes--;
    assert_int_equal(tri_fit_check(&device, &request, plan->memory.peak, &memory), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "of this test; would fit"));
    plan->memory.offloaded = INT64_MAX / 2;
    ok(tri_fit_check_host(plan, 1)); // offloaded to a file, so it takes no memory of the host
    plan->offload.in_host_memory = true;
    assert_int_equal(tri_fit_check_host(plan, 1), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "strategy.offload_path"));
    plan->memory.offloaded = 1;
    ok(tri_fit_check_host(plan, 1));
    tri_plan_destroy(plan);
    tri_arena_destroy(arena);
}

static void check_locations(const tri_program *p, int64_t alignment) {
    for (int i = 0; i < p->graph->value_count; i++) {
        tri_location at = p->locations[i];
        if (at.kind != TRI_LOCATION_PARAMETER && at.kind != TRI_LOCATION_RESULT)
            assert_int_equal(at.offset % alignment, 0);
    }
    for (int i = 0; i < p->bundle_count; i++)
        assert_int_equal(p->bundles[i].size_bytes % alignment, 0);
}

// Checks that all that a plan places in memory begins at a multiple of the description's alignment,
// parameters in a half type too.
static void test_alignment(void **state) {
    (void)state;
    tri_device_config config = {.model = tri_device_null.models};
    tri_device_description device;
    ok(tri_device_null.describe(&config, &device));
    int64_t alignment = device.alignment;
    assert_int_equal(alignment, 256);
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_plan_request request = request_of(TRI_PRECISION_BF16_MIXED);
    tri_plan *plan;
    ok(tri_plan_create(arena, &device, &request, &plan));
    for (int i = 0; i < plan->program_count; i++) check_locations(plan->programs[i], alignment);
    for (int i = 0; i < plan->flat.parameter_count; i++)
        assert_int_equal(plan->flat.parameters[i].offset * 2 % alignment, 0);
    for (int u = 0; u < plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++)
            assert_int_equal(plan->flat.units[u].buckets[k].own * 2 % alignment, 0);
    const tri_step_memory *memory = &plan->steps[TRI_STEP_FULL].memory;
    assert_true(memory->buffer_count > 0);
    for (int i = 0; i < memory->buffer_count; i++)
        assert_int_equal(memory->buffers[i].offset % alignment, 0);
    assert_int_equal(plan->sizes.workspace_bytes % alignment, 0);
    tri_plan_destroy(plan);
    tri_arena_destroy(arena);
}

static int64_t seven_bytes(tri_device *device) { return 7; }

// tri_device_memory_of tells which memory a plan may use: what is free on an open device, the
// memory that the device's description names, or the host's.
static void test_memory(void **state) {
    (void)state;
    const tri_device_backend *const devices[] = {&tri_device_ref, &tri_device_null, NULL};
    tri_device_backend counting = tri_device_ref;
    tri_device_description host, h200, open = {.backend = &counting};
    tri_device device = {.backend = &counting};
    counting.free_memory = seven_bytes;
    ok(tri_device_describe(devices, "ref", &host));
    ok(tri_device_describe(devices, "null:h200", &h200));
    tri_device_memory memory = tri_device_memory_of(&host, NULL, 1);
    assert_true(!memory.is_own && strstr(memory.whose, "on this host"));
    memory = tri_device_memory_of(&h200, NULL, 4); // each rank has a GPU of its own
    assert_true(memory.is_own && memory.bytes == 141000000000);
    assert_string_equal(memory.whose, "of null:h200");
    memory = tri_device_memory_of(&open, &device, 4);
    assert_true(memory.is_own && memory.bytes == 7);
    open.reserve_bytes = 3; // libraries of the device take it, so no plan may use it
    memory = tri_device_memory_of(&open, &device, 4);
    assert_int_equal(memory.bytes, 4);
    open.reserve_bytes = 8;
    assert_int_equal(tri_device_memory_of(&open, &device, 4).bytes, 1);
    memory = tri_device_memory_of(&h200, NULL, 1);
    tri_plan_request request = request_of(TRI_PRECISION_32_TRUE);
    tri_strategy_options given = *request.options;
    request.options = &given;
    assert_int_equal(tri_fit_memory(&request, &memory).bytes, 141000000000);
    given.memory = "200G"; // more than there is
    assert_string_equal(tri_fit_memory(&request, &memory).whose, "of null:h200");
    given.memory = "10G";
    assert_string_equal(tri_fit_memory(&request, &memory).whose, "of strategy.memory");
}

// Two devices: `absent`, which this host does not have, and `broken`, which fails.
static tri_status absent_describe(const tri_device_config *config, tri_device_description *out) {
    return TRI_FAIL(TRI_NOT_FOUND, "device absent: this host has none");
}
static tri_status absent_open(const tri_device_config *config, tri_device **out) {
    return TRI_FAIL(TRI_NOT_FOUND, "device absent: this host has none");
}
static tri_status broken_describe(const tri_device_config *config, tri_device_description *out) {
    return TRI_FAIL(TRI_INTERNAL, "device broken: it does not answer");
}
static tri_status broken_open(const tri_device_config *config, tri_device **out) {
    return TRI_FAIL(TRI_INTERNAL, "device broken: it does not answer");
}

static const tri_device_backend absent = {
    .name = "absent", .describe = absent_describe, .open = absent_open};
static const tri_device_backend broken = {
    .name = "broken", .describe = broken_describe, .open = broken_open};

static int opened; // the number of the GPU that few_open has opened

// A container that sees two of its host's GPUs.
static tri_status few_open(const tri_device_config *config, tri_device **out) {
    if (config->index > 1) return TRI_FAIL(TRI_BAD_INPUT, "only 2 are visible");
    opened = config->index;
    return TRI_OK;
}

static const tri_device_backend few = {
    .name = "few", .describe = broken_describe, .open = few_open};

// A rank takes the GPU of its number on the host, if it sees that many, else the one of the number
// that its launcher gave it.
static void test_of_rank(void **state) {
    (void)state;
    static const struct {
        int local_rank, launcher_local_rank, opened; // opened -1: refused
    } cases[] = {{0, 0, 0}, {1, 0, 1}, {2, 0, 0}, {3, 1, 1}, {2, -1, -1}, {2, 2, -1}, {3, 2, -1}};
    const tri_device_backend *const devices[] = {&few, NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_device *device;
        opened = -1;
        tri_status status = tri_device_open_of_rank(devices, "few", cases[i].local_rank,
                                                    cases[i].launcher_local_rank, &device);
        assert_int_equal(status, cases[i].opened < 0 ? TRI_BAD_INPUT : TRI_OK);
        assert_int_equal(opened, cases[i].opened);
    }
}

static void check_choice(const tri_device_backend *const *devices, const char *name,
                         tri_status status, const char *expected) {
    tri_device_description description;
    tri_device *device = NULL;
    assert_int_equal(tri_device_describe(devices, name, &description), status);
    if (status == TRI_OK)
        assert_string_equal(description.backend->name, expected);
    else
        assert_non_null(strstr(tri_error_message(), expected));
    assert_int_equal(tri_device_open(devices, name, 0, &device), status);
    if (status != TRI_OK) {
        assert_null(device);
        assert_non_null(strstr(tri_error_message(), expected));
        return;
    }
    assert_string_equal(device->backend->name, expected);
    device->backend->close(device);
}

static void test_choice(void **state) {
    (void)state;
    const tri_device_backend *const missing[] = {&absent, &tri_device_ref, NULL};
    const tri_device_backend *const failing[] = {&absent, &broken, &tri_device_ref, NULL};
    const tri_device_backend *const none[] = {&absent, NULL};
    check_choice(missing, "auto", TRI_OK, "ref");
    check_choice(missing, "absent", TRI_NOT_FOUND, "this host has none");
    check_choice(failing, "auto", TRI_INTERNAL, "device broken: it does not answer");
    check_choice(failing, "ref", TRI_OK, "ref");
    check_choice(failing, "broken", TRI_INTERNAL, "it does not answer");
    check_choice(none, "auto", TRI_NOT_FOUND, "none of absent is here");
    check_choice(failing, "cpu", TRI_BAD_INPUT, "this program has absent, broken, ref");
    const tri_device_backend *const models[] = {&tri_device_ref, &tri_device_null, NULL};
    check_choice(models, "null:a100-40", TRI_OK, "null");
    check_choice(models, "null:a100", TRI_BAD_INPUT,
                 "null has no model 'a100'; it has gb200, b200, gh200, h200, h100-64, h100-80");
    check_choice(models, "null:", TRI_BAD_INPUT, "null has no model ''; it has gb200");
    check_choice(models, "ref:h200", TRI_BAD_INPUT, "ref has no models");
    check_choice(models, "nul:h200", TRI_BAD_INPUT, "there is no device 'nul:h200'");
    check_choice(models, "auto:h200", TRI_BAD_INPUT, "there is no device 'auto:h200'");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan_of_a_description),
                                       cmocka_unit_test(test_alignment),
                                       cmocka_unit_test(test_memory), cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_of_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

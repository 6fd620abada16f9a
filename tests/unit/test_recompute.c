// Checks that training with recomputation gives the same bits as without it. RECOMPUTE, the action
// that runs a block's forward pass again before its backward pass, must find the values that it
// reads unchanged, and must not write over memory that another value has taken over.
#include "comm/comm.h"
#include "device/ref/ref.h"
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

// Builds a model in which block "left" reads x only by way of relu(x). Block "join" is the last to
// read x, so the sum z could be written into the memory of x. It must not be, because RECOMPUTE of
// "left" reads x again.
static void skips(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "stem");
    tri_value x = tri_linear(g, "stem", batch->inputs, 6);
    tri_block(g, "left");
    tri_value y = tri_linear(g, "left", tri_relu(g, x), 6);
    tri_block(g, "join");
    tri_value z = tri_add(g, x, y);
    z = tri_linear(g, "join", z, 6);
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", z, 2), batch->targets));
}

// Builds a model in which block "join" is the last to read v, so the sum of v and n could be
// written into the memory of v. It must not be, because RECOMPUTE of "left" writes v again and
// would destroy the sum.
static void hands_on(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "stem");
    tri_value x = tri_linear(g, "stem", batch->inputs, 6);
    tri_block(g, "left");
    tri_value v = tri_linear(g, "left", x, 6);
    tri_value n = tri_linear(g, "left2", tri_relu(g, v), 6);
    tri_block(g, "join");
    tri_value z = tri_linear(g, "join", tri_add(g, v, n), 6);
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", z, 2), batch->targets));
}

// Builds a model in which block "left" makes two values: v, which only "left" reads, and w, which
// only other blocks read. So the sum w can be written into the memory of v.
static void writes_over(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "stem");
    tri_value x = tri_linear(g, "stem", batch->inputs, 6);
    tri_block(g, "left");
    tri_value v = tri_linear(g, "left", x, 6);
    tri_value n = tri_linear(g, "left2", tri_relu(g, v), 6);
    tri_value w = tri_add(g, v, n);
    tri_block(g, "join");
    tri_value z = tri_linear(g, "join", w, 6);
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", z, 2), batch->targets));
}

// Builds a model whose block "side" reads the weight of the block "stem" only for a metric, and
// only if `reads`.
static void build_side(tri_graph *g, const tri_batch *batch, bool reads) {
    tri_block(g, "stem");
    tri_value x = tri_linear(g, "stem", batch->inputs, 6);
    tri_block(g, "side");
    tri_linear_options borrowed = {.features = 6, .no_bias = true, .weight = "stem.weight"};
    if (reads)
        tri_metric(g, "side",
                   tri_mse_loss(g, tri_linear_with(g, "side", batch->inputs, borrowed), x));
    tri_value y = tri_linear(g, "side2", x, 6);
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", y, 2), batch->targets));
}

static void without_side(tri_graph *g, const tri_batch *batch) { build_side(g, batch, false); }
static void with_side(tri_graph *g, const tri_batch *batch) { build_side(g, batch, true); }

static void (*const models[])(tri_graph *g, const tri_batch *batch) = {skips, hands_on, writes_over,
                                                                       without_side, with_side};
enum { MODELS = 3, WITHOUT_SIDE = 3, WITH_SIDE = 4, SAMPLES = 6, PARAMETERS = 400 };

static const tri_field fields[] = {{"inputs", TRI_F32, {1, {4}}}, {"targets", TRI_F32, {1, {2}}}};

static float numbers[SAMPLES * 4];

static void check(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static tri_status next_batch(void *context, tri_engine_batch *out) {
    int *left = context;
    int size = *left < 4 ? *left : 4;
    *left -= size;
    *out = (tri_engine_batch){.size = size, .fields = {numbers + *left, numbers}};
    return TRI_OK;
}

// Trains for two steps of two micro-batches, writes the values of all parameters to `out`, and
// returns how many values these are.
static int train(int model_index, bool recompute, float *out) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const tri_task task = {.name = "odd", .build = models[model_index]};
    tri_model_request model = {
        .task = &task, .fields = fields, .field_count = 2, .options = {.seed = 1}};
    tri_strategy_options strategy = {.name = TRI_STRATEGY_SINGLE,
                                     .recompute =
                                         recompute ? TRI_RECOMPUTE_BLOCK : TRI_RECOMPUTE_NONE,
                                     .recompute_every = 2};
    tri_plan_request request = {.model = &model,
                                .options = &strategy,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_FULL] = SAMPLES},
                                .micro = 4};
    tri_optimizer optimizer;
    check(
        tri_optimizer_make(arena, &(tri_optimizer_options){.name = "sgd", .lr = 0.1}, &optimizer));
    request.optimizer_states = optimizer.state_count;
    tri_device *device;
    tri_comm *comm;
    tri_plan *plan;
    tri_engine *engine;
    check(tri_device_ref.open(&(tri_device_config){.threads = 1}, &device));
    check(tri_comm_self_open(&comm));
    check(tri_plan_create(arena, &device->description, &request, &plan));
    check(tri_engine_create(
        &(tri_engine_config){
            .plan = plan, .device = device, .world = comm, .optimizer = &optimizer},
        &engine));
    assert_int_equal(tri_engine_initialize(engine, 1), TRI_OK);
    for (int64_t step = 0; step < 2; step++) {
        int left = SAMPLES;
        tri_step_output result;
        check(tri_engine_step(engine,
                              &(tri_step_input){.shape = TRI_STEP_FULL,
                                                .step = step,
                                                .lr = {0.1},
                                                .next = next_batch,
                                                .context = &left},
                              &result));
    }
    const tri_engine_tensor *tensors;
    int count = tri_engine_model_tensors(engine, &tensors), found = 0;
    for (int i = 0; i < count; i++) {
        int64_t elements = tri_shape_count(&tensors[i].shape);
        assert_true(found + elements <= PARAMETERS);
        tri_engine_read(engine, &tensors[i], 0, elements, out + found);
        found += (int)elements;
    }
    tri_engine_destroy(engine);
    tri_plan_destroy(plan);
    tri_comm_close(comm);
    device->backend->close(device);
    tri_arena_destroy(arena);
    return found;
}

static void test_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < SAMPLES * 4; i++) numbers[i] = (float)(i * 7 % 13) / 13 - 0.4f;
    for (int i = 0; i < MODELS; i++) {
        float kept[PARAMETERS], again[PARAMETERS];
        int count = train(i, false, kept);
        assert_int_equal(train(i, true, again), count);
        for (int k = 0; k < count; k++)
            if (kept[k] != again[k])
                fail_msg("model %d, parameter %d: %g, computed again %g", i, k, (double)kept[k],
                         (double)again[k]);
    }
}

// A block that reads a shared weight but makes no gradient of it adds nothing to that weight's
// gradient.
static void test_reader_without_gradient(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        float without[PARAMETERS], with[PARAMETERS];
        int count = train(WITHOUT_SIDE, again, without);
        assert_int_equal(train(WITH_SIDE, again, with), count);
        assert_memory_equal(without, with, (size_t)count * sizeof *with);
    }
}

// If the backward pass is split, BACKWARD_WEIGHT (the half that makes the gradients of weights) of
// block "join" may come after RECOMPUTE of block "left", and still reads w, the sum of v and n. So
// w must not share memory with v, which RECOMPUTE of "left" writes again.
// Checks that outputs that the node does not make have no memory, so that kernels get NULL for
// them. Returns their number.
static int check_outputs_not_made(const tri_program *p, const tri_node *node) {
    int count = 0;
    for (int k = 0; k < node->output_count; k++) {
        if (tri_value_bytes(p->graph, node->outputs[k]) > 0) continue;
        assert_int_equal(p->locations[node->outputs[k].id].kind, TRI_LOCATION_NONE);
        count++;
    }
    return count;
}

static void test_split_backward(void **state) {
    (void)state;
    static const bool recompute[] = {false, true, false, false};
    for (int i = 1; i < MODELS; i++)
        for (int again = 0; again < 2; again++) {
            tri_arena *arena = tri_arena_create(NULL, "test");
            const tri_task task = {.name = "odd", .build = models[i]};
            tri_model_request model = {.task = &task,
                                       .fields = fields,
                                       .field_count = 2,
                                       .options = {.seed = 1, .training = true}};
            tri_device *device;
            tri_program *program;
            check(tri_device_ref.open(&(tri_device_config){.threads = 1}, &device));
            check(tri_program_create(arena, &device->description,
                                     &(tri_program_request){.model = &model,
                                                            .batch = 4,
                                                            .recompute = again ? recompute : NULL,
                                                            .splits_backward = true},
                                     &program));
            int sums = 0, unmade = 0;
            for (int n = 0; n < program->graph->node_count; n++) {
                const tri_node *node = &program->graph->nodes[n];
                unmade += check_outputs_not_made(program, node);
                if (strcmp(node->op->name, "add") != 0 || node->phase != TRI_PHASE_FORWARD)
                    continue;
                tri_location in = program->locations[node->inputs[0].id];
                tri_location out = program->locations[node->outputs[0].id];
                bool one = in.kind == out.kind && in.index == out.index && in.offset == out.offset;
                assert_int_equal(one, !again);
                sums++;
            }
            assert_int_equal(sums, 1);
            assert_true(unmade > 0);
            tri_program_destroy(program);
            device->backend->close(device);
            tri_arena_destroy(arena);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_reader_without_gradient),
                                       cmocka_unit_test(test_split_backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

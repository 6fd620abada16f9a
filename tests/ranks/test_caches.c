// Caches: a decoder whose sequences come in pieces, of random lengths and in several calls, has the
// scores that it has for whole sequences: on each device, on ranks that share layers and in a
// pipeline, also after rows of the caches were moved. A sequence longer than its cache is refused.
#include "support/comm_ranks.h"
#include "support/model_options.h"
#include "support/test_gpu.h"

#include "base/philox.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/far/far.h"
#include "device/queue.h"
#include "device/ref/ref.h"
#include "engine/engine.h"
#include "nn/models/models.h"
#include "tensor/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SEQUENCES = 3, TOKENS = 13, LENGTH = 14, PIECE = 5, VOCABULARY = 32, MICRO = 2 };

typedef struct cell {
    const tri_device_backend *device;
    tri_precision precision;
    int size[TRI_AXIS_COUNT];
    double tolerance;
} cell;

enum { P = TRI_AXIS_PIPELINE, T = TRI_AXIS_TENSOR_PARALLEL };

static const cell cells[] = {
    {&tri_device_ref, TRI_PRECISION_32_TRUE, {1, 1, 1, 1}, 1e-6},
    {&tri_device_cpu, TRI_PRECISION_32_TRUE, {1, 1, 1, 1}, 1e-5},
    {&tri_device_cpu, TRI_PRECISION_BF16_MIXED, {1, 1, 1, 1}, 0.02},
    {&tri_device_far, TRI_PRECISION_32_TRUE, {1, 1, 1, 1}, 1e-5},
    {&tri_device_cuda, TRI_PRECISION_32_TRUE, {1, 1, 1, 1}, 1e-5},
    {&tri_device_ref, TRI_PRECISION_32_TRUE, {[P] = 1, 1, 1, [T] = 2}, 1e-6},
    {&tri_device_cpu, TRI_PRECISION_32_TRUE, {[P] = 1, 1, 1, [T] = 2}, 1e-5},
    {&tri_device_cpu, TRI_PRECISION_32_TRUE, {[P] = 2, 1, 1, [T] = 1}, 1e-5},
};

// Further options of the model, behind a comma.
static const char *more_options = "";

static const tri_task *task = &tri_model_llama;

static const tri_tree *options_of_model(tri_arena *arena) {
    if (task == &tri_model_gpt2) // as many positions as the caches have room
        return model_options(arena,
                             "{vocab_size: %d, n_positions: %d, n_embd: 16, n_layer: 2, n_head: 4}",
                             VOCABULARY, LENGTH);
    return model_options(arena,
                         "{vocab_size: %d, hidden_size: 16, intermediate_size: 24, "
                         "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2%s}",
                         VOCABULARY, more_options);
}

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_optimizer optimizer;
    tri_plan *plan;
    tri_engine *engine;
    const int64_t *ids;    // [SEQUENCES, tokens of the call]
    const int64_t *spans;  // [SEQUENCES, 2]
    int64_t tokens, given; // tokens of the call; sequences that next_batch has given
    double *logits;        // [SEQUENCES, logits of a sequence]
    int64_t handed_over;   // rows
} rig;

static void open_rig(rig *r, const cell *c, tri_comm *comm, bool caches) {
    static const tri_field whole[] = {{"input_ids", TRI_I64, {1, {TOKENS}}}},
                           piece[] = {{"input_ids", TRI_I64, {1, {PIECE}}},
                                      {"spans", TRI_I64, {1, {2}}}},
                           one[] = {{"input_ids", TRI_I64, {1, {1}}}, {"spans", TRI_I64, {1, {2}}}};
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    CHECK_OK(c->device->open(&(tri_device_config){.threads = 1}, &r->device));
    CHECK_OK(tri_optimizer_make(r->arena, &(tri_optimizer_options){.name = "sgd", .lr = 0.01},
                                &r->optimizer));
    tri_model_request model = {.task = task,
                               .fields = caches ? piece : whole,
                               .field_count = caches ? 2 : 1,
                               .options = {.seed = 1,
                                           .predicts = true,
                                           .cache_length = caches ? LENGTH : 0,
                                           .precision = c->precision,
                                           .model_options = options_of_model(r->arena)}};
    tri_strategy_options options = {.name =
                                        c->size[P] > 1 ? TRI_STRATEGY_PIPELINE : TRI_STRATEGY_DDP,
                                    .recompute_every = 1,
                                    .prefetch = 1,
                                    .stages_per_rank = 1};
    tri_plan_request request = {
        .model = &model,
        .options = &options,
        .rank = comm->rank,
        .step_samples =
            {[TRI_STEP_PREFILL] = SEQUENCES, [TRI_STEP_DECODE] = caches ? SEQUENCES : 0},
        .step_fields = {[TRI_STEP_DECODE] = one},
        .micro = MICRO,
        .eval_micro = MICRO,
        .optimizer_states = r->optimizer.state_count};
    CHECK_OK(tri_mesh_make(c->size, TRI_AXIS_SHARD, comm->size, &request.mesh));
    CHECK_OK(tri_plan_create(r->arena, &r->device->description, &request, &r->plan));
    CHECK((r->plan->memory.caches > 0) == caches);
    CHECK_OK(tri_engine_create(
        &(tri_engine_config){
            .plan = r->plan, .device = r->device, .world = comm, .optimizer = &r->optimizer},
        &r->engine));
    CHECK_OK(tri_engine_initialize(r->engine, 1));
}

static void close_rig(rig *r) {
    tri_engine_destroy(r->engine);
    tri_plan_destroy(r->plan);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

static tri_status next_batch(void *context, tri_engine_batch *out) {
    rig *r = context;
    int64_t left = SEQUENCES - r->given;
    *out = (tri_engine_batch){.size = left < MICRO ? left : MICRO,
                              .fields = {r->ids + r->given * r->tokens, r->spans + 2 * r->given}};
    r->given += out->size;
    return TRI_OK;
}

static tri_status take(void *context, const tri_output_rows *rows) {
    rig *r = context;
    int64_t row = tri_shape_count(&rows->shape) / rows->size;
    for (int64_t i = 0; i < rows->size * row; i++)
        r->logits[rows->first * row + i] =
            rows->dtype == TRI_F32
                ? (double)((const float *)rows->data)[i]
                : (double)tri_half_to_float(rows->dtype, ((const uint16_t *)rows->data)[i]);
    r->handed_over += rows->size;
    return TRI_OK;
}

static tri_status run(rig *r, tri_step_shape shape, const int64_t *ids, int64_t tokens,
                      const int64_t *spans, double *logits) {
    tri_step_output sums;
    r->ids = ids;
    r->tokens = tokens;
    r->spans = spans;
    r->given = r->handed_over = 0;
    r->logits = logits;
    return tri_engine_step(
        r->engine,
        &(tri_step_input){.shape = shape, .next = next_batch, .output = take, .context = r}, &sums);
}

typedef struct text {
    int64_t ids[SEQUENCES][TOKENS];
    double logits[SEQUENCES][TOKENS][VOCABULARY]; // of whole sequences
} text;

// The sequences of which the caches have a row each.
typedef struct rows {
    int of[SEQUENCES];      // by row: its sequence
    int64_t had[SEQUENCES]; // by row: tokens so far
} rows;

// Computes the next tokens of each sequence, at most `tokens` of them, and compares the scores of
// the last one.
static void go_on(rig *r, const cell *c, const text *t, rows *at, tri_step_shape shape,
                  int64_t tokens, uint32_t *draws) {
    int64_t ids[SEQUENCES * PIECE] = {0}, spans[2 * SEQUENCES];
    double logits[SEQUENCES][VOCABULARY];
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t left = TOKENS - at->had[i], most = left < tokens ? left : tokens;
        spans[2 * i] = at->had[i];
        spans[2 * i + 1] = tri_philox_at(7, 0, 0, (*draws)++) % (uint32_t)(most + 1);
        for (int64_t k = 0; k < tokens; k++)
            ids[i * tokens + k] = k < left ? t->ids[at->of[i]][at->had[i] + k] : 0;
    }
    CHECK_OK(run(r, shape, ids, tokens, spans, &logits[0][0]));
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t count = spans[2 * i + 1];
        if (count == 0) continue;
        at->had[i] += count;
        const double *whole = t->logits[at->of[i]][at->had[i] - 1];
        for (int k = 0; k < VOCABULARY && r->handed_over > 0; k++)
            CHECK(fabs(logits[i][k] - whole[k]) <= c->tolerance);
    }
}

static void move(rig *r, rows *at) {
    const rows before = *at;
    const int64_t from[SEQUENCES] = {2, 0, 1};
    CHECK_OK(tri_engine_move_caches(r->engine, from, SEQUENCES));
    for (int i = 0; i < SEQUENCES; i++) {
        at->of[i] = before.of[from[i]];
        at->had[i] = before.had[from[i]];
    }
}

static bool is_done(const rows *at) {
    for (int i = 0; i < SEQUENCES; i++)
        if (at->had[i] < TOKENS) return false;
    return true;
}

static void check_cell(tri_comm *comm, ranks_table *table, void *argument) {
    const cell *c = argument;
    rig r;
    text t;
    uint32_t draws = 0;
    for (int i = 0; i < SEQUENCES * TOKENS; i++)
        t.ids[i / TOKENS][i % TOKENS] = (i * 7 + i / 5) % VOCABULARY;
    open_rig(&r, c, comm, false);
    CHECK_OK(run(&r, TRI_STEP_EVALUATE, &t.ids[0][0], TOKENS, NULL, &t.logits[0][0][0]));
    close_rig(&r);
    open_rig(&r, c, comm, true);
    for (int again = 0; again < 2; again++) { // caches that are full begin again
        rows at = {{0, 1, 2}, {0}};
        for (int call = 0; !is_done(&at); call++) {
            bool piece = call % 3 == 0;
            go_on(&r, c, &t, &at, piece ? TRI_STEP_PREFILL : TRI_STEP_DECODE, piece ? PIECE : 1,
                  &draws);
            if (call % 4 == 1) move(&r, &at);
        }
    }
    const int64_t ids[SEQUENCES] = {0}, spans[] = {0, 1, LENGTH, 1, 0, 1};
    double logits[SEQUENCES * VOCABULARY];
    CHECK(run(&r, TRI_STEP_DECODE, ids, 1, spans, logits) == TRI_BAD_INPUT);
    ranks_says("sequence 1: 1 tokens after 14");
    tri_engine_abandon(r.engine);
    close_rig(&r);
}

// A program of the kernels of `ref` in F64, run node by node. Its caches are those of `caches`.
typedef struct exact {
    tri_arena *arena;
    tri_device *device;
    tri_graph *graph;
    tri_kernel *kernels;
    void **memory; // by value
} exact;

static void *new_memory(const exact *e, tri_value value) {
    return tri_arena_alloc(e->arena, (size_t)tri_value_bytes(e->graph, value) + 8);
}

static void fill_parameters(const exact *e) {
    for (int i = 0; i < e->graph->parameter_count; i++) {
        const tri_parameter_info *p = &e->graph->parameters[i];
        double *to = e->memory[p->value.id] = new_memory(e, p->value);
        uint64_t key = tri_philox_key(3, p->name);
        for (int64_t k = 0; k < tri_shape_count(&p->shape); k++)
            to[k] = p->role == TRI_ROLE_CONSTANT
                        ? (double)p->init.values[k]
                        : (double)tri_philox_init_uniform(key, (uint64_t)k, -0.5F, 0.5F);
    }
}

static void open_exact(exact *e, int64_t tokens, bool has_caches, const exact *caches) {
    *e = (exact){.arena = tri_arena_create(NULL, "test")};
    const tri_field fields[] = {{"input_ids", TRI_I64, {1, {tokens}}},
                                {"spans", TRI_I64, {1, {2}}}};
    tri_model_request model = {.task = task,
                               .fields = fields,
                               .field_count = has_caches ? 2 : 1,
                               .options = {.seed = 1,
                                           .predicts = true,
                                           .cache_length = has_caches ? LENGTH : 0,
                                           .dtype = TRI_F64,
                                           .model_options = options_of_model(e->arena)}};
    CHECK_OK(tri_device_ref.open(&(tri_device_config){0}, &e->device));
    CHECK_OK(tri_model_build(e->arena, &model, SEQUENCES, &e->graph));
    const tri_graph *g = e->graph;
    e->memory = TRI_NEW_ARRAY(e->arena, void *, g->value_count);
    e->kernels = TRI_NEW_ARRAY(e->arena, tri_kernel, g->node_count);
    fill_parameters(e);
    for (int i = 0; i < g->input_count; i++)
        e->memory[g->inputs[i].value.id] = new_memory(e, g->inputs[i].value);
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        CHECK_OK(tri_kernel_make(e->device, g, node, &e->kernels[i]));
        for (int k = 0; k < node->output_count; k++)
            e->memory[node->outputs[k].id] = new_memory(e, node->outputs[k]);
        for (int k = 0; caches && node->op == &tri_op_cache && k < caches->graph->node_count; k++)
            if (!strcmp(caches->graph->nodes[k].name, node->name))
                e->memory[node->outputs[0].id] =
                    caches->memory[caches->graph->nodes[k].outputs[0].id];
    }
}

static void close_exact(exact *e) {
    for (int i = 0; i < e->graph->node_count; i++) tri_kernel_release(&e->kernels[i]);
    e->device->backend->close(e->device);
    tri_arena_destroy(e->arena);
}

static const double *run_exact(exact *e, const int64_t *ids, const int64_t *spans) {
    const tri_graph *g = e->graph;
    const int64_t *const from[] = {ids, spans};
    tri_queue *queue;
    CHECK_OK(tri_queue_open(e->device, &queue));
    for (int i = 0; i < g->input_count; i++)
        memcpy(e->memory[g->inputs[i].value.id], from[i],
               (size_t)tri_value_bytes(g, g->inputs[i].value));
    for (int i = 0; i < g->node_count; i++) {
        void *in[TRI_MAX_INPUTS] = {NULL}, *out[TRI_MAX_OUTPUTS] = {NULL};
        void *workspace = malloc(e->kernels[i].workspace_bytes + 1);
        for (int k = 0; k < g->nodes[i].input_count; k++)
            in[k] = e->memory[g->nodes[i].inputs[k].id];
        for (int k = 0; k < g->nodes[i].output_count; k++)
            out[k] = e->memory[g->nodes[i].outputs[k].id];
        CHECK_OK(tri_kernel_run(
            &e->kernels[i],
            &(tri_kernel_args){.queue = queue, .in = in, .out = out, .workspace = workspace}));
        free(workspace);
    }
    tri_queue_close(queue);
    return e->memory[g->outputs[0].value.id];
}

// In F64, one call of a piece and then one of each token give the scores of the whole sequences.
static void test_exact(void **state) {
    int64_t ids[SEQUENCES][TOKENS], some[SEQUENCES * PIECE], spans[2 * SEQUENCES];
    exact whole, piece, one;
    double largest = 0;
    for (int i = 0; i < SEQUENCES * TOKENS; i++) ids[i / TOKENS][i % TOKENS] = i * 7 % VOCABULARY;
    open_exact(&whole, TOKENS, false, NULL);
    open_exact(&piece, PIECE, true, NULL);
    open_exact(&one, 1, true, &piece);
    const double *expected = run_exact(&whole, &ids[0][0], NULL);
    for (int64_t had = 0; had < TOKENS - SEQUENCES; had += had ? 1 : PIECE) {
        int64_t tokens = had ? 1 : PIECE;
        for (int i = 0; i < SEQUENCES; i++) { // sequence i lags i tokens behind
            spans[2 * i] = had ? had - i : 0;
            spans[2 * i + 1] = had ? 1 : PIECE - i;
            for (int64_t k = 0; k < tokens; k++) some[i * tokens + k] = ids[i][spans[2 * i] + k];
        }
        const double *found = run_exact(had ? &one : &piece, some, spans);
        for (int i = 0; i < SEQUENCES; i++)
            for (int k = 0; k < VOCABULARY; k++) {
                int64_t last = spans[2 * i] + spans[2 * i + 1] - 1;
                double score = expected[(i * TOKENS + last) * VOCABULARY + k];
                assert_true(fabs(found[i * VOCABULARY + k] - score) <= 1e-12);
                largest = fmax(largest, fabs(score));
            }
    }
    assert_true(largest > 0.1);
    close_exact(&one);
    close_exact(&piece);
    close_exact(&whole);
}

static void test_pieces(void **state) {
    test_gpu_choose();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const cell *c = &cells[i];
        print_message("%s, pipeline %d, tensor %d\n", c->device->name, c->size[P], c->size[T]);
        assert_int_equal(ranks_run(c->size[P] * c->size[T], NULL, check_cell, (void *)(uintptr_t)c),
                         0);
    }
}

// Windows, norms of heads, and rotations that Llama 3 slows down.
static int set_more(void **state) {
    more_options =
        ", sliding_window: 6, qk_norm: true, rope_scaling: {rope_type: llama3, factor: 4,"
        " low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 8}";
    return 0;
}

static int set_gpt2(void **state) {
    task = &tri_model_gpt2;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test_setup(test_exact, set_more),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test_setup(test_exact, set_gpt2),
                                       cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

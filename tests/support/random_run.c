// Draws networks, meshes (how the ranks are arranged) and strategies. Seeds 0, 1, 2, … choose the
// strategy and the sizes of the mesh in turn from the table `ways`, so that each row is used
// equally often. All else is random.
#include "support/random_run.h"

#include "base/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

static const struct {
    tri_strategy_kind strategy;
    int pipeline, replicate, shard;
} ways[] = {
    {TRI_STRATEGY_SINGLE, 1, 1, 1}, {TRI_STRATEGY_DDP, 1, 2, 1},
    {TRI_STRATEGY_ZERO1, 1, 1, 2},  {TRI_STRATEGY_ZERO1, 1, 2, 2},
    {TRI_STRATEGY_ZERO2, 1, 1, 2},  {TRI_STRATEGY_ZERO2, 1, 2, 2},
    {TRI_STRATEGY_FSDP, 1, 1, 2},   {TRI_STRATEGY_FSDP, 1, 2, 2},
    {TRI_STRATEGY_FSDP, 1, 1, 3},   {TRI_STRATEGY_PIPELINE, 2, 1, 1},
    {TRI_STRATEGY_DDP, 2, 2, 1},    {TRI_STRATEGY_PIPELINE, 3, 1, 1},
    {TRI_STRATEGY_ZERO1, 2, 1, 2},  {TRI_STRATEGY_ZERO2, 2, 1, 2},
    {TRI_STRATEGY_FSDP, 2, 1, 2},
};

typedef enum layer {
    LINEAR,
    LAYER_NORM,
    TIED, // shares the first block's weight
    BATCH_NORM,
    DROPOUT,
    LAYER_COUNT
} layer;

typedef struct draws {
    uint64_t seed, at;
} draws;

static int draw(draws *d, int below) {
    return (int)(tri_philox_at(0x5ea3, d->seed, 0, d->at++) % (uint32_t)below);
}

static const random_run *building; // the run whose model the function `build` builds

static tri_value add_layer(tri_graph *g, tri_value x, int block) {
    const char *name = tri_name(g, "l%d", block);
    tri_linear_options options = {.features = building->width};
    layer kind = (layer)building->layers[block];
    if (kind == TIED) options.weight = "l0.weight";
    x = tri_linear_with(g, name, x, options);
    if (kind == LAYER_NORM)
        x = tri_layer_norm(g, tri_name(g, "norm%d", block), x, (tri_layer_norm_options){0});
    if (kind == BATCH_NORM)
        x = tri_batch_norm(g, tri_name(g, "norm%d", block), x, (tri_batch_norm_options){0});
    x = tri_tanh(g, x);
    return kind == DROPOUT ? tri_dropout(g, tri_name(g, "dropout%d", block), x, 0.25) : x;
}

static void build(tri_graph *g, const tri_batch *batch) {
    tri_value outputs[RANDOM_RUN_BLOCKS], x = batch->inputs;
    bool is_read[RANDOM_RUN_BLOCKS] = {false};
    int head = building->block_count - 1;
    for (int b = 0; b < head; b++) {
        int reads = building->reads[b], adds = building->adds[b];
        tri_block(g, tri_name(g, "block%d", b));
        x = add_layer(g, b > 0 ? outputs[reads] : x, b);
        if (b > 0) is_read[reads] = true;
        if (b > 0 && building->reads_inputs[b]) x = tri_add(g, x, batch->inputs);
        if (adds >= 0) x = tri_add(g, x, outputs[adds]);
        if (adds >= 0) is_read[adds] = true;
        outputs[b] = x;
    }
    tri_block(g, "head");
    for (int b = 0; b + 1 < head; b++)
        if (!is_read[b]) x = tri_add(g, x, outputs[b]);
    x = tri_linear(g, "head", x, RANDOM_RUN_TARGETS);
    tri_loss(g, tri_mse_loss(g, x, batch->targets));
}

static void draw_network(random_run *r, draws *d) {
    static const int widths[] = {4, 7, 16};
    int stages = r->mesh.size[TRI_AXIS_PIPELINE] * (int)r->strategy.stages_per_rank;
    int least = stages > 2 ? stages : 2;
    r->width = widths[draw(d, 3)];
    r->block_count = least + draw(d, RANDOM_RUN_BLOCKS - least + 1);
    // What the blocks read is drawn apart, so that all other draws of a seed stay what they are.
    draws apart = {.seed = d->seed, .at = 1000};
    for (int b = 0; b < r->block_count; b++) {
        r->layers[b] = b == 0 ? LINEAR : draw(d, LAYER_COUNT);
        r->reads_inputs[b] = draw(d, 4) == 0;
        r->adds[b] = draw(d, 3) == 0 && b > 1 ? draw(&apart, b) : -1;
        r->reads[b] = b > 1 && draw(&apart, 3) == 0 ? draw(&apart, b) : b - 1;
    }
}

static void draw_strategy(random_run *r, draws *d) {
    size_t way = r->seed % (sizeof ways / sizeof *ways);
    r->mesh = (tri_mesh){.size = {ways[way].pipeline, ways[way].replicate, ways[way].shard, 1},
                         .ranks = ways[way].pipeline * ways[way].replicate * ways[way].shard};
    bool is_pipeline = ways[way].pipeline > 1, shards = ways[way].strategy == TRI_STRATEGY_FSDP;
    static const tri_offload offloads[] = {TRI_OFFLOAD_NONE, TRI_OFFLOAD_NONE,
                                           TRI_OFFLOAD_OPTIMIZER, TRI_OFFLOAD_PARAMETERS};
    r->strategy =
        (tri_strategy_options){.name = ways[way].strategy,
                               .schedule = draw(d, TRI_ORDER_COUNT),
                               .stages_per_rank = 1,
                               .recompute = draw(d, 3) ? TRI_RECOMPUTE_NONE : TRI_RECOMPUTE_BLOCK,
                               .recompute_every = 1 + draw(d, 2),
                               .prefetch = 2 + draw(d, 2),
                               .reshard_after_forward = draw(d, 2),
                               .persistent_bytes = draw(d, 3) ? 0 : 400,
                               .offload = offloads[draw(d, 4)]};
    if (shards && !is_pipeline) r->strategy.prefetch = draw(d, 3);
    if (is_pipeline && tri_orders[r->strategy.schedule]->loops_over_stages)
        r->strategy.stages_per_rank = 1 + draw(d, 6 / ways[way].pipeline - 1);
}

static void draw_request(random_run *r, draws *d) {
    enum { MICRO = 4 };
    static const char *const frozen[] = {"l1.*"};
    static const tri_parameter_group groups[] = {
        {.key = "groups", .match = {frozen, 1}, .frozen = true}};
    int replicas = tri_mesh_replicas(&r->mesh), most = r->mesh.size[TRI_AXIS_PIPELINE] > 1 ? 5 : 4;
    int batches = replicas * (1 + draw(d, most)) + draw(d, replicas);
    int64_t samples = MICRO * batches - draw(d, 3);
    bool axes = r->mesh.size[TRI_AXIS_REPLICATE] == 1 || r->mesh.size[TRI_AXIS_SHARD] == 1;
    r->request = (tri_plan_request){
        .options = &r->strategy,
        .mesh = r->mesh,
        .step_samples = {[TRI_STEP_FULL] = samples, [TRI_STEP_EVALUATE] = samples},
        .micro = MICRO,
        .eval_micro = MICRO,
        .deterministic = axes && draw(d, 4) == 0,
        .optimizer_states = r->optimizer.state_count,
        .groups = groups,
        .group_count = r->block_count > 2 && draw(d, 4) == 0,
        .loader_batches = 1};
    // Layers whose sums several stages make are refused in a deterministic pipeline.
    bool is_exact = r->request.deterministic && r->mesh.size[TRI_AXIS_PIPELINE] > 1;
    for (int b = 1; is_exact && b < r->block_count; b++)
        if (r->layers[b] == TIED || (r->layers[b] == BATCH_NORM && replicas > 1))
            r->layers[b] = LINEAR;
    r->shape = draw(d, 8) ? TRI_STEP_FULL : TRI_STEP_EVALUATE;
    // Each row of `ways` is tried with the optimizer on the host and on the device. This is not
    // drawn at random, because one more draw would change all later draws of every seed.
    bool on_host = r->seed / (sizeof ways / sizeof *ways) % 2 == 0;
    r->strategy.offload_step = on_host ? TRI_OFFLOAD_STEP_HOST : TRI_OFFLOAD_STEP_DEVICE;
}

static void check(tri_status status, const random_run *r) {
    if (status != TRI_OK) fail_msg("%s: %s", random_run_text(r), tri_error_message());
}

void random_run_make(uint64_t seed, const tri_device_description *near,
                     const tri_device_description *far, random_run *out) {
    static const double betas[] = {0.9, 0.999};
    *out = (random_run){.seed = seed, .arena = tri_arena_create(NULL, "random run")};
    draws d = {.seed = seed};
    tri_optimizer_options optimizer = {
        .name = "adamw", .lr = 0.01, .eps = 1e-6, .betas = {(double *)(uintptr_t)betas, 2}};
    check(tri_optimizer_make(out->arena, &optimizer, &out->optimizer), out);
    draw_strategy(out, &d);
    draw_network(out, &d);
    draw_request(out, &d);
    building = out;
    const tri_task task = {.name = "random", .build = build};
    const tri_field fields[] = {{"inputs", TRI_F32, {1, {out->width}}},
                                {"targets", TRI_F32, {1, {RANDOM_RUN_TARGETS}}}};
    tri_model_request model = {.task = &task, .fields = fields, .field_count = 2};
    model.options.seed = seed;
    model.options.precision = draw(&d, 3) ? TRI_PRECISION_32_TRUE : TRI_PRECISION_BF16_MIXED;
    tri_plan_request request = out->request;
    request.model = &model;
    for (int rank = 0; rank < out->mesh.ranks; rank++) {
        request.rank = rank;
        check(tri_plan_create(out->arena, near, &request, &out->sync_plans[rank]), out);
        check(tri_plan_create(out->arena, far, &request, &out->async_plans[rank]), out);
    }
}

void random_run_destroy(random_run *run) {
    for (int rank = 0; rank < run->mesh.ranks; rank++) {
        tri_plan_destroy(run->sync_plans[rank]);
        tri_plan_destroy(run->async_plans[rank]);
    }
    tri_arena_destroy(run->arena);
}

const char *random_run_text(const random_run *run) {
    static char text[300];
    const tri_strategy_options *s = &run->strategy;
    snprintf(text, sizeof text,
             "seed %llu (%s, %s, pipeline %d of %d stages, replicate %d, shard %d, %d blocks of "
             "width %d, %lld samples, prefetch %d, offload %d, step %d%s%s%s%s)",
             (unsigned long long)run->seed, tri_strategy_names[s->name],
             tri_orders[s->schedule]->name, run->mesh.size[TRI_AXIS_PIPELINE],
             (int)s->stages_per_rank, run->mesh.size[TRI_AXIS_REPLICATE],
             run->mesh.size[TRI_AXIS_SHARD], run->block_count, run->width,
             (long long)run->request.step_samples[TRI_STEP_FULL], (int)s->prefetch, (int)s->offload,
             (int)s->offload_step, run->request.deterministic ? ", deterministic" : "",
             s->recompute ? ", recomputes" : "", s->reshard_after_forward ? ", reshards" : "",
             run->shape == TRI_STEP_EVALUATE ? ", evaluates" : "");
    return text;
}

#include "plan/schedule.h"

#include <string.h>

static const tri_strategy single = {
    .name = "single", .help = "one rank", .needs_one_rank = true, .own_axis = TRI_AXIS_REPLICATE};

static const tri_strategy ddp = {
    .name = "ddp",
    .help = "every replica holds all parameters; gradients are summed behind the backward pass",
    .own_axis = TRI_AXIS_REPLICATE};

static const tri_strategy zero1 = {.name = "zero1",
                                   .help = "optimizer states are sharded",
                                   .own_axis = TRI_AXIS_SHARD,
                                   .shards_optimizer = true};

static const tri_strategy zero2 = {.name = "zero2",
                                   .help = "optimizer states and gradients are sharded",
                                   .own_axis = TRI_AXIS_SHARD,
                                   .shards_optimizer = true,
                                   .shards_gradients = true};

static const tri_strategy fsdp = {
    .name = "fsdp",
    .help = "parameters too: each block's are gathered when it is computed (ZeRO-3)",
    .own_axis = TRI_AXIS_SHARD,
    .shards_optimizer = true,
    .shards_gradients = true,
    .shards_parameters = true};

static const tri_strategy pipeline = {
    .name = "pipeline",
    .help = "ranks hold consecutive blocks; micro-batches go through them one behind the other",
    .own_axis = TRI_AXIS_PIPELINE};

const tri_strategy *const tri_strategies[] = {&single, &ddp,      &zero1, &zero2,
                                              &fsdp,   &pipeline, NULL};

#define X(name, text) &tri_order_##name,
const tri_order *const tri_orders[] = {TRI_ORDER_LIST(X) NULL};
#undef X

const tri_strategy *tri_strategy_find(const char *name) {
    for (int i = 0; tri_strategies[i]; i++)
        if (!strcmp(tri_strategies[i]->name, name)) return tri_strategies[i];
    return NULL;
}

const tri_order *tri_order_find(const char *name) {
    for (int i = 0; tri_orders[i]; i++)
        if (!strcmp(tri_orders[i]->name, name)) return tri_orders[i];
    return NULL;
}

tri_gradient_source tri_action_gradient_source(tri_action_kind kind) {
    if (kind == TRI_ACTION_FORWARD) return TRI_GRADIENT_STATISTICS;
    if (kind == TRI_ACTION_BACKWARD_INPUT) return TRI_GRADIENT_INPUT;
    bool rest = kind == TRI_ACTION_BACKWARD || kind == TRI_ACTION_BACKWARD_WEIGHT;
    return rest ? TRI_GRADIENT_REST : TRI_GRADIENT_SOURCE_COUNT;
}

bool tri_schedule_has_gradient_source(const tri_schedule_request *request, int unit,
                                      tri_gradient_source source) {
    if (source == TRI_GRADIENT_STATISTICS) return request->units[unit].has_statistics;
    return source == TRI_GRADIENT_REST ||
           (source == TRI_GRADIENT_INPUT && request->order->splits_backward);
}

bool tri_schedule_mixes_halves(const tri_schedule_request *request, int unit) {
    int readers = 0;
    if (!request->order->splits_backward) return false;
    for (int b = 0; b < request->block_count; b++)
        for (int k = 0; k < request->blocks[b].unit_count; k++)
            readers += request->blocks[b].units[k] == unit &&
                       request->blocks[b].stage % request->pipeline == request->pipeline_rank;
    return readers > 1;
}

bool tri_schedule_gathers(const tri_schedule_request *request) {
    return request->strategy->shards_optimizer && request->shard > 1;
}

bool tri_schedule_releases(const tri_schedule_request *request) {
    return request->strategy->shards_parameters && request->shard > 1;
}

bool tri_schedule_scatters(const tri_schedule_request *request) {
    return request->deterministic || tri_schedule_gathers(request);
}

bool tri_schedule_scatters_rounds(const tri_schedule_request *request) {
    bool shards = request->strategy->shards_gradients && request->shard > 1;
    return request->deterministic || shards;
}

bool tri_schedule_collects(const tri_schedule_request *request) {
    return request->deterministic && !request->strategy->shards_optimizer;
}

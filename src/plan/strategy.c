// The lists of strategies and orders, and what a strategy's flags mean for schedules. All other
// code asks these functions, so that no other file has to know a strategy.
#include "plan/schedule.h"

#include <string.h>

#define X(constant, text, help, axis, flags)                                                       \
    [TRI_STRATEGY_##constant] = {.name = #text,                                                    \
                                 .needs_one_rank = ((flags)&TRI_NEEDS_ONE_RANK) != 0,              \
                                 .own_axis = TRI_AXIS_##axis,                                      \
                                 .shards_optimizer = ((flags)&TRI_SHARDS_OPTIMIZER) != 0,          \
                                 .shards_gradients = ((flags)&TRI_SHARDS_GRADIENTS) != 0,          \
                                 .shards_parameters = ((flags)&TRI_SHARDS_PARAMETERS) != 0},
static const tri_strategy strategies[TRI_STRATEGY_COUNT] = {TRI_STRATEGY_LIST(X)};
#undef X

#define X(identifier, text, flags, help)                                                           \
    [TRI_ORDER_##identifier] = {.name = text,                                                      \
                                .loops_over_stages = ((flags)&TRI_LOOPS_OVER_STAGES) != 0,         \
                                .splits_backward = ((flags)&TRI_SPLITS_BACKWARD) != 0,             \
                                .write = tri_order_write_##identifier},
static const tri_order orders[TRI_ORDER_COUNT] = {TRI_ORDER_LIST(X)};
#undef X

#define X(identifier, ...) &orders[TRI_ORDER_##identifier],
const tri_order *const tri_orders[] = {TRI_ORDER_LIST(X) NULL};
#undef X

const tri_strategy *tri_strategy_find(const char *name) {
    for (int i = 0; i < TRI_STRATEGY_COUNT; i++)
        if (!strcmp(strategies[i].name, name)) return &strategies[i];
    return NULL;
}

const tri_strategy *tri_strategy_of(tri_strategy_kind kind) { return &strategies[kind]; }

const tri_strategy *tri_strategy_effective(const tri_strategy *strategy, bool deterministic) {
    bool folds = deterministic && !strategy->shards_optimizer;
    return folds ? &strategies[TRI_STRATEGY_ZERO2] : strategy;
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

bool tri_schedule_scatters_rounds_of(const tri_schedule_request *request, int unit) {
    bool alone = request->deterministic && request->pipeline > 1 && request->shard == 1;
    return tri_schedule_scatters_rounds(request) && !(alone && request->units[unit].has_statistics);
}

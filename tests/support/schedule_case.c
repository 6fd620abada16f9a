// Makes the schedules (the actions of a step, in order) of all ranks, for made-up models on made-up
// meshes. schedule_case.h explains the members of a case.
#include "support/schedule_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int or_one(int count) { return count ? count : 1; }

const char *schedule_case_text(const schedule_case *c) {
    static char text[256];
    snprintf(text, sizeof text,
             "%s %s, pipeline %d x %d stages x %d blocks, replicate %d, shard %d, tensor %d, %d "
             "micro-batches, prefetch %d%s%s%s%s%s%s%s%s%s",
             c->strategy, c->order, or_one(c->pipeline), or_one(c->stages_per_rank),
             or_one(c->blocks_per_stage), or_one(c->replicate), or_one(c->shard), or_one(c->tensor),
             c->micro_batches, c->prefetch, c->deterministic ? ", deterministic" : "",
             c->reshards ? ", reshards" : "", c->offloads ? ", offloads" : "",
             c->offloads_masters ? ", fetches" : "", c->steps_on_host ? ", steps on the host" : "",
             c->evaluates ? ", evaluates" : "", c->skips ? ", skips" : "",
             c->recompute ? ", recomputes" : "", c->takes_ahead ? ", takes ahead" : "");
    return text;
}

static tri_schedule_block *make_blocks(tri_arena *arena, const schedule_case *c, int stages) {
    int per_stage = or_one(c->blocks_per_stage), count = stages * per_stage;
    tri_schedule_block *blocks = TRI_NEW_ARRAY(arena, tri_schedule_block, count);
    for (int b = 0; b < count; b++)
        blocks[b] = (tri_schedule_block){.stage = b / per_stage,
                                         .recompute = c->recompute && b % 2 == 0,
                                         .units = {b},
                                         .unit_count = 1};
    blocks[0].units[blocks[0].unit_count++] = count;
    if (count > 1) blocks[count - 1].units[blocks[count - 1].unit_count++] = count;
    return blocks;
}

static tri_unit *make_units(tri_arena *arena, const tri_schedule_block *blocks, int block_count,
                            int pipeline, int pipeline_rank) {
    tri_unit *units = TRI_NEW_ARRAY(arena, tri_unit, block_count + 1);
    for (int b = 0; b < block_count; b++) {
        bool here = blocks[b].stage % pipeline == pipeline_rank;
        units[b] = (tri_unit){.bytes = b % 7 == 3 ? 0 : 100,
                              .has_gradients = b % 7 != 3 && b % 5 != 4,
                              .has_statistics = b % 7 != 3 && b % 5 == 1,
                              .has_half = b % 3 == 0,
                              .has_partial = b % 3 == 2,
                              .has_stored = b % 7 != 3 && b % 6 != 0,
                              .persistent = b % 4 == 3,
                              .first_holder = blocks[b].stage % pipeline,
                              .holder_count = 1,
                              .here = here};
    }
    int last = blocks[block_count - 1].stage % pipeline;
    units[block_count] = (tri_unit){.bytes = 50,
                                    .has_stored = true,
                                    .has_gradients = true,
                                    .holder_count = last ? 2 : 1,
                                    .here = pipeline_rank == 0 || pipeline_rank == last};
    return units;
}

static void add_edge(tri_edge *edges, int *count, int from_block, int to_block, int per_stage) {
    int from_stage = from_block / per_stage, to_stage = to_block / per_stage;
    edges[(*count)++] = (tri_edge){.from_stage = from_stage,
                                   .to_stage = to_stage,
                                   .from_block = from_block,
                                   .to_block = to_block,
                                   .bytes = 8};
    edges[(*count)++] = (tri_edge){.from_stage = to_stage,
                                   .to_stage = from_stage,
                                   .from_block = to_block,
                                   .to_block = from_block,
                                   .back = true,
                                   .bytes = 8};
}

static tri_edge *make_edges(tri_arena *arena, const schedule_case *c, int stages, int *count) {
    int per_stage = or_one(c->blocks_per_stage);
    tri_edge *edges = TRI_NEW_ARRAY(arena, tri_edge, 6 * stages);
    *count = 0;
    for (int v = 0; v + 1 < stages; v++) {
        int first = v * per_stage, next = first + per_stage;
        add_edge(edges, count, next - 1, next, per_stage);
        if (c->skips && v > 0) add_edge(edges, count, per_stage - 1, next, per_stage);
        if (c->skips && per_stage > 1)
            add_edge(edges, count, first, next + per_stage - 1, per_stage);
    }
    return edges;
}

void schedule_set_make(const schedule_case *c, schedule_set *out) {
    tri_arena *arena = tri_arena_create(NULL, "schedules");
    *out = (schedule_set){.arena = arena};
    out->mesh = (tri_mesh){
        .size = {or_one(c->pipeline), or_one(c->replicate), or_one(c->shard), or_one(c->tensor)}};
    out->mesh.ranks = 1;
    for (int i = 0; i < TRI_AXIS_COUNT; i++) out->mesh.ranks *= out->mesh.size[i];
    int replicas = tri_mesh_replicas(&out->mesh);
    int rounds = (c->micro_batches + replicas - 1) / replicas;
    tri_schedule_request request = {.strategy = tri_strategy_find(c->strategy),
                                    .order = tri_order_find(c->order),
                                    .stage_count = or_one(c->pipeline) * or_one(c->stages_per_rank),
                                    .pipeline = or_one(c->pipeline),
                                    .replicate = or_one(c->replicate),
                                    .shard = or_one(c->shard),
                                    .rounds = rounds,
                                    .training = !c->evaluates,
                                    .deterministic = c->deterministic,
                                    .reshard_after_forward = c->reshards,
                                    .prefetch = c->prefetch,
                                    .offloads = c->offloads,
                                    .fetches = c->offloads_masters,
                                    .steps_on_host = c->steps_on_host,
                                    .takes_ahead = c->takes_ahead};
    assert_non_null(request.strategy);
    request.strategy = tri_strategy_effective(request.strategy, c->deterministic);
    assert_non_null(request.order);
    request.block_count = request.stage_count * or_one(c->blocks_per_stage);
    request.unit_count = request.block_count + 1;
    const tri_schedule_block *blocks = make_blocks(arena, c, request.stage_count);
    request.blocks = blocks;
    request.edges = make_edges(arena, c, request.stage_count, &request.edge_count);
    tri_unit **units = TRI_NEW_ARRAY(arena, tri_unit *, request.pipeline);
    for (int q = 0; q < request.pipeline; q++)
        units[q] = make_units(arena, blocks, request.block_count, request.pipeline, q);
    out->requests = TRI_NEW_ARRAY(arena, tri_schedule_request, out->mesh.ranks);
    out->schedules = TRI_NEW_ARRAY(arena, tri_schedule, out->mesh.ranks);
    for (int rank = 0; rank < out->mesh.ranks; rank++) {
        int64_t *sizes = TRI_NEW_ARRAY(arena, int64_t, rounds);
        for (int i = 0; i < rounds; i++) {
            int number = i * replicas + tri_mesh_replica(&out->mesh, rank);
            sizes[i] = number < c->micro_batches ? number + 1 < c->micro_batches ? 4 : 3 : 0;
        }
        request.round_sizes = sizes;
        request.pipeline_rank = tri_mesh_coordinate(&out->mesh, rank, TRI_AXIS_PIPELINE);
        request.units = units[request.pipeline_rank];
        out->requests[rank] = request;
        if (tri_schedule_make(arena, &out->requests[rank], &out->schedules[rank]) != TRI_OK)
            fail_msg("%s, rank %d: %s", schedule_case_text(c), rank, tri_error_message());
    }
}

void schedule_set_destroy(schedule_set *set) { tri_arena_destroy(set->arena); }

double schedule_set_simulate(const schedule_set *set, double *bubble) {
    static const double costs[TRI_ACTION_KIND_COUNT] = {[TRI_ACTION_FORWARD] = 1,
                                                        [TRI_ACTION_RECOMPUTE] = 1,
                                                        [TRI_ACTION_BACKWARD] = 2,
                                                        [TRI_ACTION_BACKWARD_INPUT] = 1,
                                                        [TRI_ACTION_BACKWARD_WEIGHT] = 1};
    tri_arena *arena = tri_arena_create(NULL, "simulation");
    tri_simulated_rank *ranks = TRI_NEW_ARRAY(arena, tri_simulated_rank, set->mesh.ranks);
    for (int rank = 0; rank < set->mesh.ranks; rank++) {
        tri_schedule *s = &set->schedules[rank];
        tri_schedule_find_dependencies(s, &set->requests[rank], NULL, 0);
        double *costs_s = TRI_NEW_ARRAY(arena, double, s->count);
        for (int i = 0; i < s->count; i++) costs_s[i] = costs[s->actions[i].kind];
        ranks[rank] = (tri_simulated_rank){.schedule = s, .costs_s = costs_s};
        ranks[rank].moments = TRI_NEW_ARRAY(arena, tri_moment, s->count);
    }
    double end_s = tri_simulate(&set->mesh, ranks, bubble);
    tri_arena_destroy(arena);
    return end_s;
}

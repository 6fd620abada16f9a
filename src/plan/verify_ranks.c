// Verifies the schedules of all ranks together, because some mistakes cannot be seen in the
// schedule of one rank, such as a SEND without a RECV. In a run each rank plans only its own
// schedule, so only tests call this.
#include "plan/simulate.h"

#include <string.h>

typedef struct ranks {
    const tri_mesh *mesh;
    const tri_schedule *schedules;
    const tri_schedule_request *requests;
} ranks;

static tri_status verify_position(const ranks *all, int rank) {
    const tri_schedule_request *r = &all->requests[rank];
    const int *size = all->mesh->size;
    if (r->pipeline != size[TRI_AXIS_PIPELINE] || r->replicate != size[TRI_AXIS_REPLICATE] ||
        r->shard != size[TRI_AXIS_SHARD] ||
        r->pipeline_rank != tri_mesh_coordinate(all->mesh, rank, TRI_AXIS_PIPELINE))
        return TRI_FAIL(TRI_INTERNAL, "schedule: rank %d is written for another mesh", rank);
    return TRI_OK;
}

static int lowest_along(const tri_mesh *mesh, int rank, tri_axis axis) {
    int stride = 1;
    for (int i = TRI_AXIS_COUNT - 1; i > (int)axis; i--) stride *= mesh->size[i];
    return rank - tri_mesh_coordinate(mesh, rank, axis) * stride;
}

static int next_of_lane(const tri_schedule *s, tri_lane lane, int from) {
    while (from < s->count && tri_action_lane(s->actions[from].kind) != lane) from++;
    return from;
}

// Compares a rank's actions in one lane (compute, a communicator, storage, …) with those of the
// first rank of its group along `axis`. If they differed, the run would hang or mix up values.
static tri_status verify_lane(const ranks *all, int rank, tri_lane lane, tri_axis axis) {
    int lowest = lowest_along(all->mesh, rank, axis);
    const tri_schedule *a = &all->schedules[lowest], *b = &all->schedules[rank];
    int i = -1, k = -1;
    if (lowest == rank) return TRI_OK;
    do {
        i = next_of_lane(a, lane, i + 1);
        k = next_of_lane(b, lane, k + 1);
        bool ends = i == a->count || k == b->count;
        if (ends && i == a->count && k == b->count) return TRI_OK;
        if (ends || a->actions[i].kind != b->actions[k].kind ||
            a->actions[i].subject != b->actions[k].subject ||
            a->actions[i].round != b->actions[k].round ||
            a->actions[i].accumulate != b->actions[k].accumulate)
            return TRI_FAIL(TRI_INTERNAL, "schedule: ranks %d and %d differ in what lane %s does",
                            lowest, rank, tri_lane_name(lane));
    } while (true);
}

// Checks that a pipeline's ranks agree on the numbers of micro-batches, edges (values that stages
// send each other) and units (parameters that are reduced together). Also checks that
// `holder_count` of each tied unit is the number of ranks that hold the unit.
static tri_status verify_pipeline(const ranks *all, int rank) {
    int lowest = lowest_along(all->mesh, rank, TRI_AXIS_PIPELINE);
    const tri_schedule_request *a = &all->requests[lowest], *b = &all->requests[rank];
    bool same = a->rounds == b->rounds && a->edge_count == b->edge_count &&
                a->unit_count == b->unit_count && a->training == b->training;
    for (int i = 0; same && i < a->rounds; i++) same = a->round_sizes[i] == b->round_sizes[i];
    if (!same)
        return TRI_FAIL(TRI_INTERNAL, "schedule: ranks %d and %d differ in their rounds", lowest,
                        rank);
    if (rank != lowest) return TRI_OK;
    int stride = all->mesh->ranks / all->mesh->size[TRI_AXIS_PIPELINE];
    for (int u = 0; u < a->unit_count; u++) {
        int holders = 0;
        for (int q = 0; q < all->mesh->size[TRI_AXIS_PIPELINE]; q++)
            holders += all->requests[rank + q * stride].units[u].here;
        if (holders > 1 && holders != a->units[u].holder_count)
            return TRI_FAIL(TRI_INTERNAL, "schedule: unit %d is on %d ranks, not %d", u, holders,
                            a->units[u].holder_count);
    }
    return TRI_OK;
}

// Runs the simulation, which finds whether ranks would wait for each other for ever. A schedule
// that has no dependencies yet gets them in a copy.
static tri_status execute(tri_arena *arena, const ranks *all) {
    int count = all->mesh->ranks;
    tri_simulated_rank *given = TRI_NEW_ARRAY(arena, tri_simulated_rank, count);
    for (int rank = 0; rank < count; rank++) {
        const tri_schedule *s = &all->schedules[rank];
        given[rank].schedule = s;
        if (s->dependencies) continue;
        tri_schedule *copy = TRI_NEW(arena, tri_schedule);
        *copy = (tri_schedule){.arena = arena, .count = s->count};
        copy->actions = TRI_NEW_ARRAY(arena, tri_action, s->count);
        if (s->count) memcpy(copy->actions, s->actions, (size_t)s->count * sizeof *s->actions);
        tri_schedule_find_dependencies(copy, &all->requests[rank], NULL, 0);
        given[rank].schedule = copy;
    }
    tri_execution run = tri_execute(all->mesh, given);
    if (run.stuck_rank < 0) return TRI_OK;
    const tri_action *a = &all->schedules[run.stuck_rank].actions[run.stuck_action];
    return TRI_FAIL(TRI_INTERNAL,
                    "schedule: rank %d waits for ever at action %d (%s %d, round %d): the other "
                    "ranks never reach it",
                    run.stuck_rank, run.stuck_action, tri_action_name(a->kind), a->subject,
                    a->round);
}

tri_status tri_schedule_verify_ranks(const tri_mesh *mesh, const tri_schedule *schedules,
                                     const tri_schedule_request *requests) {
    ranks all = {.mesh = mesh, .schedules = schedules, .requests = requests};
    for (int rank = 0; rank < mesh->ranks; rank++) {
        TRI_TRY(verify_position(&all, rank));
        TRI_TRY(verify_lane(&all, rank, TRI_LANE_SHARD, TRI_AXIS_SHARD));
        TRI_TRY(verify_lane(&all, rank, TRI_LANE_REPLICATE, TRI_AXIS_REPLICATE));
        for (int lane = 0; lane < TRI_LANE_COUNT; lane++)
            TRI_TRY(verify_lane(&all, rank, (tri_lane)lane, TRI_AXIS_TENSOR_PARALLEL));
    }
    for (int rank = 0; rank < mesh->ranks; rank++) TRI_TRY(verify_pipeline(&all, rank));
    tri_arena *arena = tri_arena_create(NULL, "schedule check");
    tri_status status = execute(arena, &all);
    tri_arena_destroy(arena);
    return status;
}

#include "plan/schedule.h"

#include <stdlib.h>
#include <string.h>

static tri_status broken(int index, const tri_action *action, const char *rule) {
    return TRI_FAIL(TRI_INTERNAL, "schedule: action %d (%s, block %d, round %d): %s", index,
                    tri_action_name(action->kind), action->block, action->round, rule);
}

// What has happened to a block when the list is read from top to bottom.
typedef struct block_state {
    int forward, backward; // rounds done
    int round;             // the last of them
    bool cleared, reduced, stepped;
} block_state;

// All rounds of all replicas are in a block's gradients.
static bool has_gradients(const tri_schedule_request *r, const block_state *b, int active) {
    return r->replicas > 1 ? b->reduced : b->backward == active;
}

static tri_status follow(const tri_schedule_request *r, const tri_action *a, int index,
                         block_state *blocks, bool normed, int active) {
    block_state *b = a->block >= 0 ? &blocks[a->block] : NULL;
    switch (a->kind) {
    case TRI_ACTION_FORWARD:
        if (r->round_sizes[a->round] == 0) return broken(index, a, "has no samples");
        for (int i = 0; i < a->block; i++)
            if (blocks[i].forward != b->forward + 1 || blocks[i].round != a->round)
                return broken(index, a, "an earlier block did not go forward in this round");
        if (b->forward > 0 && a->round <= b->round)
            return broken(index, a, "comes after a later round");
        if (r->training && b->forward != b->backward)
            return broken(index, a, "overwrites activations that BACKWARD still needs");
        if (a->accumulate != (r->training && b->forward > 0))
            return broken(index, a, "adds to statistics that are not there, or loses some");
        b->forward++;
        b->round = a->round;
        break;
    case TRI_ACTION_BACKWARD:
        if (!r->training || b->backward + 1 != b->forward || a->round != b->round)
            return broken(index, a, "goes backward without having gone forward");
        for (int i = a->block + 1; i < r->blocks; i++)
            if (blocks[i].backward != b->backward + 1)
                return broken(index, a, "a later block did not go backward in this round");
        if (a->accumulate != (b->backward > 0))
            return broken(index, a, "adds to gradients that are not there, or loses some");
        if (b->reduced) return broken(index, a, "comes after the block was reduced");
        b->backward++;
        break;
    case TRI_ACTION_CLEAR:
        if (active > 0 || b->cleared) return broken(index, a, "loses gradients");
        b->cleared = true;
        break;
    case TRI_ACTION_REDUCE:
        if (b->reduced) return broken(index, a, "reduces twice");
        if (active ? b->backward != active : !b->cleared)
            return broken(index, a, "reduces gradients that are not complete");
        b->reduced = true;
        break;
    case TRI_ACTION_NORM:
        if (normed) return broken(index, a, "comes twice");
        for (int i = 0; i < r->blocks; i++)
            if (r->has_state[i] && !has_gradients(r, &blocks[i], active))
                return broken(index, a, "reads gradients that are not complete");
        break;
    case TRI_ACTION_STEP:
        if (!normed || b->stepped) return broken(index, a, "comes before NORM, or twice");
        b->stepped = true;
        break;
    case TRI_ACTION_KIND_COUNT:
        return broken(index, a, "is no action");
    }
    return TRI_OK;
}

static tri_status verify_end(const tri_schedule_request *r, const block_state *blocks, int active,
                             bool normed) {
    for (int i = 0; i < r->blocks; i++) {
        const block_state *b = &blocks[i];
        bool whole = b->forward == active && b->backward == (r->training ? active : 0);
        if (!whole) return TRI_FAIL(TRI_INTERNAL, "schedule: block %d misses a round", i);
        if (r->training && r->has_state[i] && !b->stepped)
            return TRI_FAIL(TRI_INTERNAL, "schedule: block %d is never stepped", i);
    }
    if (r->training && !normed) return TRI_FAIL(TRI_INTERNAL, "schedule: there is no NORM");
    return TRI_OK;
}

// That the dependencies kept in the schedule order at least what the accesses demand.
static tri_status verify_dependencies(const tri_schedule *schedule) {
    tri_arena *arena = tri_arena_create(NULL, "schedule check");
    tri_schedule again = *schedule;
    again.arena = arena;
    again.dependencies = NULL;
    again.dependency_count = again.dependency_capacity = 0;
    again.actions = TRI_NEW_ARRAY(arena, tri_action, schedule->count);
    if (schedule->count)
        memcpy(again.actions, schedule->actions,
               (size_t)schedule->count * sizeof *schedule->actions);
    tri_schedule_find_dependencies(&again);
    tri_status status = TRI_OK;
    for (int i = 0; i < schedule->count && status == TRI_OK; i++) {
        const tri_action *a = &schedule->actions[i], *b = &again.actions[i];
        for (int d = 0; d < b->dependency_count; d++) {
            bool kept = false;
            for (int k = 0; k < a->dependency_count; k++)
                kept = kept || schedule->dependencies[a->first_dependency + k] ==
                                   again.dependencies[b->first_dependency + d];
            if (!kept) status = broken(i, a, "does not wait for what it reads or overwrites");
        }
        for (int k = 0; k < a->dependency_count; k++)
            if (schedule->dependencies[a->first_dependency + k] >= i)
                status = broken(i, a, "waits for a later action");
    }
    tri_arena_destroy(arena);
    return status;
}

tri_status tri_schedule_verify(const tri_schedule *schedule, const tri_schedule_request *request) {
    int active = 0;
    for (int i = 0; i < request->rounds; i++) active += request->round_sizes[i] > 0;
    tri_arena *arena = tri_arena_create(NULL, "schedule check");
    block_state *blocks = TRI_NEW_ARRAY(arena, block_state, request->blocks);
    bool normed = false;
    tri_status status = TRI_OK;
    for (int i = 0; i < schedule->count && status == TRI_OK; i++) {
        const tri_action *a = &schedule->actions[i];
        if (a->block >= request->blocks || a->round >= request->rounds)
            status = broken(i, a, "names a block or round that is not there");
        else
            status = follow(request, a, i, blocks, normed, active);
        normed = normed || a->kind == TRI_ACTION_NORM;
    }
    if (status == TRI_OK) status = verify_end(request, blocks, active, normed);
    if (status == TRI_OK) status = verify_dependencies(schedule);
    tri_arena_destroy(arena);
    return status;
}

static int next_collective(const tri_schedule *s, int from) {
    while (from < s->count && s->actions[from].kind != TRI_ACTION_REDUCE &&
           s->actions[from].kind != TRI_ACTION_NORM)
        from++;
    return from;
}

tri_status tri_schedule_verify_ranks(const tri_schedule *schedules, int count) {
    for (int rank = 1; rank < count; rank++) {
        const tri_schedule *a = &schedules[0], *b = &schedules[rank];
        int i = -1, k = -1;
        do {
            i = next_collective(a, i + 1);
            k = next_collective(b, k + 1);
            if ((i < a->count) != (k < b->count))
                return TRI_FAIL(TRI_INTERNAL, "schedule: ranks 0 and %d differ in length", rank);
            if (i == a->count) break;
            if (a->actions[i].kind != b->actions[k].kind ||
                a->actions[i].block != b->actions[k].block)
                return TRI_FAIL(TRI_INTERNAL, "schedule: collectives of ranks 0 and %d differ",
                                rank);
        } while (true);
    }
    return TRI_OK;
}

// Gives the names and lanes (compute, communication, storage, …) of actions, from the table
// TRI_ACTION_LIST, and writes actions and schedules as text.
#include "plan/schedule.h"

#include "base/search.h"

#include <string.h>

static const struct {
    const char *name;
    tri_lane lane;
    tri_subject subject;
    bool round;
} rows[TRI_ACTION_KIND_COUNT] = {
#define X(kind, name, lane, subject, round)                                                        \
    [TRI_ACTION_##kind] = {name, lane, TRI_SUBJECT_##subject, round},
    TRI_ACTION_LIST(X)
#undef X
};

const char *tri_action_name(tri_action_kind kind) { return rows[kind].name; }
tri_lane tri_action_lane(tri_action_kind kind) { return rows[kind].lane; }
tri_subject tri_action_subject(tri_action_kind kind) { return rows[kind].subject; }

const char *tri_lane_name(tri_lane lane) {
    static const char *const names[TRI_LANE_COUNT] = {
        "compute", "shard", "replicate", "along", "back", "store", "down", "up", "take"};
    return names[lane];
}

void tri_schedule_add(tri_schedule *schedule, tri_action_kind kind, int subject, int round) {
    TRI_ASSERT((rows[kind].subject != TRI_SUBJECT_NONE) == (subject >= 0));
    TRI_ASSERT(rows[kind].round == (round >= 0));
    TRI_PUSH(schedule->arena, schedule->actions, schedule->count, schedule->capacity) =
        (tri_action){.kind = kind, .subject = subject, .round = round};
}

bool tri_schedule_fetches(const tri_schedule_request *request, int unit) {
    return request->fetches && tri_schedule_gathers(request) && request->units[unit].has_stored;
}

static bool is_stage_below(const void *context, int block, int64_t stage) {
    const tri_schedule_request *request = context;
    return request->blocks[block].stage < stage;
}

// Finds the first block of the stage by bisection, since stages are runs of blocks, in order. For a
// stage without blocks: the first block of the next stage that has some.
static int find_stage(const tri_schedule_request *request, int stage) {
    return tri_lower_bound(request->block_count, is_stage_below, request, stage);
}

void tri_schedule_add_stage(const tri_schedule_request *request, tri_schedule *out,
                            tri_action_kind kind, int stage, int round) {
    int first = find_stage(request, stage), end = find_stage(request, stage + 1);
    for (int i = first; i < end; i++) {
        int block = kind == TRI_ACTION_FORWARD ? i : first + end - 1 - i;
        tri_schedule_add(out, kind, block, round);
    }
}

char *tri_action_text(const tri_action *action, const char *const *names, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "%s", rows[action->kind].name);
    tri_subject subject = rows[action->kind].subject;
    if (used < size && subject == TRI_SUBJECT_EDGE)
        used += (size_t)snprintf(out + used, size - used, " %d>%d", action->from_stage,
                                 action->to_stage);
    else if (used < size && subject != TRI_SUBJECT_NONE)
        used += (size_t)snprintf(out + used, size - used, " %s", names[action->subject]);
    if (used < size && action->round >= 0) snprintf(out + used, size - used, ",%d", action->round);
    return out;
}

void tri_schedule_print(const tri_schedule *schedule, const char *const *names, FILE *out) {
    for (int i = 0; i < schedule->count; i++) {
        const tri_action *a = &schedule->actions[i];
        char text[512], after[512];
        fprintf(out, "%4d  %-9s  %-28s", i, tri_lane_name(rows[a->kind].lane),
                tri_action_text(a, names, text, sizeof text));
        for (int d = 0; d < a->dependency_count; d++) {
            int other = schedule->dependencies[a->first_dependency + d];
            fprintf(out, "%s%s", d ? ", " : " after ",
                    tri_action_text(&schedule->actions[other], names, after, sizeof after));
        }
        fputc('\n', out);
    }
}

int tri_schedule_in_flight(const tri_schedule *schedule, const tri_schedule_request *request,
                           int stage) {
    int first = find_stage(request, stage), now = 0, most = 0;
    for (int i = 0; i < schedule->count; i++) {
        const tri_action *a = &schedule->actions[i];
        if (rows[a->kind].subject != TRI_SUBJECT_BLOCK || a->subject != first) continue;
        now += a->kind == TRI_ACTION_FORWARD;
        now -= a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_WEIGHT;
        most = now > most ? now : most;
    }
    return most;
}

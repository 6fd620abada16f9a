#include "plan/schedule.h"

#include <string.h>

static const struct {
    const char *name;
    tri_lane lane;
    bool block, round;
} rows[TRI_ACTION_KIND_COUNT] = {
#define X(kind, name, lane, block, micro) [TRI_ACTION_##kind] = {name, lane, block, micro},
    TRI_ACTION_LIST(X)
#undef X
};

const char *tri_action_name(tri_action_kind kind) { return rows[kind].name; }
tri_lane tri_action_lane(tri_action_kind kind) { return rows[kind].lane; }

void tri_schedule_add(tri_schedule *schedule, tri_action_kind kind, int block, int round) {
    TRI_ASSERT(rows[kind].block == (block >= 0) && rows[kind].round == (round >= 0));
    TRI_PUSH(schedule->arena, schedule->actions, schedule->count, schedule->capacity) =
        (tri_action){.kind = kind, .block = block, .round = round};
}

char *tri_action_text(const tri_action *action, const char *const *block_names, char *out,
                      size_t size) {
    int used = snprintf(out, size, "%s", rows[action->kind].name);
    if (action->block >= 0)
        used += snprintf(out + used, size - (size_t)used, " %s", block_names[action->block]);
    if (action->round >= 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, ",%d", action->round);
    return out;
}

void tri_schedule_print(const tri_schedule *schedule, const char *const *block_names, FILE *out) {
    static const char *const lanes[TRI_LANE_COUNT] = {"compute", "reduce"};
    for (int i = 0; i < schedule->count; i++) {
        const tri_action *a = &schedule->actions[i];
        char text[512], after[512];
        fprintf(out, "%4d  %-8s %-28s", i, lanes[rows[a->kind].lane],
                tri_action_text(a, block_names, text, sizeof text));
        for (int d = 0; d < a->dependency_count; d++) {
            int other = schedule->dependencies[a->first_dependency + d];
            fprintf(out, "%s%s", d ? ", " : " after ",
                    tri_action_text(&schedule->actions[other], block_names, after, sizeof after));
        }
        fputc('\n', out);
    }
}

// What actions touch, as numbered things: activations (one set, used by round after round), the
// gradients of each block, its parameters with their states, the step scalars.
enum { THING_ACTIVATIONS, THING_SCALARS, THING_FIRST_BLOCK };

static int gradients_of(int block) { return THING_FIRST_BLOCK + 2 * block; }
static int parameters_of(int block) { return THING_FIRST_BLOCK + 2 * block + 1; }

typedef struct access_list {
    int thing[4];
    bool writes[4];
    int count;
} access_list;

static void touch(access_list *list, int thing, bool writes) {
    list->thing[list->count] = thing;
    list->writes[list->count++] = writes;
}

// NORM also reads the gradients of all blocks: the caller adds those.
static access_list accesses(const tri_action *a) {
    access_list list = {.count = 0};
    switch (a->kind) {
    case TRI_ACTION_FORWARD: // gradients: batch norm's statistics travel among them
        touch(&list, THING_ACTIVATIONS, true);
        touch(&list, parameters_of(a->block), false);
        touch(&list, gradients_of(a->block), true);
        break;
    case TRI_ACTION_BACKWARD:
        touch(&list, THING_ACTIVATIONS, true);
        touch(&list, parameters_of(a->block), false);
        touch(&list, gradients_of(a->block), true);
        break;
    case TRI_ACTION_CLEAR:
    case TRI_ACTION_REDUCE:
        touch(&list, gradients_of(a->block), true);
        break;
    case TRI_ACTION_NORM:
        touch(&list, THING_ACTIVATIONS, false);
        touch(&list, THING_SCALARS, true);
        break;
    case TRI_ACTION_STEP:
        touch(&list, THING_SCALARS, false);
        touch(&list, gradients_of(a->block), false);
        touch(&list, parameters_of(a->block), true);
        break;
    case TRI_ACTION_KIND_COUNT:
        break;
    }
    return list;
}

static void add_dependency(tri_schedule *s, tri_action *a, int other) {
    if (other < 0 || rows[s->actions[other].kind].lane == rows[a->kind].lane) return;
    for (int i = 0; i < a->dependency_count; i++)
        if (s->dependencies[a->first_dependency + i] == other) return;
    TRI_PUSH(s->arena, s->dependencies, s->dependency_count, s->dependency_capacity) = other;
    a->dependency_count++;
}

// By thing: the last action that wrote it, and by lane the last that read it since.
typedef struct access_history {
    int *writer;
    int (*reader)[TRI_LANE_COUNT];
} access_history;

static void follow_access(tri_schedule *s, access_history *h, int index, int thing, bool writes) {
    tri_action *a = &s->actions[index];
    add_dependency(s, a, h->writer[thing]);
    for (int lane = 0; writes && lane < TRI_LANE_COUNT; lane++)
        add_dependency(s, a, h->reader[thing][lane]);
    if (writes) {
        h->writer[thing] = index;
        memset(h->reader[thing], -1, sizeof h->reader[thing]);
    } else {
        h->reader[thing][rows[a->kind].lane] = index;
    }
}

void tri_schedule_find_dependencies(tri_schedule *schedule) {
    size_t things = (size_t)(THING_FIRST_BLOCK + 2 * schedule->blocks);
    access_history h = {.writer = TRI_NEW_ARRAY(schedule->arena, int, things)};
    h.reader = tri_arena_alloc(schedule->arena, things * sizeof *h.reader);
    memset(h.writer, -1, things * sizeof *h.writer);
    memset(h.reader, -1, things * sizeof *h.reader);
    for (int i = 0; i < schedule->count; i++) {
        tri_action *a = &schedule->actions[i];
        a->first_dependency = schedule->dependency_count;
        a->dependency_count = 0;
        access_list list = accesses(a);
        for (int k = 0; k < list.count; k++)
            follow_access(schedule, &h, i, list.thing[k], list.writes[k]);
        for (int b = 0; a->kind == TRI_ACTION_NORM && b < schedule->blocks; b++)
            follow_access(schedule, &h, i, gradients_of(b), false);
    }
}

tri_status tri_schedule_make(tri_arena *arena, const tri_strategy *strategy,
                             const tri_schedule_request *request, tri_schedule *out) {
    *out = (tri_schedule){.arena = arena, .blocks = request->blocks, .rounds = request->rounds};
    strategy->write(request, out);
    tri_schedule_find_dependencies(out);
    return tri_schedule_verify(out, request);
}

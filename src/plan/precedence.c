// Finds which actions precede which, from lanes and dependencies.
//
// In a lane that finishes in order an action begins after the previous action of the lane, and in
// any lane after the actions on which it depends. So for each action it is enough to know one
// number for each lane that finishes in order: the latest action of that lane that is done before
// the action begins. All earlier actions of the lane are done too. In ALONG and BACK a message is
// done before an action if the action depends on it, directly or through other actions.
#include "plan/precedence.h"

// An entry of a linked list: the index of an action, and the index of the next entry in
// tri_precedence.links (-1: this entry is the last).
typedef struct link {
    int index, next;
} link;

struct tri_precedence {
    tri_arena *arena;
    const tri_schedule *s;
    // done[action · TRI_LANE_COUNT + lane]: the latest action of the lane (compute, a communicator,
    // …) that is done before this action begins; -1: none.
    int *done;
    // By action: the list of the actions that depend on it, as the index of its first entry in
    // `links`; -1: none.
    int *dependents;
    link *links;
    int link_count, link_capacity;
};

bool tri_lane_is_in_order(tri_lane lane) { return lane != TRI_LANE_ALONG && lane != TRI_LANE_BACK; }

static tri_lane lane_of(const tri_precedence *p, int action) {
    return tri_action_lane(p->s->actions[action].kind);
}

static void add_dependent(tri_precedence *p, int action, int dependent) {
    TRI_PUSH(p->arena, p->links, p->link_count, p->link_capacity) =
        (link){dependent, p->dependents[action]};
    p->dependents[action] = p->link_count - 1;
}

// Records that `other`, and all actions that are done before it, are done before `action`.
static void add_done(tri_precedence *p, int action, int other) {
    int *mine = &p->done[action * TRI_LANE_COUNT], *its = &p->done[other * TRI_LANE_COUNT];
    for (int lane = 0; lane < TRI_LANE_COUNT; lane++)
        if (its[lane] > mine[lane]) mine[lane] = its[lane];
    tri_lane lane = lane_of(p, other);
    if (tri_lane_is_in_order(lane) && other > mine[lane]) mine[lane] = other;
}

tri_precedence *tri_precedence_make(tri_arena *arena, const tri_schedule *schedule) {
    tri_precedence *p = TRI_NEW(arena, tri_precedence);
    *p = (tri_precedence){.arena = arena, .s = schedule};
    int actions = schedule->count, latest[TRI_LANE_COUNT];
    p->done = TRI_NEW_ARRAY(arena, int, (int64_t)actions *TRI_LANE_COUNT);
    p->dependents = TRI_NEW_ARRAY(arena, int, actions);
    for (int lane = 0; lane < TRI_LANE_COUNT; lane++) latest[lane] = -1;
    for (int i = 0; i < actions * TRI_LANE_COUNT; i++) p->done[i] = -1;
    for (int i = 0; i < actions; i++) {
        const tri_action *a = &schedule->actions[i];
        tri_lane lane = tri_action_lane(a->kind);
        p->dependents[i] = -1;
        for (int d = 0; d < a->dependency_count; d++) {
            int other = schedule->dependencies[a->first_dependency + d];
            add_done(p, i, other);
            if (!tri_lane_is_in_order(lane_of(p, other))) add_dependent(p, other, i);
        }
        if (tri_lane_is_in_order(lane) && latest[lane] >= 0) add_done(p, i, latest[lane]);
        latest[lane] = i;
    }
    return p;
}

bool tri_precedes(const tri_precedence *p, int action, int later) {
    if (action >= later) return action == later;
    tri_lane lane = lane_of(p, action);
    if (tri_lane_is_in_order(lane)) return p->done[later * TRI_LANE_COUNT + (int)lane] >= action;
    for (int i = p->dependents[action]; i >= 0; i = p->links[i].next)
        if (tri_precedes(p, p->links[i].index, later)) return true;
    return false;
}

tri_status tri_precedence_broken(const tri_precedence *p, int action, const char *rule, int other) {
    const tri_action *a = &p->s->actions[action], *b = &p->s->actions[other];
    return TRI_FAIL(TRI_INTERNAL,
                    "schedule: action %d (%s %d, round %d) %s action %d (%s %d, round %d)", action,
                    tri_action_name(a->kind), a->subject, a->round, rule, other,
                    tri_action_name(b->kind), b->subject, b->round);
}

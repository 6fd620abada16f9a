// Simulates the schedules of all ranks together, by the rules of the engine, which simulate.h
// lists. It shows how long a step takes, and whether ranks would wait for each other for ever.
#include "plan/simulate.h"

#include <string.h>

// What one rank has done so far. To issue an action is to hand it to its lane (the compute lane, a
// communicator, storage, …), which runs its actions in order.
typedef struct rank_state {
    const tri_schedule *schedule;
    int next;        // the first action that is not issued yet
    double issued_s; // when the latest action was issued
    // By lane: its first action that is not done; the number of all actions if there is none.
    int head[TRI_LANE_COUNT];
    bool arrived[TRI_LANE_COUNT];  // by lane: whether the action head[lane] waits for other ranks
    double free_s[TRI_LANE_COUNT]; // by lane: when its latest action ended
    int *next_in_lane;             // by action: the next action of the same lane
    double *time_s;                // by action: when it was issued; once it is done, when it ended
    bool *done;
    bool queued; // the rank is in the list `queue`, because it may be able to go on
} rank_state;

// A collective that not all ranks of its group have reached yet. A communicator does one collective
// at a time, so one of these structs for each group is enough.
typedef struct collective {
    int arrived;    // how many ranks have reached it
    double start_s; // when the latest of these ranks reached it
} collective;

typedef struct execution {
    const tri_mesh *mesh;
    const tri_simulated_rank *given;
    rank_state *ranks;
    int *queue, queued; // ranks that may be able to go on, and how many they are
    // Where the ranks of a group wait for each other before a collective, by lane (tri_lane). Lanes
    // SHARD and REPLICATE: groups[lane][r] is for the group whose lowest rank is r. Lane COMPUTE
    // has one entry, for NORM, in which all ranks take part.
    collective *groups[TRI_LANE_COUNT];
    // By the lowest rank of a tensor-parallel group: where its ranks wait for each other, because
    // they run each block's actions together.
    collective *tensor_groups;
    // Where ranks wait for each other before the action TIE of a unit (a parameter that several
    // stages read): [lowest rank of a group along the pipeline][unit].
    collective *ties;
    int *tied_ranks; // indexed as `ties`: how many ranks have the action TIE
    // Which rank has reached the SEND or the RECV of a message first and waits for the other rank:
    // [lowest rank of a group along the pipeline][edge][micro-batch]. The entry is the rank + 1; 0:
    // no rank waits.
    int *messages;
    // One more than the highest number of a unit, an edge and a micro-batch in the actions of any
    // rank.
    int units, edges, rounds;
    tri_execution result;
} execution;

static int stride_of(const tri_mesh *mesh, tri_axis axis) {
    int stride = 1;
    for (int i = TRI_AXIS_COUNT - 1; i > (int)axis; i--) stride *= mesh->size[i];
    return stride;
}

static int lowest_along(const tri_mesh *mesh, int rank, tri_axis axis) {
    return rank - tri_mesh_coordinate(mesh, rank, axis) * stride_of(mesh, axis);
}

static size_t tie_at(const execution *x, int rank, int unit) {
    int lowest = lowest_along(x->mesh, rank, TRI_AXIS_PIPELINE);
    return (size_t)lowest * (size_t)x->units + (size_t)unit;
}

static size_t message_at(const execution *x, int rank, const tri_action *a) {
    size_t lowest = (size_t)lowest_along(x->mesh, rank, TRI_AXIS_PIPELINE);
    return (lowest * (size_t)x->edges + (size_t)a->subject) * (size_t)x->rounds + (size_t)a->round;
}

static void enqueue(execution *x, int rank) {
    if (x->ranks[rank].queued) return;
    x->ranks[rank].queued = true;
    x->queue[x->queued++] = rank;
}

// Carries out the first action that is not done (the head) of a lane (the compute lane, a
// communicator, …), from `start_s` on.
static void finish_head(execution *x, int rank, tri_lane lane, double start_s) {
    rank_state *r = &x->ranks[rank];
    const tri_simulated_rank *given = &x->given[rank];
    int i = r->head[lane];
    double end_s = start_s + (given->costs_s ? given->costs_s[i] : 0);
    if (given->moments) given->moments[i] = (tri_moment){start_s, end_s};
    r->time_s[i] = r->free_s[lane] = end_s;
    r->done[i] = true;
    r->arrived[lane] = false;
    r->head[lane] = r->next_in_lane[i];
    if (lane == TRI_LANE_COMPUTE) {
        x->result.computing_s += end_s - start_s;
        r->issued_s = start_s;
        r->next = i + 1;
    }
    if (end_s > x->result.end_s) x->result.end_s = end_s;
    enqueue(x, rank);
}

static bool is_alike(const tri_action *a, const tri_action *b) {
    return a->kind == b->kind && a->subject == b->subject && a->round == b->round;
}

// Lets the rank arrive at a collective in which `wanted` ranks take part. The collective begins
// when all have arrived, so the last one starts it for all of them. All of them are among the
// `count` ranks with the numbers lowest, lowest + stride, …
static void join_collective(execution *x, collective *m, int wanted, int rank, tri_lane lane,
                            int lowest, int stride, int count, double now_s) {
    rank_state *r = &x->ranks[rank];
    tri_action action = r->schedule->actions[r->head[lane]];
    r->arrived[lane] = true;
    m->start_s = m->arrived == 0 || now_s > m->start_s ? now_s : m->start_s;
    if (++m->arrived < wanted) return;
    m->arrived = 0;
    for (int i = 0; i < count; i++) {
        const rank_state *member = &x->ranks[lowest + i * stride];
        int head = member->head[lane];
        if (head < member->schedule->count && member->arrived[lane] &&
            is_alike(&member->schedule->actions[head], &action))
            finish_head(x, lowest + i * stride, lane, m->start_s);
    }
}

static void join_group(execution *x, collective *groups, int rank, tri_lane lane, tri_axis axis,
                       double now_s) {
    int lowest = lowest_along(x->mesh, rank, axis), size = x->mesh->size[axis];
    join_collective(x, &groups[lowest], size, rank, lane, lowest, stride_of(x->mesh, axis), size,
                    now_s);
}

static void join_message(execution *x, int rank, tri_lane lane, double now_s) {
    rank_state *r = &x->ranks[rank];
    int *slot = &x->messages[message_at(x, rank, &r->schedule->actions[r->head[lane]])];
    r->arrived[lane] = true;
    if (*slot == 0) {
        *slot = rank + 1;
        r->time_s[r->head[lane]] = now_s;
        return;
    }
    int other = *slot - 1;
    const rank_state *peer = &x->ranks[other];
    double start_s = peer->time_s[peer->head[lane]];
    start_s = now_s > start_s ? now_s : start_s;
    *slot = 0;
    finish_head(x, other, lane, start_s);
    finish_head(x, rank, lane, start_s);
}

// Starts the first action of this lane (a queue of actions that run in order) that is not done, or
// lets it wait for the other ranks that take part. `now_s` is when this rank is ready.
static void start_head(execution *x, int rank, tri_lane lane, double now_s) {
    const rank_state *r = &x->ranks[rank];
    const tri_action *a = &r->schedule->actions[r->head[lane]];
    switch (a->kind) {
    case TRI_ACTION_NORM:
        join_collective(x, x->groups[lane], x->mesh->ranks, rank, lane, 0, 1, x->mesh->ranks,
                        now_s);
        break;
    case TRI_ACTION_TIE: {
        size_t at = tie_at(x, rank, a->subject);
        join_collective(x, &x->ties[at], x->tied_ranks[at], rank, lane,
                        lowest_along(x->mesh, rank, TRI_AXIS_PIPELINE),
                        stride_of(x->mesh, TRI_AXIS_PIPELINE), x->mesh->size[TRI_AXIS_PIPELINE],
                        now_s);
        break;
    }
    case TRI_ACTION_SEND_ALONG:
    case TRI_ACTION_RECV_ALONG:
    case TRI_ACTION_SEND_BACK:
    case TRI_ACTION_RECV_BACK:
        join_message(x, rank, lane, now_s);
        break;
    default:
        if (lane == TRI_LANE_SHARD)
            join_group(x, x->groups[lane], rank, lane, TRI_AXIS_SHARD, now_s);
        else if (lane == TRI_LANE_REPLICATE)
            join_group(x, x->groups[lane], rank, lane, TRI_AXIS_REPLICATE, now_s);
        else if (tri_action_subject(a->kind) == TRI_SUBJECT_BLOCK)
            join_group(x, x->tensor_groups, rank, lane, TRI_AXIS_TENSOR_PARALLEL, now_s);
        else
            finish_head(x, rank, lane, now_s);
    }
}

static double later(double a, double b) { return a > b ? a : b; }

// Starts, in every lane but COMPUTE (communicators, storage, …), the first action that is not done,
// if it was issued and does not already wait for other ranks. False: there was none.
static bool start_lanes(execution *x, int rank) {
    rank_state *r = &x->ranks[rank];
    bool any = false;
    for (tri_lane lane = TRI_LANE_COMPUTE + 1; lane < TRI_LANE_COUNT; lane++) {
        int head = r->head[lane];
        if (head >= r->next || r->arrived[lane]) continue;
        start_head(x, rank, lane, later(r->time_s[head], r->free_s[lane]));
        any = true;
    }
    return any;
}

// Issues the next action of the list, as the engine does, if all actions on which it depends are
// done. False: it has to wait.
static bool issue_next(execution *x, int rank) {
    rank_state *r = &x->ranks[rank];
    const tri_schedule *s = r->schedule;
    if (r->next == s->count || r->arrived[TRI_LANE_COMPUTE]) return false;
    const tri_action *a = &s->actions[r->next];
    double now_s = r->issued_s;
    for (int d = 0; d < a->dependency_count; d++) {
        int other = s->dependencies[a->first_dependency + d];
        if (!r->done[other]) return false;
        now_s = later(now_s, r->time_s[other]);
    }
    tri_lane lane = tri_action_lane(a->kind);
    if (lane == TRI_LANE_COMPUTE) {
        int at = r->next;
        start_head(x, rank, lane, later(now_s, r->free_s[lane]));
        return r->next > at;
    }
    r->issued_s = r->time_s[r->next] = now_s;
    r->next++;
    return true;
}

static void start_rank(tri_arena *arena, execution *x, int rank) {
    rank_state *r = &x->ranks[rank];
    const tri_schedule *s = r->schedule = x->given[rank].schedule;
    r->next_in_lane = TRI_NEW_ARRAY(arena, int, s->count);
    r->time_s = TRI_NEW_ARRAY(arena, double, s->count);
    r->done = TRI_NEW_ARRAY(arena, bool, s->count);
    for (int lane = 0; lane < TRI_LANE_COUNT; lane++) r->head[lane] = s->count;
    for (int i = s->count - 1; i >= 0; i--) {
        const tri_action *a = &s->actions[i];
        int *head = &r->head[tri_action_lane(a->kind)];
        r->next_in_lane[i] = *head;
        *head = i;
        tri_subject subject = tri_action_subject(a->kind);
        int *count = subject == TRI_SUBJECT_UNIT ? &x->units : &x->edges;
        if (subject == TRI_SUBJECT_BLOCK || subject == TRI_SUBJECT_NONE) continue;
        if (a->subject >= *count) *count = a->subject + 1;
        if (a->round >= x->rounds) x->rounds = a->round + 1;
    }
}

static void make_collectives(tri_arena *arena, execution *x) {
    int ranks = x->mesh->ranks;
    size_t pipelines = (size_t)(ranks / x->mesh->size[TRI_AXIS_PIPELINE]);
    x->groups[TRI_LANE_SHARD] = TRI_NEW_ARRAY(arena, collective, ranks);
    x->groups[TRI_LANE_REPLICATE] = TRI_NEW_ARRAY(arena, collective, ranks);
    x->groups[TRI_LANE_COMPUTE] = TRI_NEW(arena, collective);
    x->tensor_groups = TRI_NEW_ARRAY(arena, collective, ranks);
    x->ties = TRI_NEW_ARRAY(arena, collective, pipelines * (size_t)x->units);
    x->tied_ranks = TRI_NEW_ARRAY(arena, int, pipelines *(size_t)x->units);
    x->messages = TRI_NEW_ARRAY(arena, int, pipelines *(size_t)x->edges *(size_t)x->rounds);
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < x->ranks[rank].schedule->count; i++) {
            const tri_action *a = &x->ranks[rank].schedule->actions[i];
            if (a->kind == TRI_ACTION_TIE) x->tied_ranks[tie_at(x, rank, a->subject)]++;
        }
}

tri_execution tri_execute(const tri_mesh *mesh, const tri_simulated_rank *ranks) {
    tri_arena *arena = tri_arena_create(NULL, "execution");
    execution x = {.mesh = mesh, .given = ranks, .result = {.stuck_rank = -1}};
    x.ranks = TRI_NEW_ARRAY(arena, rank_state, mesh->ranks);
    x.queue = TRI_NEW_ARRAY(arena, int, mesh->ranks);
    for (int rank = 0; rank < mesh->ranks; rank++) start_rank(arena, &x, rank);
    make_collectives(arena, &x);
    for (int rank = mesh->ranks - 1; rank >= 0; rank--) enqueue(&x, rank);
    while (x.queued) {
        int rank = x.queue[--x.queued];
        x.ranks[rank].queued = false;
        while (start_lanes(&x, rank) || issue_next(&x, rank)) {
        }
    }
    for (int rank = 0; rank < mesh->ranks && x.result.stuck_rank < 0; rank++) {
        const rank_state *r = &x.ranks[rank];
        int first = r->next;
        for (int lane = 0; lane < TRI_LANE_COUNT; lane++)
            first = r->head[lane] < first ? r->head[lane] : first;
        if (first == r->schedule->count) continue;
        x.result.stuck_rank = rank;
        x.result.stuck_action = first;
    }
    tri_arena_destroy(arena);
    return x.result;
}

double tri_simulate(const tri_mesh *mesh, const tri_simulated_rank *ranks, double *bubble) {
    tri_execution run = tri_execute(mesh, ranks);
    TRI_ASSERT(run.stuck_rank < 0);
    double all_s = run.end_s * mesh->ranks;
    *bubble = all_s > 0 ? 1 - run.computing_s / all_s : 0;
    return run.end_s;
}

// Decides when a rank sends and receives. A rank starts its messages in the order of its list, and
// a message needs both of its ranks. So both must have their common messages in the same order,
// without asking each other. They use the order in which values would be ready if forward took one
// unit of time and backward two: every rank computes these times for all ranks, as whole numbers.
// With that order ranks can never wait for each other in a circle: of all messages not yet sent,
// the one that is ready first waits only for earlier compute actions, and those only for earlier
// messages. A RECV may also have to wait for memory, and so for a SEND that stands before it in the
// list. So no SEND of the other lane may stand there unless it is ready earlier. An edge is the
// values that one block makes and a block of another stage reads; they are sent as one message for
// each micro-batch. A stage is a run of blocks; a pipeline rank is a rank's number along the
// pipeline. Read next: step_memory.c.
#include "plan/compute_actions.h"

#include "base/search.h"

#include <stdlib.h>
#include <string.h>

typedef enum direction { ALONG, BACK, WEIGHT, DIRECTIONS } direction;

static direction direction_of(tri_action_kind kind) {
    if (kind == TRI_ACTION_FORWARD) return ALONG;
    return kind == TRI_ACTION_BACKWARD_WEIGHT ? WEIGHT : BACK;
}

// All compute actions of one kind (such as FORWARD) of one stage for one micro-batch, taken as one:
// messages pass between stages, so single blocks need no times of their own.
typedef struct stage_action {
    tri_action_kind kind;
    int stage, round;
} stage_action;

// The state of an ideal machine, on which forward takes one unit of time and backward two. Ideal
// times are used because real times differ between ranks, and all ranks have to compute the same
// ones.
typedef struct clock_work {
    const tri_schedule_request *request;
    stage_action **actions; // by pipeline rank: its actions
    int *counts;            // by pipeline rank: how many actions it has
    int *next;              // by pipeline rank: index of its first action that is not done yet
    int64_t *free_at;       // by pipeline rank: the time at which its latest action so far ends
    // By direction, stage and micro-batch (clock_index): when the stage's action for the
    // micro-batch starts and ends; end -1: it is not done yet.
    int64_t *start, *end;
    // The edges that enter stage v are edges_in[first_in[v]] to edges_in[first_in[v + 1] - 1]; in
    // the same way first_out and edges_out list the edges that leave stage v.
    int *first_in, *edges_in, *first_out, *edges_out;
    int *queue, queued; // pipeline ranks that may be able to go on, and how many these are
    bool *is_queued;    // by pipeline rank: whether it is in `queue`
} clock_work;

static size_t clock_index(const tri_schedule_request *r, direction way, int stage, int round) {
    return ((size_t)way * (size_t)r->stage_count + (size_t)stage) * (size_t)r->rounds +
           (size_t)round;
}

static void sort_edges(tri_arena *arena, const tri_schedule_request *r, bool in, int **first,
                       int **edges) {
    *first = TRI_NEW_ARRAY(arena, int, r->stage_count + 1);
    *edges = TRI_NEW_ARRAY(arena, int, r->edge_count);
    int at = 0;
    for (int e = 0; e < r->edge_count; e++)
        (*first)[1 + (in ? r->edges[e].to_stage : r->edges[e].from_stage)]++;
    for (int v = 0; v < r->stage_count; v++) (*first)[v + 1] += (*first)[v];
    int *next = TRI_NEW_ARRAY(arena, int, r->stage_count + 1);
    memcpy(next, *first, (size_t)(r->stage_count + 1) * sizeof *next);
    for (int e = 0; e < r->edge_count; e++) {
        at = next[in ? r->edges[e].to_stage : r->edges[e].from_stage]++;
        (*edges)[at] = e;
    }
}

static void start_clock(tri_arena *arena, const tri_schedule_request *r, clock_work *c) {
    *c = (clock_work){.request = r};
    tri_schedule_block *stages = TRI_NEW_ARRAY(arena, tri_schedule_block, r->stage_count);
    for (int v = 0; v < r->stage_count; v++) stages[v].stage = v;
    tri_schedule_request whole = *r;
    whole.blocks = stages;
    whole.block_count = r->stage_count;
    c->actions = TRI_NEW_ARRAY(arena, stage_action *, r->pipeline);
    c->counts = TRI_NEW_ARRAY(arena, int, r->pipeline);
    tri_schedule written = {.arena = arena};
    for (int q = 0; q < r->pipeline; q++) {
        whole.pipeline_rank = q;
        written.count = 0;
        tri_compute_actions_write(&whole, &written);
        c->counts[q] = written.count;
        c->actions[q] = TRI_NEW_ARRAY(arena, stage_action, written.count);
        for (int i = 0; i < written.count; i++) {
            const tri_action *a = &written.actions[i];
            c->actions[q][i] = (stage_action){a->kind, a->subject, a->round};
        }
    }
    size_t clocks = clock_index(r, DIRECTIONS, 0, 0);
    c->start = TRI_NEW_ARRAY(arena, int64_t, clocks);
    c->end = TRI_NEW_ARRAY(arena, int64_t, clocks);
    memset(c->end, -1, clocks * sizeof *c->end);
    c->next = TRI_NEW_ARRAY(arena, int, r->pipeline);
    c->free_at = TRI_NEW_ARRAY(arena, int64_t, r->pipeline);
    c->queue = TRI_NEW_ARRAY(arena, int, r->pipeline);
    c->is_queued = TRI_NEW_ARRAY(arena, bool, r->pipeline);
    sort_edges(arena, r, true, &c->first_in, &c->edges_in);
    sort_edges(arena, r, false, &c->first_out, &c->edges_out);
    for (int q = r->pipeline - 1; q >= 0; q--) {
        c->queue[c->queued++] = q;
        c->is_queued[q] = true;
    }
}

// Tells when the stage's action in this direction, for this micro-batch, can begin, in units of the
// ideal time; -1: something that it reads has not been made yet.
static int64_t find_ready(const clock_work *c, direction way, int stage, int round) {
    const tri_schedule_request *r = c->request;
    int64_t ready = 0;
    if (way != ALONG) {
        int64_t own = c->end[clock_index(r, way == BACK ? ALONG : BACK, stage, round)];
        if (own < 0) return -1;
    }
    for (int i = c->first_in[stage]; way != WEIGHT && i < c->first_in[stage + 1]; i++) {
        const tri_edge *edge = &r->edges[c->edges_in[i]];
        if (edge->back != (way == BACK)) continue;
        int64_t made = c->end[clock_index(r, way, edge->from_stage, round)];
        if (made < 0) return -1;
        ready = made > ready ? made : ready;
    }
    return ready;
}

static void wake_readers(clock_work *c, direction way, int stage) {
    const tri_schedule_request *r = c->request;
    for (int i = c->first_out[stage]; way != WEIGHT && i < c->first_out[stage + 1]; i++) {
        const tri_edge *edge = &r->edges[c->edges_out[i]];
        int rank = edge->to_stage % r->pipeline;
        if (edge->back != (way == BACK) || c->is_queued[rank]) continue;
        c->is_queued[rank] = true;
        c->queue[c->queued++] = rank;
    }
}

// Computes when actions of a rank begin and end on the ideal machine of clock_work, in the rank's
// order, up to the first action whose inputs are not ready yet.
static void advance(clock_work *c, int rank) {
    for (; c->next[rank] < c->counts[rank]; c->next[rank]++) {
        const stage_action *a = &c->actions[rank][c->next[rank]];
        direction way = direction_of(a->kind);
        int64_t ready = find_ready(c, way, a->stage, a->round);
        if (ready < 0) return;
        size_t at = clock_index(c->request, way, a->stage, a->round);
        c->start[at] = ready > c->free_at[rank] ? ready : c->free_at[rank];
        c->end[at] = c->start[at] + (a->kind == TRI_ACTION_BACKWARD ? 2 : 1);
        c->free_at[rank] = c->end[at];
        wake_readers(c, way, a->stage);
    }
}

static tri_status run_clock(clock_work *c) {
    while (c->queued) {
        int rank = c->queue[--c->queued];
        c->is_queued[rank] = false;
        advance(c, rank);
    }
    for (int q = 0; q < c->request->pipeline; q++) {
        if (c->next[q] == c->counts[q]) continue;
        const stage_action *a = &c->actions[q][c->next[q]];
        return TRI_FAIL(
            TRI_INTERNAL,
            "schedule: order %s: %s of stage %d, round %d on pipeline rank %d waits for "
            "what comes later",
            c->request->order ? c->request->order->name : "of evaluation", tri_action_name(a->kind),
            a->stage, a->round, q);
    }
    return TRI_OK;
}

// An edge action (a SEND or RECV between stages) with the numbers by which it is sorted. Both ranks
// of a message compute the same numbers, and so the same order.
typedef struct timed {
    tri_edge_action action;
    int64_t ready; // when the value is made, in units of the ideal time
    // Decides the order of messages that are ready at the same time: the number of the block that
    // makes the value. It is negative for a value of the backward pass, because that pass begins
    // with the last block.
    int tie_break;
} timed;

static int compare(const void *x, const void *y) {
    const timed *a = x, *b = y;
    bool back = tri_action_lane(a->action.kind) == TRI_LANE_BACK;
    bool back_b = tri_action_lane(b->action.kind) == TRI_LANE_BACK;
    if (back != back_b) return back ? 1 : -1;
    if (a->ready != b->ready) return a->ready < b->ready ? -1 : 1;
    if (a->tie_break != b->tie_break) return a->tie_break < b->tie_break ? -1 : 1;
    if (a->action.edge != b->action.edge) return a->action.edge < b->action.edge ? -1 : 1;
    return (a->action.round > b->action.round) - (a->action.round < b->action.round);
}

// Where this rank's compute actions stand in its list, and when each would begin if forward took
// one unit of time and backward two.
typedef struct index_of_actions {
    // By block and micro-batch: the index of FORWARD (of[ALONG]) and of BACKWARD or BACKWARD_INPUT
    // (of[BACK]).
    int *of[2];
    // By action: when it begins, in units of the ideal time (forward of a stage takes one). The
    // actions of a stage for one micro-batch, a run, begin together.
    int64_t *start;
    int *first_sender; // by the first action of a run: the run's first action that makes a message
    int count;
} index_of_actions;

static void index_actions(tri_arena *arena, const clock_work *c, const tri_schedule *compute,
                          index_of_actions *p) {
    const tri_schedule_request *r = c->request;
    for (int way = ALONG; way <= BACK; way++)
        p->of[way] = TRI_NEW_ARRAY(arena, int, (size_t)r->block_count *(size_t)r->rounds);
    p->start = TRI_NEW_ARRAY(arena, int64_t, compute->count);
    p->first_sender = TRI_NEW_ARRAY(arena, int, compute->count);
    p->count = compute->count;
    for (int i = 0; i < compute->count; i++) {
        p->first_sender[i] = compute->count;
        const tri_action *a = &compute->actions[i];
        direction way = direction_of(a->kind);
        p->start[i] = c->start[clock_index(r, way, r->blocks[a->subject].stage, a->round)];
        if (way != WEIGHT) p->of[way][a->subject * r->rounds + a->round] = i;
    }
}

static bool is_start_below(const void *context, int index, int64_t time) {
    const index_of_actions *p = context;
    return p->start[index] < time;
}

static int first_from(const index_of_actions *p, int64_t time) {
    return tri_lower_bound(p->count, is_start_below, p, time);
}

// Gives the messages of an edge their insertion points, that is, the compute actions before which
// they stand. A SEND stands directly after the action that makes the value. A RECV stands before
// the first compute action that begins at or after the time when the value is ready (on the ideal
// machine of clock_work), because much earlier it would only take memory. It never stands later
// than the action that needs the value.
static void add_edge(const clock_work *c, index_of_actions *p, int number, timed *out, int *count) {
    const tri_schedule_request *r = c->request;
    const tri_edge *edge = &r->edges[number];
    int from = edge->from_stage % r->pipeline, to = edge->to_stage % r->pipeline;
    bool sends = from == r->pipeline_rank;
    if (from == to || (!sends && to != r->pipeline_rank) || (edge->back && !r->training)) return;
    direction way = edge->back ? BACK : ALONG;
    static const tri_action_kind kinds[2][2] = {{TRI_ACTION_RECV_ALONG, TRI_ACTION_SEND_ALONG},
                                                {TRI_ACTION_RECV_BACK, TRI_ACTION_SEND_BACK}};
    for (int round = 0; round < r->rounds; round++) {
        if (r->round_sizes[round] == 0) continue;
        timed *t = &out[(*count)++];
        *t = (timed){.action = {.kind = kinds[way][sends], .edge = number, .round = round},
                     .ready = c->end[clock_index(r, way, edge->from_stage, round)],
                     .tie_break = edge->back ? -edge->from_block : edge->from_block};
        int block = sends ? edge->from_block : edge->to_block;
        int own = p->of[way][block * r->rounds + round];
        int due = first_from(p, t->ready);
        t->action.before = sends ? own + 1 : due < own ? due : own;
        int *first_sender = &p->first_sender[first_from(p, p->start[own])];
        if (sends && own < *first_sender) *first_sender = own;
    }
}

static bool is_send(const timed *t) {
    return t->action.kind == TRI_ACTION_SEND_ALONG || t->action.kind == TRI_ACTION_SEND_BACK;
}

// Moves the receives of a lane (all messages along the pipeline, or all back) to earlier insertion
// points. First, none may stand later than the lane's next action, because a lane starts its
// actions in the order of the list. Then each receive moves up by one more compute action, so that
// it is under way when its value gets ready, and if there are SENDs of the same run, before the
// action that makes the first of them. It never moves past the lane's previous action.
static void settle_lane(const index_of_actions *p, timed *items, int count) {
    for (int i = count - 2; i >= 0; i--) {
        int limit = items[i + 1].action.before;
        if (items[i].action.before > limit) items[i].action.before = limit;
    }
    for (int i = 0; i < count; i++) {
        int limit = i ? items[i - 1].action.before : 0, *before = &items[i].action.before;
        if (is_send(&items[i]) || *before <= limit) continue;
        int first_sender = p->first_sender[first_from(p, p->start[*before - 1])];
        *before = first_sender < *before ? first_sender : *before - 1;
        if (*before < limit) *before = limit;
    }
}

static int compare_places(const void *x, const void *y) {
    const timed *a = x, *b = y;
    if (a->action.before != b->action.before) return a->action.before < b->action.before ? -1 : 1;
    return compare(x, y);
}

// Checks that no SEND stands before a RECV of the other lane that is ready earlier or at the same
// time. Then nothing that waits for memory can make ranks wait for each other for ever.
static tri_status check_order(tri_arena *arena, const clock_work *c, const timed *items,
                              int count) {
    timed *sorted = TRI_NEW_ARRAY(arena, timed, count);
    if (count) memcpy(sorted, items, (size_t)count * sizeof *items);
    if (count) qsort(sorted, (size_t)count, sizeof *sorted, compare_places);
    int64_t sent[2] = {-1, -1}; // the latest time of the SENDs so far: along, back
    for (int i = 0; i < count; i++) {
        bool back = tri_action_lane(sorted[i].action.kind) == TRI_LANE_BACK;
        if (is_send(&sorted[i])) {
            sent[back] = sorted[i].ready;
        } else if (sent[!back] >= sorted[i].ready) {
            return TRI_FAIL(TRI_INTERNAL,
                            "schedule: order %s: on pipeline rank %d edge %d, round %d is received "
                            "after what is sent later",
                            c->request->order ? c->request->order->name : "of evaluation",
                            c->request->pipeline_rank, sorted[i].action.edge,
                            sorted[i].action.round);
        }
    }
    return TRI_OK;
}

tri_status tri_edge_actions_find(tri_arena *arena, const tri_schedule_request *request,
                                 const tri_schedule *compute, tri_edge_action **out, int *count) {
    *count = 0;
    *out = NULL;
    if (request->pipeline == 1) return TRI_OK;
    clock_work c;
    start_clock(arena, request, &c);
    TRI_TRY(run_clock(&c));
    index_of_actions p;
    index_actions(arena, &c, compute, &p);
    size_t most = (size_t)request->edge_count * (size_t)request->rounds;
    timed *items = TRI_NEW_ARRAY(arena, timed, most);
    for (int e = 0; e < request->edge_count; e++) add_edge(&c, &p, e, items, count);
    if (*count) qsort(items, (size_t)*count, sizeof *items, compare);
    int along = 0;
    while (along < *count && tri_action_lane(items[along].action.kind) == TRI_LANE_ALONG) along++;
    settle_lane(&p, items, along);
    settle_lane(&p, items + along, *count - along);
    TRI_TRY(check_order(arena, &c, items, *count));
    *out = TRI_NEW_ARRAY(arena, tri_edge_action, *count);
    for (int i = 0; i < *count; i++) (*out)[i] = items[i].action;
    return TRI_OK;
}

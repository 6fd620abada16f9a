// Builds the graph of a step's events, whose edges say which event comes before which other one,
// and searches it. An action is one entry of a rank's schedule; order_graph.h lists its events. A
// lane is what starts actions in the order of the schedule: computation, a communicator, storage, …
#include "support/order_graph.h"

#include "support/random_run.h"

#include <string.h>

typedef struct edge {
    int to, next;
    // The dependency in a rank's schedule from which the edge follows: action `waiter` waits for
    // action `dependency`. rank -1: the edge has another reason.
    int rank, waiter, dependency;
} edge;

struct order_graph {
    tri_arena *arena;
    tri_plan *const *plans;
    tri_step_shape shape;
    int ranks, count;
    int base[RANDOM_RUN_RANKS]; // by rank: its first event
    int *first;                 // first[e]: index of event e's first edge; -1: it has none
    edge *edges;
    int edge_count, edge_capacity;
    bool *reached;
    int *stack;
};

static const tri_schedule *schedule_of(const order_graph *g, int rank) {
    return &g->plans[rank]->steps[g->shape].schedule;
}

static int event_of(const order_graph *g, int rank, int action, order_event event) {
    return g->base[rank] + action * ORDER_EVENT_COUNT + (int)event;
}

static edge *add(order_graph *g, int from, int to) {
    edge *e = &TRI_PUSH(g->arena, g->edges, g->edge_count, g->edge_capacity);
    *e = (edge){.to = to, .next = g->first[from], .rank = -1};
    g->first[from] = g->edge_count - 1;
    return e;
}

static bool is_message(const tri_action *a) {
    return tri_action_subject(a->kind) == TRI_SUBJECT_EDGE;
}

// Adds the order that holds between actions of one rank. The host issues one action after the
// other. TAKE copies a micro-batch to the device; before the host issues the TAKE of micro-batch
// n + TRI_TAKEN_BATCHES, it waits until that of micro-batch n is done. Each lane runs its actions
// in order, and the messages of a lane leave in order.
static void add_rank(order_graph *g, int rank) {
    const tri_schedule *s = schedule_of(g, rank);
    int latest[TRI_LANE_COUNT], message[TRI_LANE_COUNT], takes[TRI_TAKEN_BATCHES] = {-1, -1};
    memset(latest, -1, sizeof latest);
    memset(message, -1, sizeof message);
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        tri_lane lane = tri_action_lane(a->kind);
        int at = event_of(g, rank, i, ORDER_ISSUED);
        for (int e = 0; e + 1 < ORDER_EVENT_COUNT; e++) add(g, at + e, at + e + 1);
        if (i > 0) add(g, event_of(g, rank, i - 1, ORDER_ISSUED), at);
        for (int d = 0; d < a->dependency_count; d++) {
            int other = s->dependencies[a->first_dependency + d];
            edge *e = add(g, event_of(g, rank, other, ORDER_DONE), at + ORDER_BEGUN);
            e->rank = rank;
            e->waiter = i;
            e->dependency = other;
        }
        if (a->kind == TRI_ACTION_TAKE) {
            if (takes[0] >= 0) add(g, event_of(g, rank, takes[0], ORDER_DONE), at);
            memmove(takes, takes + 1, sizeof takes - sizeof *takes);
            takes[TRI_TAKEN_BATCHES - 1] = i;
        }
        if (is_message(a)) {
            if (message[lane] >= 0)
                add(g, event_of(g, rank, message[lane], ORDER_UNDER_WAY), at + ORDER_UNDER_WAY);
            message[lane] = i;
        } else if (a->kind != TRI_ACTION_TIE) {
            if (latest[lane] >= 0)
                add(g, event_of(g, rank, latest[lane], ORDER_DONE), at + ORDER_BEGUN);
            latest[lane] = i;
        }
    }
}

// How many actions of the same kind on the same subject (parameters that are gathered or reduced
// together, or a message between stages) precede the action in its schedule.
static int number_of(const tri_schedule *s, int action) {
    int number = 0;
    for (int i = 0; i < action; i++)
        number += s->actions[i].kind == s->actions[action].kind &&
                  s->actions[i].subject == s->actions[action].subject;
    return number;
}

static unsigned axes_of(const order_graph *g, tri_action_kind kind) {
    const tri_plan *plan = g->plans[0];
    switch (kind) {
    case TRI_ACTION_GATHER:
    case TRI_ACTION_SCATTER:
        return 1u << plan->sharing.shard_axis;
    case TRI_ACTION_REDUCE:
        return 1u << plan->sharing.replicate_axis;
    case TRI_ACTION_NORM:
        return (1u << TRI_AXIS_COUNT) - 1;
    default:
        return 1u << TRI_AXIS_PIPELINE; // SEND, RECV and TIE: between stages
    }
}

static bool is_collective(tri_action_kind kind) {
    return kind == TRI_ACTION_GATHER || kind == TRI_ACTION_SCATTER || kind == TRI_ACTION_REDUCE ||
           kind == TRI_ACTION_TIE || kind == TRI_ACTION_NORM;
}

static bool meets(const order_graph *g, int p, int i, int q, int k) {
    const tri_action *a = &schedule_of(g, p)->actions[i], *b = &schedule_of(g, q)->actions[k];
    if (!is_message(a))
        return a->kind == b->kind && a->subject == b->subject &&
               number_of(schedule_of(g, p), i) == number_of(schedule_of(g, q), k);
    bool along = a->kind == TRI_ACTION_SEND_ALONG;
    const tri_mesh *mesh = &g->plans[p]->mesh;
    int to = a->to_stage % mesh->size[TRI_AXIS_PIPELINE];
    return b->kind == (along ? TRI_ACTION_RECV_ALONG : TRI_ACTION_RECV_BACK) &&
           a->round == b->round && a->from_stage == b->from_stage && a->to_stage == b->to_stage &&
           to == tri_mesh_coordinate(mesh, q, TRI_AXIS_PIPELINE);
}

// Adds the edges between ranks p and q: a collective is done only after it is under way on all of
// its ranks, and a message only after it is under way on its sender and on its receiver.
static void add_between(order_graph *g, int p, int q) {
    const tri_mesh *mesh = &g->plans[p]->mesh;
    const tri_schedule *s = schedule_of(g, p), *t = schedule_of(g, q);
    for (int i = 0; i < s->count; i++) {
        tri_action_kind kind = s->actions[i].kind;
        bool sends = kind == TRI_ACTION_SEND_ALONG || kind == TRI_ACTION_SEND_BACK;
        if (!is_collective(kind) && !sends) continue;
        unsigned axes = axes_of(g, kind);
        if (tri_mesh_colour(mesh, p, axes) != tri_mesh_colour(mesh, q, axes)) continue;
        for (int k = 0; k < t->count; k++) {
            if (!meets(g, p, i, q, k)) continue;
            add(g, event_of(g, p, i, ORDER_UNDER_WAY), event_of(g, q, k, ORDER_DONE));
            if (sends) add(g, event_of(g, q, k, ORDER_UNDER_WAY), event_of(g, p, i, ORDER_DONE));
        }
    }
}

order_graph *order_graph_make(tri_arena *arena, tri_plan *const *plans, tri_step_shape shape) {
    order_graph *g = TRI_NEW(arena, order_graph);
    *g = (order_graph){.arena = arena, .plans = plans, .shape = shape};
    g->ranks = plans[0]->mesh.ranks;
    for (int rank = 0; rank < g->ranks; rank++) {
        g->base[rank] = g->count;
        g->count += schedule_of(g, rank)->count * ORDER_EVENT_COUNT;
    }
    g->first = TRI_NEW_ARRAY(arena, int, g->count);
    g->reached = TRI_NEW_ARRAY(arena, bool, g->count);
    g->stack = TRI_NEW_ARRAY(arena, int, g->count);
    for (int i = 0; i < g->count; i++) g->first[i] = -1;
    for (int rank = 0; rank < g->ranks; rank++) add_rank(g, rank);
    for (int p = 0; p < g->ranks; p++)
        for (int q = 0; q < g->ranks; q++)
            if (p != q) add_between(g, p, q);
    return g;
}

static void follow(order_graph *g, const order_wait *without, int from) {
    int depth = 0;
    memset(g->reached, 0, (size_t)g->count * sizeof *g->reached);
    g->reached[from] = true;
    g->stack[depth++] = from;
    while (depth > 0)
        for (int e = g->first[g->stack[--depth]]; e >= 0; e = g->edges[e].next) {
            const edge *to = &g->edges[e];
            if (g->reached[to->to] || (to->rank == without->rank && to->waiter == without->waiter &&
                                       to->dependency == without->dependency))
                continue;
            g->reached[to->to] = true;
            g->stack[depth++] = to->to;
        }
}

bool order_graph_follows(order_graph *g, const order_wait *without, int from,
                         order_event from_event, int to, order_event to_event) {
    follow(g, without, event_of(g, without->rank, from, from_event));
    return g->reached[event_of(g, without->rank, to, to_event)];
}

void order_graph_find_independent(order_graph *g, const order_wait *without, int held,
                                  order_event event, bool *independent) {
    follow(g, without, event_of(g, without->rank, held, event));
    for (int i = 0; i < schedule_of(g, without->rank)->count; i++)
        independent[i] = !g->reached[event_of(g, without->rank, i, ORDER_DONE)];
}

bool order_graph_loses(order_graph *g, const order_wait *without,
                       bool (*conflict)(const void *context, int first, int second),
                       const void *context) {
    const order_wait none = {-1, -1, -1};
    int rank = without->rank, count = schedule_of(g, rank)->count;
    bool *behind = TRI_NEW_ARRAY(g->arena, bool, count);
    follow(g, &none, event_of(g, rank, without->waiter, ORDER_DONE));
    for (int k = 0; k < count; k++)
        behind[k] = k == without->waiter || g->reached[event_of(g, rank, k, ORDER_BEGUN)];
    for (int i = 0; i < count; i++) {
        follow(g, &none, event_of(g, rank, i, ORDER_DONE));
        if (i != without->dependency &&
            !g->reached[event_of(g, rank, without->dependency, ORDER_BEGUN)])
            continue;
        follow(g, without, event_of(g, rank, i, ORDER_DONE));
        for (int k = 0; k < count; k++)
            if (behind[k] && !g->reached[event_of(g, rank, k, ORDER_BEGUN)] &&
                conflict(context, i, k))
                return true;
    }
    return false;
}

// What comes before what in a step of several ranks, as far as schedules, lanes, communicators and
// the host make it so. Each action has four events.
#ifndef TESTS_SUPPORT_ORDER_GRAPH_H
#define TESTS_SUPPORT_ORDER_GRAPH_H

#include "plan/plan.h"

typedef enum order_event {
    ORDER_ISSUED,    // by the host
    ORDER_BEGUN,     // everything that it waits for is done
    ORDER_UNDER_WAY, // its messages have left
    ORDER_DONE,
    ORDER_EVENT_COUNT
} order_event;

typedef struct order_graph order_graph;

// `plans` by rank; of the step of this shape.
order_graph *order_graph_make(tri_arena *arena, tri_plan *const *plans, tri_step_shape shape);

// A wait of one rank: `waiter` begins after `dependency` is done.
typedef struct order_wait {
    int rank, waiter, dependency;
} order_wait;

// Whether (rank, to, to_event) comes after (rank, from, from_event) without that one wait.
bool order_graph_follows(order_graph *graph, const order_wait *without, int from,
                         order_event from_event, int to, order_event to_event);
// Sets free[action] for the actions of the wait's rank that can be done before this event of
// `held`.
void order_graph_find_free(order_graph *graph, const order_wait *without, int held,
                           order_event event, bool *free);

// Whether, without the wait, two actions of its rank that conflict are no longer in order.
bool order_graph_loses(order_graph *graph, const order_wait *without,
                       bool (*conflict)(const void *context, int first, int second),
                       const void *context);

#endif

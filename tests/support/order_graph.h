// Finds which events of a step must come before which others, on all ranks together. A schedule is
// the list of a rank's actions in a step, with the dependencies between them. Each action has four
// events: it is issued, it begins, it is under way, and it is done. Their order follows from the
// schedules, from the lanes (queues of a rank, each of which starts its actions in order), from
// communication and from the host.
#ifndef TESTS_SUPPORT_ORDER_GRAPH_H
#define TESTS_SUPPORT_ORDER_GRAPH_H

#include "plan/plan.h"

typedef enum order_event {
    ORDER_ISSUED,    // the host has issued the action
    ORDER_BEGUN,     // everything that the action waits for is done
    ORDER_UNDER_WAY, // the action's messages have left this rank
    ORDER_DONE,
    ORDER_EVENT_COUNT
} order_event;

typedef struct order_graph order_graph;

// Makes the graph of the events of one step of this shape. An edge leads from an event to another
// one that can come only after it. `plans`: by rank.
order_graph *order_graph_make(tri_arena *arena, tri_plan *const *plans, tri_step_shape shape);

// One dependency in the schedule of a rank: action `waiter` begins after `dependency` is done.
typedef struct order_wait {
    int rank, waiter, dependency;
} order_wait;

// Whether, on the wait's rank, event `to_event` of action `to` would still come after event
// `from_event` of action `from` if the wait `without` were missing.
bool order_graph_follows(order_graph *graph, const order_wait *without, int from,
                         order_event from_event, int to, order_event to_event);
// Sets independent[i] for each action i of the wait's rank that can be done before this event of
// action `held`, if the wait `without` is missing.
void order_graph_find_independent(order_graph *graph, const order_wait *without, int held,
                                  order_event event, bool *independent);

// Whether, without the wait, two actions of its rank that conflict are no longer in order.
bool order_graph_loses(order_graph *graph, const order_wait *without,
                       bool (*conflict)(const void *context, int first, int second),
                       const void *context);

#endif

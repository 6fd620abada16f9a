// The first two parts of writing a schedule: the passes of a rank's stages, and what it sends and
// receives between them.
#ifndef TRIREME_PLAN_PASSES_H
#define TRIREME_PLAN_PASSES_H

#include "plan/schedule.h"

// The order's passes, or FORWARD only; RECOMPUTE before BACKWARD where a block asks for it. Nothing
// here depends on the sizes of rounds: every rank of a group has the same list.
void tri_compute_actions_write(const tri_schedule_request *request, tri_schedule *out);

typedef struct tri_edge_action {
    tri_action_kind kind;
    int edge, round;
    int before; // which pass; passes->count: behind the last
} tri_edge_action;

// By lane, each lane's in its order. TRI_INTERNAL when the ranks' orders wait for each other.
tri_status tri_edge_actions_find(tri_arena *arena, const tri_schedule_request *request,
                                 const tri_schedule *compute, tri_edge_action **out, int *count);

#endif

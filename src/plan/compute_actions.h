// The first two steps of writing a schedule: the compute actions of a rank's stages, and the edge
// actions with which it sends and receives values between them.
#ifndef TRIREME_PLAN_COMPUTE_ACTIONS_H
#define TRIREME_PLAN_COMPUTE_ACTIONS_H

#include "plan/schedule.h"

// Writes the compute actions in the pipeline's order, in evaluation FORWARD only, and RECOMPUTE
// before BACKWARD where a block asks for it. The list does not depend on the sizes of rounds, so
// that every rank of a group has the same, also one that has no samples in a round.
void tri_compute_actions_write(const tri_schedule_request *request, tri_schedule *out);

typedef struct tri_edge_action {
    tri_action_kind kind;
    int edge, round;
    int before; // index of the compute action that it precedes; compute->count: it comes last
} tri_edge_action;

// Finds the edge actions of this rank: those of the lane ALONG, then those of BACK, each lane in
// its order. TRI_INTERNAL: in the orders of these ranks each would wait for another for ever, so
// there is no such schedule.
tri_status tri_edge_actions_find(tri_arena *arena, const tri_schedule_request *request,
                                 const tri_schedule *compute, tri_edge_action **out, int *count);

#endif

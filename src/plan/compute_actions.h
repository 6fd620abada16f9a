// The first two steps of writing a schedule: the compute actions of a rank's stages, and then the
// edge actions, by which ranks exchange values between stages. A compute action runs one block (a
// layer or a group of layers) for one micro-batch: FORWARD, RECOMPUTE (FORWARD again, instead of
// keeping activations), BACKWARD, or one half of BACKWARD. `round` is the number of the
// micro-batch.
#ifndef TRIREME_PLAN_COMPUTE_ACTIONS_H
#define TRIREME_PLAN_COMPUTE_ACTIONS_H

#include "plan/schedule.h"

// Writes the compute actions in the pipeline's order, and RECOMPUTE before BACKWARD where a block
// asks for it; in evaluation only FORWARD. The list does not depend on the sizes of micro-batches,
// so that replicas, which share collectives, have the same list, even one whose last micro-batch is
// empty.
void tri_compute_actions_write(const tri_schedule_request *request, tri_schedule *out);

typedef struct tri_edge_action {
    tri_action_kind kind;
    int edge, round;
    // Index of the compute action before which the edge action stands; the number of compute
    // actions: it stands after the last one.
    int before;
} tri_edge_action;

// Finds the edge actions of this rank, its SENDs and RECVs between stages: first those of the lane
// ALONG (activations, to later stages), then those of the lane BACK (gradients, to earlier stages),
// each in the order in which the lane starts them. TRI_INTERNAL: with this order of compute actions
// the ranks would wait for each other for ever.
tri_status tri_edge_actions_find(tri_arena *arena, const tri_schedule_request *request,
                                 const tri_schedule *compute, tri_edge_action **out, int *count);

#endif

// Finds the parts of a schedule that a device may record once and repeat in every step, as CUDA
// captures a graph. A schedule is a list of actions. A lane starts its actions in the order of
// the list, beside the other lanes: the compute lane, communicators, storage. A part is a run of
// actions of the compute lane. A captured graph runs as a whole, so nothing can wait in its middle:
// only the part's first action may wait for another lane, and other lanes may wait only for its
// last one. The actions issue the same kernels with the same addresses in every step, because the
// plan fixes all addresses before the first step.
#ifndef TRIREME_PLAN_CAPTURE_H
#define TRIREME_PLAN_CAPTURE_H

#include "plan/plan.h"

// The actions of the compute lane from `first` to `last`; actions of other lanes (communicators,
// storage) may stand between them. Only the first of them waits for other lanes, and other lanes
// wait only for the last.
typedef struct tri_capture {
    int first, last; // into the schedule's actions
    int actions;     // how many actions from `first` to `last` are of the compute lane
} tri_capture;

// Lists the longest possible captured parts, in the order of the schedule: the longer they are, the
// fewer calls the host makes. `may[i]` says whether action i may belong to a captured part. Returns
// how many there are; *out lives in `arena`. The schedule's dependencies have to be found before
// this call.
int tri_capture_find(tri_arena *arena, const tri_schedule *schedule, const bool *may,
                     tri_capture **out);
// Whether every step issues the same work for this action, so that it can be repeated. False for an
// action whose kernels may not be captured, whose inputs lie at other addresses in every other
// step, or that several ranks carry out together.
bool tri_capture_allows(const tri_plan *plan, const tri_step_plan *step, const tri_action *action);

#endif

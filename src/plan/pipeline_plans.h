// The plans of all ranks of a run. Ranks that differ in their replica or in their part of a tensor
// do the same at the same time, so one plan for each place along the pipeline stands for all.
#ifndef TRIREME_PLAN_PIPELINE_PLANS_H
#define TRIREME_PLAN_PIPELINE_PLANS_H

#include "plan/plan.h"

typedef struct tri_pipeline_plans {
    tri_mesh mesh; // of all ranks
    int count;     // places along the pipeline
    tri_plan **plans;
    int ranks_each; // that a plan stands for: ranks place * ranks_each and those behind it
} tri_pipeline_plans;

// `request->rank` is not read: the plans are those of the ranks with the most samples. On the
// device `null` only shapes matter, so that a plan costs milliseconds.
tri_status tri_pipeline_plans_create(tri_arena *arena, tri_device *device,
                                     const tri_plan_request *request, tri_pipeline_plans *out);
void tri_pipeline_plans_destroy(tri_pipeline_plans *pipeline);
// The plan of the ranks that need the most memory.
const tri_plan *tri_pipeline_plans_fullest(const tri_pipeline_plans *pipeline);

#endif

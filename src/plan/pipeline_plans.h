// The plans of all ranks of a run. A pipeline rank is a rank's number along the pipeline. Ranks
// with the same number differ only in their replica, shard or slice, and do the same at the same
// time. So one plan for each pipeline rank stands for all of them.
#ifndef TRIREME_PLAN_PIPELINE_PLANS_H
#define TRIREME_PLAN_PIPELINE_PLANS_H

#include "plan/plan.h"

typedef struct tri_pipeline_plans {
    tri_mesh mesh; // mesh of all ranks
    int count;     // number of pipeline ranks, and so of plans
    tri_plan **plans;
    int ranks_each; // plan i stands for this many ranks: from rank i * ranks_each on
} tri_pipeline_plans;

// Makes the plans. Ignores `request->rank`: the plans are for the ranks that have the most samples,
// because these need the most memory and time. TRI_UNSUPPORTED: a rank would wait for ever.
tri_status tri_pipeline_plans_create(tri_arena *arena, const tri_device_description *device,
                                     const tri_plan_request *request, tri_pipeline_plans *out);
void tri_pipeline_plans_destroy(tri_pipeline_plans *pipeline);
// The plan with the largest peak: if it fits into memory, all do.
const tri_plan *tri_pipeline_plans_fullest(const tri_pipeline_plans *pipeline);

#endif

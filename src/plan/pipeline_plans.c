// Makes the plans of all ranks of a run: one for each pipeline rank, because ranks with the same
// stages have equal plans. With them a run can be estimated, drawn or checked before it starts.
#include "plan/pipeline_plans.h"

tri_status tri_pipeline_plans_create(tri_arena *arena, const tri_device_description *device,
                                     const tri_plan_request *request, tri_pipeline_plans *out) {
    int count = request->mesh.size[TRI_AXIS_PIPELINE];
    *out = (tri_pipeline_plans){.mesh = request->mesh,
                                .plans = TRI_NEW_ARRAY(arena, tri_plan *, count),
                                .ranks_each = request->mesh.ranks / count};
    for (; out->count < count; out->count++) {
        tri_plan_request one = *request;
        one.rank = tri_mesh_member(&request->mesh, 0, 1u << TRI_AXIS_PIPELINE, out->count);
        one.reuse_graphs_of = out->count > 0 ? out->plans[0] : NULL;
        tri_status status = tri_plan_create(arena, device, &one, &out->plans[out->count]);
        if (status == TRI_OK) continue;
        tri_pipeline_plans_destroy(out);
        return status;
    }
    return TRI_OK;
}

void tri_pipeline_plans_destroy(tri_pipeline_plans *pipeline) {
    while (pipeline->count > 0)
        // The last plan is destroyed first, because later plans use the graphs of the first one.
        tri_plan_destroy(pipeline->plans[--pipeline->count]);
}

const tri_plan *tri_pipeline_plans_fullest(const tri_pipeline_plans *pipeline) {
    const tri_plan *fullest = pipeline->plans[0];
    for (int i = 1; i < pipeline->count; i++)
        if (pipeline->plans[i]->memory.peak > fullest->memory.peak) fullest = pipeline->plans[i];
    return fullest;
}

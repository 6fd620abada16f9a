// Makes the plans of all ranks of a run: one for each pipeline rank, because ranks with the same
// stages have equal plans. With them a run can be estimated, drawn or checked before it starts.
#include "plan/pipeline_plans.h"

#include "plan/simulate.h"

// Checks that no rank waits for ever. A run could only hang: its ranks plan alone. Ranks with the
// same pipeline rank do the same, so that one of them stands for all.
static tri_status check_waits(tri_arena *arena, const tri_pipeline_plans *pipeline,
                              tri_step_shape shape) {
    tri_mesh alone = {.size = {1, 1, 1, 1}, .ranks = pipeline->count};
    alone.size[TRI_AXIS_PIPELINE] = pipeline->count;
    tri_simulated_rank *ranks = TRI_NEW_ARRAY(arena, tri_simulated_rank, pipeline->count);
    for (int i = 0; i < pipeline->count; i++)
        ranks[i].schedule = &pipeline->plans[i]->steps[shape].schedule;
    tri_execution run = tri_execute(&alone, ranks);
    if (run.stuck_rank < 0) return TRI_OK;
    const tri_action *a = &ranks[run.stuck_rank].schedule->actions[run.stuck_action];
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "strategy.schedule: in the order %s, pipeline rank %d would wait for ever (%s "
                    "%d of micro-batch %d); use another one, such as gpipe, or other "
                    "strategy.stages",
                    pipeline->plans[0]->order->name, run.stuck_rank, tri_action_name(a->kind),
                    a->subject, a->round);
}

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
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++) {
        if (count == 1 || out->plans[0]->steps[shape].samples == 0) continue;
        tri_status status = check_waits(arena, out, (tri_step_shape)shape);
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

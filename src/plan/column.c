#include "plan/column.h"

tri_status tri_column_create(tri_arena *arena, tri_device *device, const tri_plan_request *request,
                             tri_column *out) {
    int count = request->mesh.size[TRI_AXIS_PIPELINE];
    *out = (tri_column){.mesh = request->mesh,
                        .plans = TRI_NEW_ARRAY(arena, tri_plan *, count),
                        .ranks_each = request->mesh.ranks / count};
    for (; out->count < count; out->count++) {
        tri_plan_request one = *request;
        one.rank = tri_mesh_member(&request->mesh, 0, 1u << TRI_AXIS_PIPELINE, out->count);
        one.like = out->count > 0 ? out->plans[0] : NULL;
        tri_status status = tri_plan_create(arena, device, &one, &out->plans[out->count]);
        if (status == TRI_OK) continue;
        tri_column_destroy(out);
        return status;
    }
    return TRI_OK;
}

void tri_column_destroy(tri_column *column) {
    while (column->count > 0) tri_plan_destroy(column->plans[--column->count]); // they share graphs
}

const tri_plan *tri_column_fullest(const tri_column *column) {
    const tri_plan *fullest = column->plans[0];
    for (int i = 1; i < column->count; i++)
        if (column->plans[i]->memory.peak > fullest->memory.peak) fullest = column->plans[i];
    return fullest;
}

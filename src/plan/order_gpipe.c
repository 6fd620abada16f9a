// The order gpipe: all micro-batches forward, then all backward (Huang et al. 2019,
// arXiv:1811.06965). It is the simplest order, and holds the activations of all micro-batches.
#include "plan/schedule.h"

void tri_order_write_gpipe(const tri_schedule_request *request, tri_schedule *out) {
    static const tri_action_kind kinds[] = {TRI_ACTION_FORWARD, TRI_ACTION_BACKWARD};
    for (int k = 0; k < 2; k++)
        for (int round = 0; round < request->rounds; round++)
            tri_schedule_add_stage(request, out, kinds[k], request->pipeline_rank, round);
}

// The order looped, the breadth-first pipeline (Lamy-Poirier 2022, arXiv:2211.05953). A rank has
// several stages, as in the interleaved order, but runs all micro-batches through one stage before
// the next stage. So the gradients of a stage are complete as early as possible, and are reduced
// while the remaining stages compute. A rank holds the activations of all micro-batches.
#include "plan/schedule.h"

void tri_order_write_looped(const tri_schedule_request *request, tri_schedule *out) {
    int first = request->pipeline_rank, ranks = request->pipeline;
    int last = request->stage_count - ranks + first;
    for (int stage = first; stage <= last; stage += ranks)
        for (int round = 0; round < request->rounds; round++)
            tri_schedule_add_stage(request, out, TRI_ACTION_FORWARD, stage, round);
    for (int stage = last; stage >= first; stage -= ranks)
        for (int round = 0; round < request->rounds; round++)
            tri_schedule_add_stage(request, out, TRI_ACTION_BACKWARD, stage, round);
}

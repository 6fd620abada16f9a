// Writes the compute actions of a rank (FORWARD, BACKWARD and RECOMPUTE of blocks): those of the
// pipeline's order, with RECOMPUTE where blocks ask for it; in evaluation FORWARD only. Read next:
// complete.c, which adds the other actions.
#include "plan/compute_actions.h"

static bool recomputes(const tri_schedule_request *request) {
    for (int b = 0; b < request->block_count; b++)
        if (request->blocks[b].recompute) return true;
    return false;
}

void tri_compute_actions_write(const tri_schedule_request *request, tri_schedule *out) {
    if (!request->training) {
        int ranks = request->pipeline;
        for (int group = 0; group < request->rounds; group += ranks)
            for (int stage = request->pipeline_rank; stage < request->stage_count; stage += ranks)
                for (int round = group; round < group + ranks && round < request->rounds; round++)
                    tri_schedule_add_stage(request, out, TRI_ACTION_FORWARD, stage, round);
        return;
    }
    if (!recomputes(request)) {
        request->order->write(request, out);
        return;
    }
    tri_schedule plain = {.arena = out->arena};
    request->order->write(request, &plain);
    for (int i = 0; i < plain.count; i++) {
        const tri_action *a = &plain.actions[i];
        bool back = a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_INPUT;
        if (back && request->blocks[a->subject].recompute)
            tri_schedule_add(out, TRI_ACTION_RECOMPUTE, a->subject, a->round);
        tri_schedule_add(out, a->kind, a->subject, a->round);
    }
}

// The order zero-bubble: 1F1B whose backward pass is split (Qi et al. 2023, arXiv:2401.10241,
// ZB-H1). The half that earlier stages wait for goes first; the weights' half follows as many
// rounds later as ranks precede this one, and so fills the time in which 1F1B waits at the end.
// Every rank then holds the activations of at most as many rounds as there are pipeline ranks: what
// 1F1B's first rank holds.
#include "plan/schedule.h"

void tri_order_write_zero_bubble(const tri_schedule_request *request, tri_schedule *out) {
    int stage = request->pipeline_rank, rounds = request->rounds;
    int ahead = request->pipeline - 1 - stage, late = stage;
    for (int i = 0; i < rounds + ahead + late; i++) {
        int back = i - ahead, weight = back - late;
        if (i < rounds) tri_schedule_add_stage(request, out, TRI_ACTION_FORWARD, stage, i);
        if (back >= 0 && back < rounds)
            tri_schedule_add_stage(request, out, TRI_ACTION_BACKWARD_INPUT, stage, back);
        if (weight >= 0)
            tri_schedule_add_stage(request, out, TRI_ACTION_BACKWARD_WEIGHT, stage, weight);
    }
}

// The order zero-bubble: 1F1B whose backward pass is split in two (Qi et al. 2023,
// arXiv:2401.10241, ZB-H1). The half for which earlier stages wait runs first. The half for the
// weights runs as many micro-batches later as there are ranks before this one, and fills the time
// in which ranks of 1F1B wait at the end. Every rank then holds the activations of at most as many
// micro-batches as there are pipeline ranks, which is what the first rank of 1F1B holds.
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

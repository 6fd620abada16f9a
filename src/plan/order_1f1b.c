// The order 1f1b ("one forward, one backward"). A rank first runs forward for as many micro-batches
// as there are pipeline ranks after it, and then alternates between one micro-batch forward and one
// backward. So it holds the activations of at most one micro-batch more than there are ranks after
// it (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1).
#include "plan/schedule.h"

void tri_order_write_1f1b(const tri_schedule_request *request, tri_schedule *out) {
    int stage = request->pipeline_rank, rounds = request->rounds;
    int ahead = request->pipeline - 1 - stage;
    for (int i = 0; i < rounds + ahead; i++) {
        if (i < rounds) tri_schedule_add_stage(request, out, TRI_ACTION_FORWARD, stage, i);
        if (i >= ahead) tri_schedule_add_stage(request, out, TRI_ACTION_BACKWARD, stage, i - ahead);
    }
}

// The order interleaved: 1F1B over several stages of each rank (Narayanan et al. 2021,
// arXiv:2104.04473, section 2.2.2). Micro-batches go in groups of P, the number of pipeline ranks;
// each group goes through all of the rank's stages before the next group begins. If the number of
// micro-batches is no multiple of P, the order is made for the next multiple, and those that do not
// exist are left out. Leaving micro-batches out of an order never makes ranks wait for each other
// for ever.
#include "plan/schedule.h"

typedef struct turn {
    int stage, round;
} turn;

// Finds the stage and micro-batch that this rank computes as its i-th in one direction. The
// backward pass goes through the rank's stages in the opposite order, because gradients come from
// the last stage.
static turn find_turn(const tri_schedule_request *request, int i, bool back) {
    int ranks = request->pipeline, stages = request->stage_count / ranks;
    int own = i % (ranks * stages) / ranks; // number of the stage among the rank's own stages
    if (back) own = stages - 1 - own;
    return (turn){.stage = own * ranks + request->pipeline_rank,
                  .round = i / (ranks * stages) * ranks + i % ranks};
}

static void add_turn(const tri_schedule_request *request, tri_schedule *out, tri_action_kind kind,
                     int i) {
    turn t = find_turn(request, i, kind == TRI_ACTION_BACKWARD);
    if (t.round < request->rounds) tri_schedule_add_stage(request, out, kind, t.stage, t.round);
}

void tri_order_write_interleaved(const tri_schedule_request *request, tri_schedule *out) {
    int ranks = request->pipeline, stages = request->stage_count / ranks;
    int turns = (request->rounds + ranks - 1) / ranks * ranks * stages;
    int behind = ranks - 1 - request->pipeline_rank;
    int ahead = stages == 1 ? behind : 2 * behind + (stages - 1) * ranks;
    for (int i = 0; i < turns + ahead; i++) {
        if (i < turns) add_turn(request, out, TRI_ACTION_FORWARD, i);
        if (i >= ahead) add_turn(request, out, TRI_ACTION_BACKWARD, i - ahead);
    }
}

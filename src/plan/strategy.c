#include "plan/schedule.h"

#include <string.h>

static const tri_strategy *const strategies[] = {&tri_strategy_single, &tri_strategy_ddp};

const tri_strategy *tri_strategy_find(const char *name) {
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (!strcmp(strategies[i]->name, name)) return strategies[i];
    return NULL;
}

void tri_schedule_add_passes(const tri_schedule_request *request, tri_schedule *out,
                             void (*after_backward)(tri_schedule *out, int block)) {
    int last = -1, done = 0;
    for (int round = 0; round < request->rounds; round++)
        if (request->round_sizes[round] > 0) last = round;
    for (int round = 0; round <= last; round++) {
        if (request->round_sizes[round] == 0) continue;
        for (int block = 0; block < request->blocks; block++) {
            tri_schedule_add(out, TRI_ACTION_FORWARD, block, round);
            out->actions[out->count - 1].accumulate = done > 0;
        }
        if (!request->training) continue;
        for (int block = request->blocks - 1; block >= 0; block--) {
            tri_schedule_add(out, TRI_ACTION_BACKWARD, block, round);
            out->actions[out->count - 1].accumulate = done > 0;
            if (round == last && request->has_state[block]) after_backward(out, block);
        }
        done++;
    }
    if (!request->training || last >= 0) return;
    for (int block = request->blocks - 1; block >= 0; block--) {
        if (!request->has_state[block]) continue;
        tri_schedule_add(out, TRI_ACTION_CLEAR, block, -1);
        after_backward(out, block);
    }
}

static void add_update(const tri_schedule_request *request, tri_schedule *out) {
    if (!request->training) return;
    tri_schedule_add(out, TRI_ACTION_NORM, -1, -1);
    for (int block = 0; block < request->blocks; block++)
        if (request->has_state[block]) tri_schedule_add(out, TRI_ACTION_STEP, block, -1);
}

static void nothing(tri_schedule *out, int block) {
    (void)out;
    (void)block;
}

static void reduce(tri_schedule *out, int block) {
    tri_schedule_add(out, TRI_ACTION_REDUCE, block, -1);
}

static void write_single(const tri_schedule_request *request, tri_schedule *out) {
    tri_schedule_add_passes(request, out, nothing);
    add_update(request, out);
}

// Every replica has all of the state; gradients are summed behind the backward pass.
static void write_ddp(const tri_schedule_request *request, tri_schedule *out) {
    tri_schedule_add_passes(request, out, request->replicas > 1 ? reduce : nothing);
    add_update(request, out);
}

const tri_strategy tri_strategy_single = {
    .name = "single", .help = "one rank", .needs_one_rank = true, .write = write_single};

const tri_strategy tri_strategy_ddp = {
    .name = "ddp",
    .help = "every replica holds all parameters; gradients are summed behind the backward pass",
    .write = write_ddp};

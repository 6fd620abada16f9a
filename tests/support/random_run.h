// Random runs: a small network, a mesh (how the ranks are arranged), a strategy (how they share the
// training state) and a step, with the plans of all ranks. A plan tells a rank all that it has to
// know for the run.
#ifndef TESTS_SUPPORT_RANDOM_RUN_H
#define TESTS_SUPPORT_RANDOM_RUN_H

#include "nn/optimizer.h"
#include "plan/plan.h"

enum { RANDOM_RUN_RANKS = 4, RANDOM_RUN_BLOCKS = 6, RANDOM_RUN_TARGETS = 3 };

typedef struct random_run {
    uint64_t seed;
    tri_arena *arena;
    tri_mesh mesh;
    tri_strategy_options strategy;
    tri_plan_request request;
    tri_step_shape shape; // which kind of step is to be run: of training or of evaluation

    // The network. Every layer has `width` inputs and outputs.
    int block_count, width;
    int layers[RANDOM_RUN_BLOCKS];
    // By block: whether it also reads the network's inputs, the earlier block whose output it
    // reads, and one whose output it adds to its own (-1: none). So networks branch, and values
    // skip blocks. The last block reads, besides, the outputs that no block between reads.
    bool reads_inputs[RANDOM_RUN_BLOCKS];
    int reads[RANDOM_RUN_BLOCKS], adds[RANDOM_RUN_BLOCKS];

    tri_optimizer optimizer;
    // By rank: the plan for a device whose work is done when a call returns, and the plan for one
    // that works asynchronously.
    tri_plan *sync_plans[RANDOM_RUN_RANKS], *async_plans[RANDOM_RUN_RANKS];
} random_run;

// Draws the run of this seed and makes its plans. Fails the running test if there is no plan.
void random_run_make(uint64_t seed, const tri_device_description *near,
                     const tri_device_description *far, random_run *out);
void random_run_destroy(random_run *run);
const char *random_run_text(const random_run *run); // in a static buffer

#endif

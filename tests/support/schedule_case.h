// Made-up models on made-up meshes (arrangements of ranks), with the schedules of all their ranks.
// A schedule is the list of a rank's actions in one step. A stage is a run of consecutive blocks
// that one rank of a pipeline computes. No model is built: blocks are only numbers and sizes.
#ifndef TESTS_SCHEDULE_CASE_H
#define TESTS_SCHEDULE_CASE_H

#include "plan/simulate.h"

typedef struct schedule_case {
    const char *strategy, *order;
    int pipeline, replicate, shard, tensor; // 0 means 1
    int stages_per_rank, blocks_per_stage;  // 0 means 1
    // How many micro-batches the step has, over all replicas. The last one is smaller.
    int micro_batches;
    // reshards: gathered parameters are released after FORWARD (strategy.reshard_after_forward).
    // offloads: the optimizer states lie in storage between their uses; offloads_masters: the F32
    // master weights do. evaluates: the schedules are of an evaluation, not of training.
    bool deterministic, reshards, offloads, offloads_masters, evaluates;
    bool steps_on_host; // the host runs the optimizer
    // The first stage sends values to every later stage, not only to the next; and of stages of
    // several blocks, the first block sends values to the last block of the next stage.
    bool skips;
    bool recompute; // every other block is recomputed
    int prefetch;
    bool takes_ahead;
} schedule_case;

typedef struct schedule_set {
    tri_arena *arena;
    tri_mesh mesh;
    tri_schedule_request *requests; // by rank
    tri_schedule *schedules;        // by rank, without dependencies
} schedule_set;

// Makes the requests and schedules of all ranks. The blocks differ: some have statistics of batch
// norm, parameters of a narrower type, frozen parameters, or none; the first and the last block
// read one tied parameter. Fails the running test when a schedule cannot be made.
void schedule_set_make(const schedule_case *c, schedule_set *out);
void schedule_set_destroy(schedule_set *set);
const char *schedule_case_text(const schedule_case *c); // in a static buffer

// Simulates all ranks. FORWARD takes 1 s, BACKWARD 2 s (each of its halves 1 s), all else no time.
// Returns how long the step takes. *bubble is the fraction of this time in which ranks wait instead
// of computing.
double schedule_set_simulate(const schedule_set *set, double *bubble);

#endif

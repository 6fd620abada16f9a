// Measures for `trireme bench train` how fast a recipe's steps are, on any number of ranks.
#ifndef TRIREME_TRAIN_BENCH_H
#define TRIREME_TRAIN_BENCH_H

#include "train/session.h"

typedef struct tri_bench_result {
    int rank, ranks, threads;
    double samples_per_s; // over all ranks: median over chunks of about 0.25 s
    double samples_per_s_low, samples_per_s_high; // tenth and ninetieth percentile
    // Chunks that were measured, and those that were rejected because other processes used more
    // than 8% of a core, if one rank runs alone: their times would tell about those processes.
    int chunks, rejected;
    // Fraction of the time in which ranks wait for communication, their mean; not a number if the
    // device runs ahead of the host.
    double waiting;
    double first_step_s;     // from the start of the process to the end of the first step
    double max_rss_mb;       // 10^6 bytes, of this rank
    double flops_per_sample; // forward and backward
    int actions;             // of one step on this rank
    int64_t step_samples;    // over all ranks
    int64_t steps;
    double loss;       // of the last step
    double loss_scale; // of the next one; 1: none
} tri_bench_result;

// Trains for about `seconds`, without evaluation, checkpoints or logs, so that only steps are
// measured. Collective. `trace`: file for the actions of all ranks; NULL: none.
tri_status tri_bench_train(const tri_session_request *request, double seconds, const char *trace,
                           tri_bench_result *out);

#endif

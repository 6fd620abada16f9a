// Measures for `trireme bench train` how fast a recipe's steps are, on any number of ranks.
#ifndef TRIREME_TRAIN_BENCH_H
#define TRIREME_TRAIN_BENCH_H

#include "train/session.h"

typedef struct tri_bench_result {
    int rank, ranks, threads;
    // Samples per second of all ranks together, measured in chunks of time of up to 0.25 s: the
    // median of the chunks, their tenth percentile and their ninetieth percentile.
    double samples_per_s;
    double samples_per_s_low, samples_per_s_high;
    // Processor time of this rank per sample of a step, in seconds: the median of all chunks. Other
    // programs change it less than the rates.
    double cpu_s_per_sample;
    // How many chunks were measured, and how many were rejected because other processes used more
    // than 8% of a core (half of all cores, if the device works asynchronously). Chunks are
    // rejected only if one rank runs alone. disturbed: all would be rejected, so none is.
    int chunks, rejected;
    bool disturbed;
    // Fraction of the time in which ranks wait for communication, as the mean over ranks; NaN: not
    // known, because the device works asynchronously.
    double waiting_fraction;
    double first_step_s;     // time from the start of the process to the end of the first step
    double max_rss_mb;       // the most memory that this rank had, in 10^6 bytes
    double flops_per_sample; // forward and backward
    int actions;          // number of actions (such as FORWARD of a layer) of this rank in one step
    int64_t step_samples; // samples of a step, over all ranks
    int64_t steps;
    double loss;       // loss of the last step
    double loss_scale; // loss scale of the next step; 1: there is none
} tri_bench_result;

// Trains for about `seconds`, but at least three steps, without evaluation, checkpoints or logs, so
// that only steps are measured. Collective. `trace`: a file for the times of all ranks' actions;
// NULL: no trace is written.
tri_status tri_bench_train(const tri_session_request *request, double seconds, const char *trace,
                           tri_bench_result *out);
// The same with a session that the caller opens and closes. It can be measured once.
tri_status tri_bench_session(tri_session *session, double seconds, const char *trace,
                             tri_bench_result *out);

#endif

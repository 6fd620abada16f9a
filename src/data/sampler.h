// Which samples a replica computes, in which order: arithmetic only. ARCHITECTURE.md, "One step,
// exactly".
//
// An epoch has one order of the data set's samples. A step takes the next `global` positions of it,
// the last one what is left. A step is cut into micro-batches of consecutive positions, and
// micro-batch j belongs to replica j mod replicas in round j div replicas. All replicas run all
// rounds.
#ifndef TRIREME_DATA_SAMPLER_H
#define TRIREME_DATA_SAMPLER_H

#include "base/status.h"
#include "data/permutation.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_sampler_options {
    int64_t samples;  // in the data set
    int64_t global;   // per step, over all replicas
    int64_t micro;    // per micro-batch; 0: one micro-batch per replica
    int64_t replicas; // 0: 1
    bool keep_order;  // the data set's own order, every epoch
    bool drop_last;   // leave out an epoch's partial last step
    uint64_t seed;
} tri_sampler_options;

// Read-only once made: any number of threads may use it.
typedef struct tri_sampler {
    tri_sampler_options options;
    int64_t steps; // per epoch
} tri_sampler;

typedef struct tri_micro_batch {
    int64_t index; // j, among all of the step
    int64_t first; // position of its first sample within the step
    int64_t size;  // samples; 0: the replica has none in this round
} tri_micro_batch;

// TRI_BAD_INPUT, naming settings that would do, when a full step has fewer micro-batches than there
// are replicas, or an epoch has no step.
tri_status tri_sampler_make(const tri_sampler_options *options, tri_sampler *out);

// What tri_sampler_make refuses about a full step, without knowing the number of samples: for
// plans, which do not open the data.
tri_status tri_sampler_check_step(int64_t global, int64_t micro, int64_t replicas);

// One pass over `samples` test samples in their own order, as a single step of micro-batches of
// `eval` samples; 0 chooses `micro`, or without it the smaller of `global` and TRI_EVAL_BATCH.
// Replicas may be without.
tri_status tri_sampler_make_evaluation(int64_t samples, int64_t eval, int64_t global, int64_t micro,
                                       int64_t replicas, tri_sampler *out);

// Samples of step `step` of an epoch, over all replicas.
int64_t tri_sampler_step_size(const tri_sampler *sampler, int64_t step);

// How a step of `step_size` samples is divided; plans ask for the full and for the last size.
int64_t tri_micro_batch_count(int64_t step_size, int64_t micro,
                              int64_t replicas); // over all replicas
int64_t tri_micro_batch_rounds(int64_t step_size, int64_t micro, int64_t replicas);
tri_micro_batch tri_micro_batch_of(int64_t step_size, int64_t micro, int64_t replicas,
                                   int64_t replica, int64_t round);
// The largest micro-batch of any replica.
int64_t tri_micro_batch_most(int64_t step_size, int64_t micro, int64_t replicas);

// The samples of an epoch by position: make it once an epoch, then ask.
tri_permutation tri_sampler_order(const tri_sampler *sampler, int64_t epoch);
int64_t tri_sampler_at(const tri_sampler *sampler, const tri_permutation *order, int64_t step,
                       int64_t position);

#endif

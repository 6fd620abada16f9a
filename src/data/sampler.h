// Computes which samples a replica (the ranks that together run one micro-batch) trains on and in
// which order. Nothing is stored, so any step of any epoch is found at once. See ARCHITECTURE.md,
// "One step, exactly".
//
// An epoch is one order of the data set's samples. Each step takes the next `global` positions of
// this order; the last step takes the rest. A step is cut into micro-batches of consecutive
// positions. Replica j mod `replicas` runs micro-batch j. Among the micro-batches of this replica
// in the step, its number is j div `replicas`, called the round. All replicas have the same number
// of rounds; in the last one, some may have no micro-batch.
#ifndef TRIREME_DATA_SAMPLER_H
#define TRIREME_DATA_SAMPLER_H

#include "base/status.h"
#include "data/permutation.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_sampler_options {
    int64_t samples;  // samples in the data set
    int64_t global;   // samples of a step, over all replicas
    int64_t micro;    // samples of a micro-batch; 0: each replica has one micro-batch
    int64_t replicas; // number of replicas; 0 means 1
    bool keep_order;  // every epoch is in the data set's own order
    bool drop_last;   // the smaller last step of an epoch is left out
    uint64_t seed;
} tri_sampler_options;

// A sampler is read-only once it is made: any number of threads may use it.
typedef struct tri_sampler {
    tri_sampler_options options;
    int64_t steps; // steps of an epoch
} tri_sampler;

typedef struct tri_micro_batch {
    int64_t index; // number of the micro-batch among all those of the step, over all replicas
    int64_t first; // position of its first sample in the step
    int64_t size;  // number of samples; 0: the replica has no such micro-batch in this step
} tri_micro_batch;

// Makes a sampler. TRI_BAD_INPUT: a full step has fewer micro-batches than there are replicas, so
// that one replica would never work, or an epoch has no step; the message has settings that work.
tri_status tri_sampler_make(const tri_sampler_options *options, tri_sampler *out);

// Checks a full step as tri_sampler_make does, without knowing the number of samples: for plans,
// which do not open the data.
tri_status tri_sampler_check_step(int64_t global, int64_t micro, int64_t replicas);

// Makes a sampler for evaluation: all `samples` in their own order, as a single step of
// micro-batches of `eval` samples. `eval` 0 means `micro` or, if that is 0 too, the smaller of
// `global` and TRI_EVAL_BATCH. Unlike in training, a replica may get no micro-batch.
tri_status tri_sampler_make_evaluation(int64_t samples, int64_t eval, int64_t global, int64_t micro,
                                       int64_t replicas, tri_sampler *out);

// Counts the samples of step `step` of an epoch, over all replicas.
int64_t tri_sampler_step_size(const tri_sampler *sampler, int64_t step);

// How a step of `step_size` samples is divided: the number of its micro-batches over all replicas,
// the number of rounds (the most micro-batches of a replica), and a replica's micro-batch number
// `round`. `micro` 0: each replica has one micro-batch.
int64_t tri_micro_batch_count(int64_t step_size, int64_t micro, int64_t replicas);
int64_t tri_micro_batch_rounds(int64_t step_size, int64_t micro, int64_t replicas);
tri_micro_batch tri_micro_batch_of(int64_t step_size, int64_t micro, int64_t replicas,
                                   int64_t replica, int64_t round);
// The size of the largest micro-batch of any replica, for which memory is planned.
int64_t tri_micro_batch_largest(int64_t step_size, int64_t micro, int64_t replicas);

// tri_sampler_order makes the order of an epoch's samples, once for each epoch. tri_sampler_at
// finds the sample at a position of a step in that order.
tri_permutation tri_sampler_order(const tri_sampler *sampler, int64_t epoch);
int64_t tri_sampler_at(const tri_sampler *sampler, const tri_permutation *order, int64_t step,
                       int64_t position);

#endif

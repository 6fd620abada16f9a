// Searches the fastest micro-batch that fits into memory, for `trireme batch-find`, on any number
// of ranks.
#ifndef TRIREME_TRAIN_BATCH_FIND_H
#define TRIREME_TRAIN_BATCH_FIND_H

#include "train/bench.h"

enum { TRI_MAX_BATCH_TRIALS = 8 };

typedef struct tri_batch_trial {
    int64_t micro;
    int64_t peak_bytes;   // by the plan: the most bytes in use at one time on any rank
    double samples_per_s; // of all ranks together
    bool is_disturbed;    // other programs used the machine, so that the rate is too low
    // Why a run with this micro-batch would be refused, mostly for its memory. NULL: it would not.
    const char *refusal;
} tri_batch_trial;

typedef struct tri_batch_found {
    int rank;
    int64_t global; // batch.global, which stays
    int64_t replicas;
    bool gives_rounds;                            // tri_batch_options.gives_rounds of the recipe
    tri_batch_trial trials[TRI_MAX_BATCH_TRIALS]; // the largest micro-batch first
    int count, best;                              // best: index of the fastest trial
} tri_batch_found;

// Trains with micro-batches that divide a replica's samples of a step: the whole, the next that is
// at most half as large, and so on, and the recipe's own. Each is planned for evaluations too, as
// in a run, and timed for about `seconds` (tri_bench_train). `request` has to ask for `train` and
// `evaluate`; its `comm` is needed on several ranks. *out is filled in on all ranks; the times and
// so the best are those of rank 0. Texts lie in `arena`. Collective. TRI_BAD_INPUT: the model has
// batch norm, so that another micro-batch gives another result; or no micro-batch can be trained.
tri_status tri_batch_find(tri_arena *arena, const tri_session_request *request, double seconds,
                          tri_batch_found *out);

#endif

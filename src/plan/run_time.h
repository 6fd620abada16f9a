// How long a whole run takes: its start, its training steps, its evaluations, and what they wait
// for data. A loader is simulated batch by batch, because its workers each make a whole batch: the
// first one of an empty loader is late, however many workers there are.
#ifndef TRIREME_PLAN_RUN_TIME_H
#define TRIREME_PLAN_RUN_TIME_H

#include <stdbool.h>
#include <stdint.h>

// What a rank does in one epoch: the training, or an evaluation.
typedef struct tri_run_phase {
    double samples; // of one rank, in each epoch
    double batch;   // samples of one rank in a micro-batch; the last one has the rest
    double batch_s; // how long a micro-batch takes, once its data are there
} tri_run_phase;

typedef struct tri_run_model {
    int64_t epochs;
    int64_t epochs_between; // an evaluation follows every so many epochs; 0: none does
    tri_run_phase train, evaluate;
    double start_s; // from the start of the processes to the first step
    // The loader of a rank has so many workers, each of which makes one micro-batch after another,
    // up to twice as many ahead as there are workers. `sample_s`: how long one takes for a sample.
    int64_t workers;
    double sample_s;
    // The loader begins again, with nothing loaded, in each epoch and in each evaluation, as
    // PyTorch's does without persistent_workers; false: it goes on.
    bool is_cold;
} tri_run_model;

typedef struct tri_run_time {
    double start_s, train_s, evaluate_s;
    double data_s; // how long training and evaluations wait for data
    double total_s;
} tri_run_time;

tri_run_time tri_run_time_of(const tri_run_model *model);

#endif

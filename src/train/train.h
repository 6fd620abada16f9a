// The training loop of `trireme train`, and `trireme eval`.
#ifndef TRIREME_TRAIN_TRAIN_H
#define TRIREME_TRAIN_TRAIN_H

#include "observe/observe.h"
#include "train/session.h"

typedef struct tri_train_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task; // the program's own; NULL: the recipe's
    const char *device;
    const char *run_dir;
    const char *resume; // auto, never or a path
    const char *trace;  // file for the actions of all ranks; NULL: none
    bool quiet;         // nothing on standard error but warnings and errors
} tri_train_request;

// Of test data that were kept for the end of a run.
typedef struct tri_test_result {
    int64_t samples;                       // 0: there was no such evaluation
    double loss, metrics[TRI_MAX_METRICS]; // as the graph numbers them; its first is the loss
} tri_test_result;

// What a run came to, for the summary. Of rank 0; the others have rank alone.
typedef struct tri_train_result {
    int rank, ranks, hosts;
    int threads;                    // of a rank
    bool device_is_host;            // the device computes on the host's cores
    bool has_statistics;            // of batch norm
    int64_t tail_samples;           // of an epoch's last step, where it is shorter; else 0
    int64_t steps, epochs, samples; // of the whole run, earlier parts of it included
    double wall_s, samples_per_s;   // of this part: training alone, loading included
    double starved_cores;           // that this rank's threads got where others took more; else 0
    bool was_complete;              // nothing was left to do
    bool has_stopped_early;         // trainer.early_stopping ended the run
    tri_val_source val_source;
    bool has_loss;          // steps were made
    double loss, grad_norm; // of the last one; the norm from before clipping
    bool has_val;
    double val_loss;
    tri_metric_value val[TRI_MAX_METRICS]; // the other metrics
    int val_count;
    int64_t val_samples;
    char names[TRI_MAX_METRICS][64]; // of `val`
    // Of the test data, where the run kept them for its end.
    bool has_test;
    double test_loss, test[TRI_MAX_METRICS]; // `test` by the names of `val`
    int64_t test_samples;
} tri_train_result;

// TRI_OK when the run is complete; TRI_STOPPED after a signal, with a checkpoint; else what failed,
// with all checkpoints as they were. Bad input is refused before anything is created. SIGTERM,
// SIGINT and SIGUSR1 are kept until the caller ends that (tri_signals_unwatch).
tri_status tri_train(const tri_train_request *request, tri_train_result *out);

typedef struct tri_eval_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task;
    const char *device;
    const char *checkpoint;
} tri_eval_request;

tri_status tri_evaluate(const tri_eval_request *request, tri_train_result *out);

#endif

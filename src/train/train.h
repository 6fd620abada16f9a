// Runs `trireme train` and `trireme eval`.
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
    int bound_cores;    // to which this rank was bound, for a message; 0: to none
    bool quiet;         // only warnings and errors on standard error
} tri_train_request;

// The evaluation of the test data at the end of a run.
typedef struct tri_test_result {
    int64_t samples;                       // 0: there was no such evaluation
    double loss, metrics[TRI_MAX_METRICS]; // by the graph's metric numbers; 0 is the loss
} tri_test_result;

// The result of a run, for the summary.
typedef struct tri_train_result {
    int rank, ranks, hosts;
    int threads;                    // of this rank
    bool device_is_host;            // the device computes on the host's cores
    bool has_statistics;            // the model has running statistics of batch norm
    int64_t tail_samples;           // samples of an epoch's last step if it is smaller; else 0
    int64_t steps, epochs, samples; // of the whole run, also of earlier processes
    double wall_s, samples_per_s;   // of this process; the rate is that of steps with loading
    // The fraction of its steps' time in which this rank waited for others with nothing to compute;
    // 0: not known, as on a device that runs ahead of the host.
    double waiting;
    double starved_cores;   // cores that this rank got if other processes took many; else 0
    bool was_complete;      // the run was complete before this process started
    bool has_stopped_early; // trainer.early_stopping ended the run
    tri_val_source val_source;
    bool has_loss;          // this process made steps
    double loss, grad_norm; // of the last step; the norm is that before clipping
    bool has_val;
    double val_loss;
    tri_metric_value val[TRI_MAX_METRICS]; // the other metrics
    int val_count;
    int64_t val_samples;
    char names[TRI_MAX_METRICS][64]; // of `val`
    // The evaluation of the test data at the end of the run.
    bool has_test;
    double test_loss, test[TRI_MAX_METRICS]; // `test` by the names of `val`
    int64_t test_samples;
} tri_train_result;

// Trains. TRI_OK: the run is complete; TRI_STOPPED: a signal stopped it, and a checkpoint was
// saved; else what failed, with earlier checkpoints unchanged. Bad input is refused before anything
// is created. SIGTERM, SIGINT, SIGUSR1 and SIGHUP stay caught until the caller calls
// tri_signals_unwatch, so that a late signal does not end the process before the result is printed.
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

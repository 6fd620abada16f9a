// Runs the commands `trireme train` and `trireme eval`.
#ifndef TRIREME_TRAIN_TRAIN_H
#define TRIREME_TRAIN_TRAIN_H

#include "checkpoint/checkpoint.h"
#include "observe/observe.h"
#include "train/session.h"

typedef struct tri_train_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    // A model that the program brings itself, used if the recipe names it or names none; NULL:
    // there is none, and the recipe names a model.
    const tri_task *task;
    const char *device;
    const char *run_dir;
    const char *resume; // auto, never or a path
    const char *trace;  // file for the times of all ranks' actions; NULL: no trace is written
    int bound_cores;    // for a message: to how many cores this rank was bound; 0: it was not bound
    bool quiet;         // print only warnings and errors on standard error
    int64_t until_epoch; // this process ends when the run has made so many epochs; 0: it does not
} tri_train_request;

// The result of a run, from which its summary is printed.
typedef struct tri_train_result {
    int rank, ranks, hosts;
    int threads;         // threads of this rank
    bool device_is_host; // the device computes on the host's cores
    bool has_statistics; // the model has running statistics of batch norm
    // Samples of an epoch's last step if it is smaller than the others; else 0.
    int64_t tail_samples;
    int64_t steps, epochs, samples; // totals of the whole run, including earlier processes
    // Time and speed of this process; samples_per_s counts steps and the loading of their samples.
    double wall_s, samples_per_s;
    // The fraction of the steps' time in which this rank waited for others and computed nothing; 0:
    // not known, for example on a device that works asynchronously.
    double waiting_fraction;
    double data_fraction;   // the fraction of the steps' time in which this rank waited for data
    double starved_cores;   // how many cores this rank got, if other processes took many; else 0
    bool was_complete;      // the run was complete before this process started
    const char *stopped_by; // the key of trainer.early_stopping that ended the run; NULL: none did
    bool uses_averages;     // evaluations use averages of the weights
    char end_reason[256];   // why this process ended the run before its last step; "": it has not
    tri_val_source val_source;
    bool has_loss;          // this process has made steps, so `loss` is set
    double loss, grad_norm; // values of the last step; the norm is the one before clipping
    bool has_val;
    double val_loss;
    // The metrics other than the loss. Those with several figures are only in the result of an
    // evaluation (tri_evaluate), at its end.
    tri_metric_value val[TRI_MAX_METRICS];
    int val_count;
    int64_t val_samples;
    int64_t val_step; // the step whose weights were evaluated; that of the test is `steps`
    // The best checkpoint of the run folder (checkpoint.monitor), on rank 0; has_best false: there
    // is none.
    bool has_best;
    tri_best_checkpoint best;
    char names[TRI_MAX_METRICS][TRI_MAX_METRIC_BYTES]; // names of the metrics in `val`
    // The test data were evaluated at the end of the run.
    bool has_test;
    double test_loss, test[TRI_MAX_METRICS]; // `test` has the metrics in the order of `names`
    int64_t test_samples;
} tri_train_result;

// Trains. TRI_OK: the run is complete. TRI_STOPPED: a signal or the end of the job's time stopped
// it, and a checkpoint was saved. Other status: the run failed, and earlier checkpoints are
// unchanged. Bad input is rejected before anything is created. The signals of signals.h stay caught
// until the caller calls tri_signals_unwatch, so that a late signal does not end the process before
// the result is printed.
tri_status tri_train(const tri_train_request *request, tri_train_result *out);

typedef struct tri_eval_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task;
    const char *device;
    const char *checkpoint;
    tri_arena *arena; // keeps the figures of the result; NULL: they are left out
} tri_eval_request;

tri_status tri_evaluate(const tri_eval_request *request, tri_train_result *out);

#endif

// What the files of the training loop share: its state, and the functions of each file that others
// call. train.c has the loop itself.
#ifndef TRIREME_TRAIN_LOOP_H
#define TRIREME_TRAIN_LOOP_H

#include "observe/straggler.h"
#include "observe/trace.h"
#include "train/deadline.h"
#include "train/lock.h"
#include "train/rate.h"
#include "train/state.h"
#include "train/train.h"

typedef struct train_loop {
    tri_arena *arena;
    const tri_train_request *request;
    const tri_recipe *recipe;
    tri_session *session;
    train_lock *lock;       // of the run folder; rank 0 only
    tri_observer *observer; // rank 0 only
    tri_trace *trace;       // NULL: none
    tri_straggler *straggler;
    struct train_sample_log *sample_log; // NULL: this rank has none
    tri_loader *train_loader, *val_loader;
    tri_state_view model, optimizer;
    tri_progress progress;
    tri_test_result test;
    tri_rate rate;
    int64_t steps_per_epoch;
    int64_t last_step;            // the step at which the run ends; -1: it has no such step
    int64_t saved_step;           // of the newest checkpoint; -1: none
    double started_s, saved_s;    // times of this process's start of training, and of its last save
    double training_s;            // time that this process has spent in steps
    double waited_s;              // of it, in waits for other ranks
    int64_t started_samples;      // progress.samples when this process started
    double train_loss, grad_norm; // of the latest step
    bool has_stepped;             // in this process
    int in_flight;                // steps that were issued after those that `progress` counts
    bool stop;                    // early stopping or max_time has completed the run
    bool is_interrupted;          // a signal, or the end of the job's time, ends this process
    bool job_ends;                // ... because the job's time is over soon
    train_deadline deadline;      // rank 0 only
    bool is_time_to_save;         // checkpoint.train_time_interval has passed
    bool saves;                   // this run writes checkpoints
    tri_pending_save *saving;     // in progress; NULL: none
    tri_arena *saving_arena;
    int64_t saving_step;
    double saving_begun_s; // when the save in progress began
    int64_t saving_since;  // steps issued before this one tell of an earlier stage of the save
    // Each of these warnings is logged once in a run, because its reason stays.
    bool has_warned_overlap, has_warned_memory;
} train_loop;

// In resume.c. Restores the checkpoint to resume from, or initializes the weights. Refuses a folder
// or a checkpoint of another run before anything is created, so that it stays as it was.
// Collective.
tri_status train_restore(train_loop *loop);
// Refuses a run folder in which a symbolic link, a device or a pipe has the name of a file that the
// run writes: through it the run would overwrite something else. Acts on rank 0; not collective.
tri_status train_check_outputs(const train_loop *loop);

// In folder.c. Whether the run folder has a file of that name; "": whether the folder exists.
bool train_folder_has(const train_loop *loop, const char *name);
// In folder.c. Makes and locks the run folder of a new run, or takes over that of a resumed one,
// and writes its recipe.yaml. Acts on rank 0; not collective.
tri_status train_open_folder(train_loop *loop);
// In folder.c. Collective. If another rank sees that the folder holds a run, waits until this host
// does too, so that rank 0 does not begin a new one there.
tri_status train_await_folder(train_loop *loop);
// In folder.c. Locks the run folder for this process if the folder exists. Acts on rank 0; not
// collective. TRI_BAD_INPUT: another process uses the folder. If the lock cannot be taken for
// another reason, returns TRI_OK: the folder may be read-only and hold a complete run, of which
// only the results are shown.
tri_status train_lock_folder(train_loop *loop);

// In job_end.c. Before the first step: finds out when the Slurm job ends, so that the run can stop
// before. Acts on rank 0.
void train_watch_job(train_loop *loop);
// In job_end.c. On rank 0: whether the run has to stop now, so that its last checkpoint is written
// in time.
bool train_job_ends(train_loop *loop);
// In job_end.c. After a run that was stopped with a checkpoint: starts the job again, as
// trainer.on_timeout says. Acts on rank 0; may not return, because Slurm ends the job.
void train_start_again(train_loop *loop);
// In train.c. Whether an evaluation is due after the step that is `ahead` steps behind the latest,
// which the deadline has to leave time for.
bool train_evaluation_is_due(const train_loop *loop, int64_t ahead);

// In evaluate.c. Refuses monitors of the recipe that name no metric, or a metric that the run will
// not have, before the first step: a run would else notice only hours later.
tri_status train_check_monitors(const train_loop *loop);
// In evaluate.c. Evaluates, reports the result, and decides about early stopping. Collective.
tri_status train_evaluate(train_loop *loop);
// In evaluate.c. At the end of a complete run: evaluates the test data, if the validation data are
// others; else they have been evaluated already.
tri_status train_test(train_loop *loop);
// In evaluate.c. Whether early stopping has ended the run, in this process or in an earlier one, so
// that a resumed run does not train on.
bool train_has_stopped_early(const train_loop *loop);
// In evaluate.c. Gets the value of a monitored metric ("val_loss", "val_accuracy", "train_loss").
// False: the metric has no value yet.
bool train_monitored_value(const train_loop *loop, const char *name, double *out);
// In evaluate.c. Runs one evaluation, TRI_STEP_EVALUATE or TRI_STEP_TEST; the sums are over all
// replicas. Collective.
tri_status train_run_evaluation(tri_session *session, tri_loader *loader, tri_step_shape shape,
                                tri_step_output *out);
// In evaluate.c. The mean of a metric; not a number where nothing counted, as where every label is
// left out.
double train_mean(const tri_step_output *sums, int metric);
void train_fill_result(const tri_session *session, const tri_progress *progress,
                       tri_train_result *out);

// In saving.c. Saves a checkpoint. With `behind`, it is written while the next steps run, if there
// is memory for a copy of the state. If a checkpoint cannot be written, this and the next functions
// warn and let the run continue, because an earlier checkpoint is still there. Collective.
tri_status train_save(train_loop *loop, bool behind);
// In saving.c. How far this rank's writing is, as a number whose sum over all ranks
// train_advance_saving takes: each step sums it anyway, so no rank waits.
double train_saving_ready(const train_loop *loop);
// In saving.c. After a step: commits the checkpoint once all ranks have written it. Collective.
tri_status train_advance_saving(train_loop *loop, double ready_sum);
// In saving.c. Waits until the checkpoint in progress is complete. Collective.
tri_status train_finish_saving(train_loop *loop);
// In saving.c. Gives up the checkpoint in progress, at the end of a run that failed. Not
// collective, because other ranks may be lost.
void train_abandon_saving(train_loop *loop);

// In scale.c. Before the first step: gives the engine the loss scale and the count of updates of
// `progress`, with which the device goes on.
tri_status train_carry(const tri_session *session, tri_progress *progress);
// In scale.c. After a step: takes the loss scale and the count of updates from its results, and
// reports an overflow. TRI_NOT_FINITE: gradients overflowed at the smallest scale, so that no scale
// is left.
tri_status train_take_carried(const tri_session *session, tri_progress *progress,
                              const tri_step_output *out);

// In sample_log.c. A log of which samples each step took; with NULL, its functions do nothing.
typedef struct train_sample_log train_sample_log;
// Opens this rank's file of the sample log. NULL: log.samples is not set, or another rank logs the
// same samples.
train_sample_log *train_sample_log_open(const train_loop *loop);
// Appends one micro-batch. `step` counts from 1, as in metrics.jsonl.
void train_sample_log_note(train_sample_log *log, int64_t step, const tri_data_batch *batch);
void train_sample_log_close(train_sample_log *log);

// In summary.c. Shows a table of the model's blocks, their output shapes and parameters.
void train_show_summary(train_loop *loop);

// In feed.c. Brings micro-batches from a loader to an engine, and gives their memory back to the
// loader once the engine has copied them.
typedef struct train_feed {
    tri_loader *loader;
    tri_engine *engine;
    int field_count;
    // Micro-batches of the loader, the oldest first, at most tri_plan_held_batches: those that the
    // engine was given and may still read, then those that it has only looked at.
    const tri_data_batch **held;
    int64_t held_count, given;
    train_sample_log *log; // NULL: none
    int64_t step;          // that is being issued, for the log
} train_feed;
// A feed whose list is in `arena`.
train_feed train_feed_make(tri_arena *arena, tri_session *session, tri_loader *loader);
// The engine calls these: they are `next`, `release` and `look` of tri_step_input.
tri_status train_feed_next(void *context, tri_engine_batch *out);
void train_feed_release(void *context);
tri_status train_feed_look_ahead(void *context, int64_t ahead, tri_engine_batch *out);
// Ends a feed after the last step, which returned `status`: waits until the engine no longer reads
// the loader's memory, and returns all batches to the loader. If the step failed, abandons the
// engine, and returns the step's failure.
tri_status train_feed_end(train_feed *feed, tri_status status);

#endif

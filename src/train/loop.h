// What the files of the training loop share: its state, and the functions of each file that others
// call. train.c has the loop itself. A step is one global batch and one update. A step in flight is
// one that was issued to the device and whose results the host has not read yet: on a device that
// works asynchronously, the loop issues a step before it reads the results of the one before. The
// run folder has the run's recipe, metrics and checkpoints. Rank 0 writes the files there, except
// for the data of checkpoints and the sample logs, which several ranks write.
#ifndef TRIREME_TRAIN_LOOP_H
#define TRIREME_TRAIN_LOOP_H

#include "base/cpu_time.h"
#include "observe/actions.h"
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
    const char *resume; // request->resume, or auto where that was for an earlier start (start.c)
    const tri_recipe *recipe;
    tri_session *session;
    train_lock *lock;       // lock of the run folder; on rank 0 only
    tri_observer *observer; // rank 0 only
    // What this run's recipe has changed since the checkpoint from which it resumes
    // (tri_recipe_changes); NULL: nothing.
    const tri_tree *changes;
    tri_trace *trace; // NULL: no trace is written
    tri_straggler *straggler;
    struct train_sample_log *sample_log; // NULL: this rank does not log its samples
    tri_loader *train_loader, *val_loader;
    tri_state_view model, optimizer, average;
    tri_progress progress;
    const char *resumed_from; // the checkpoint from which this process goes on; NULL: a new run
    tri_rate rate;
    tri_checkpoint_monitor ranked_by; // what checkpoints are ranked by, without a value
    // What early stopping and the schedule plateau follow: "val_loss (min) of the 23 test samples".
    const char *stops_by, *lowers_by;
    int64_t steps_per_epoch;
    // By how many steps the epochs so far were longer (or shorter, negative) than steps_per_epoch,
    // because the data had another number of samples.
    int64_t extra_steps;
    int64_t last_step;            // the step at which the run ends; -1: not known
    int64_t average_start;        // tri_average_start of this run
    int64_t saved_step;           // step of the newest checkpoint; -1: there is none
    double started_s, saved_s;    // when this process began to train, and when it last saved
    double training_s;            // seconds that this process has spent in steps
    double waited_s;              // seconds of training_s in which it waited for other ranks
    double data_s;                // seconds in which it waited for train_loader
    int64_t started_samples;      // progress.samples when this process started
    double train_loss, grad_norm; // training loss and gradient norm of the latest step
    bool has_stepped;             // this process has completed a step
    int in_flight;                // how many issued steps `progress` does not count yet
    bool stop;                    // early stopping, or a max_time alone, has completed the run
    // Why this process has completed the run before its last step; NULL: it has not.
    const char *end_reason;
    // Why this process ends before the run is complete, such as "by a signal"; NULL: it goes on.
    const char *interruption;
    bool job_ends;            // the run ends because the time of the job is over soon
    train_deadline deadline;  // end of the job's time; on rank 0 only
    bool is_time_to_save;     // checkpoint.train_time_interval has passed since the last save
    bool saves;               // whether this run writes checkpoints
    tri_pending_save *saving; // the save in progress; NULL: there is none
    tri_arena *saving_arena;  // memory of the save in progress
    int64_t saving_step;      // number of the step that the save in progress contains
    // Seconds that the last save took on this rank, without the training steps that ran in between.
    double saving_worked_s;
    // A save has two stages: the ranks write their chunks, then the checkpoint is committed. In
    // each step the ranks add up how many of them are ready for the next stage
    // (train_saving_ready). saving_stage_step is the last step (counted from 1) that was issued
    // before the present stage began. The sums of this step and of earlier ones tell of an earlier
    // stage, so they are ignored.
    int64_t saving_stage_step;
    // Whether the run has warned that training had to wait for the save before (overlap), and that
    // there is no memory for a copy of the state (memory). Each is logged only once in a run,
    // because its cause does not go away.
    bool has_warned_overlap, has_warned_memory;
    // The same of an evaluation whose loss, or another metric beside a finite loss, is not finite.
    bool has_warned_nothing; // that the loss of an evaluation counts nothing
    bool has_warned_not_finite, has_warned_metric;
    bool has_told_empty; // that a step has changed nothing, because its loss counts nothing
    // The run folder was removed or renamed: where it is now. On rank 0; NULL: it was not.
    const char *lost_folder;
} train_loop;

// Defined in resume.c. Restores the checkpoint to resume from, or initializes the weights. A folder
// or checkpoint of another run is rejected before anything is created, so that it stays unchanged.
// Collective.
tri_status train_restore(train_loop *loop);
// Defined in resume.c. Sets the weights with which a new run begins: initial ones, or those of the
// recipe's init, which go into `model`. Collective.
tri_status train_initialize(tri_session *session, const tri_task *task, tri_state_view *model);
// Whether --resume names a checkpoint from which this start goes on.
bool train_resumes_by_path(const train_loop *loop);
// What the advice to run the same command again has to add: ", without --resume,", or nothing.
const char *train_flag_to_drop(const train_loop *loop);
// Reports `changes` to the observer.
void train_tell_changes(const train_loop *loop);
// Rejects a run folder in which a symbolic link, a device or a pipe has the name of a file that the
// run writes: the run would overwrite something else through it. On ranks other than 0 it does
// nothing; not collective.
tri_status train_check_outputs(const train_loop *loop);

// Defined in start.c. Sets loop->resume to auto if the same job or launcher has started this run
// before. Collective.
tri_status train_settle_start(train_loop *loop);
// Defined in start.c. Notes in the run folder which job and launcher have opened it, and the job
// `next` that goes on there ("": none). For rank 0.
tri_status train_note_start(const train_loop *loop, const char *next);
// Defined in saving.c. Makes a decision of rank 0 known to all ranks. Collective.
tri_status train_tell_all(const train_loop *loop, int32_t *decision, const char *label);

// Defined in folder.c. Whether the run folder has a file called `name`; "": whether the folder
// exists.
bool train_folder_has(const train_loop *loop, const char *name);
// Defined in folder.c. Makes and locks the run folder of a new run, or takes over that of a resumed
// one, and writes its recipe.yaml. On ranks other than 0 it does nothing; not collective.
tri_status train_open_folder(train_loop *loop);
// Defined in folder.c. Makes the run folder again if it was removed or renamed since this process
// has opened it: a checkpoint has to lie beside its recipe. Reports it. For rank 0.
tri_status train_keep_folder(train_loop *loop);
// Defined in folder.c. Fails if the folder of this complete run was removed or renamed.
tri_status train_check_folder(train_loop *loop);
// Defined in folder.c. If any rank sees a run in the folder, waits for a limited time until this
// host sees it too. A network file system may show files late on some hosts, and if rank 0
// did not see the run, it would begin a new one there. Collective.
tri_status train_await_folder(train_loop *loop);
// Defined in folder.c. Locks the run folder for this process if the folder exists. On ranks other
// than 0 it does nothing; not collective. TRI_BAD_INPUT: another process uses the folder. If the
// lock cannot be taken for another reason, returns TRI_OK: the folder may be read-only and contain
// a complete run, whose results are only shown.
tri_status train_lock_folder(train_loop *loop);

// Defined in job_end.c. Whether this is a Slurm job that trainer.on_timeout starts again at its
// end.
bool train_job_may_start_again(const tri_recipe *recipe);
// Defined in job_end.c. Finds out, before the first step, when the Slurm job ends, so that the run
// can stop before that. On ranks other than 0 it only prepares `deadline`.
void train_watch_job(train_loop *loop);
// Defined in job_end.c. Called before each step: whether the run has to stop, so that its last
// checkpoint is written in time. Rank 0 decides. The step sums the decision over all ranks, so that
// all learn of it.
bool train_job_ends(train_loop *loop);
// Defined in job_end.c. Whether train_start_again will start the job again. Only rank 0 knows.
bool train_starts_again(const train_loop *loop);
// Defined in job_end.c. Starts the job again, as trainer.on_timeout says, after a run that was
// stopped with a checkpoint. On ranks other than 0 it does nothing. It may not return, because
// Slurm may end the job.
void train_start_again(train_loop *loop);
// Defined in train.c. Whether an evaluation is due after the step that comes `ahead` steps after
// the one whose results were read last. Before the end of a Slurm job, train_job_ends stops the run
// early enough to leave time for that evaluation.
bool train_evaluation_is_due(const train_loop *loop, int64_t ahead);
// Defined in evaluate.c. Whether the recipe demands an evaluation after `step` steps, of which
// `step_in_epoch` are in the epoch; without data for one, whether the epoch ends, whose train_loss
// counts for early stopping then.
bool train_is_evaluated(const train_loop *loop, int64_t epoch, int64_t step, int64_t step_in_epoch);
// Defined in evaluate.c. Whether the recipe demands one after the latest step. That of a
// run's end may come before: it is not counted in early stopping, and does not begin the mean of
// train_loss again, since neither would be so had the run gone on.
bool train_evaluation_counts(const train_loop *loop);
// Defined in monitor.c. Decides from the monitored values, if the latest step has any that count,
// whether to stop early and whether to lower the learning rate.
void train_follow_monitors(train_loop *loop);
// Defined in train.c. Whether a checkpoint is due after the step that comes `ahead` steps after the
// one whose results were read last.
bool train_checkpoint_is_due(const train_loop *loop, int64_t ahead);

// Defined in length.c. Whether this process is to end here, between two epochs, because the run has
// made as many as the request says.
bool train_reaches_until_epoch(const train_loop *loop);
// Defined in length.c. Warns of settings that do not fit the run's length.
void train_warn_of_length(const train_loop *loop);

// Defined in monitor.c. Rejects monitored metrics of the recipe that do not exist or that this run
// will not have. It does so before the first step, because otherwise the run would fail only hours
// later.
tri_status train_check_monitors(const train_loop *loop);
// Defined in train.c. Ends this process once nothing is in flight, unless it ends for an earlier
// cause. All ranks have to call it in the same step.
void train_interrupt(train_loop *loop, const char *cause);
// Defined in train.c. train_share_signals writes what this rank knows of signals into the numbers
// that ranks add up; train_take_signals decides by the sums whether this process ends, and whether
// because its job does.
void train_share_signals(double numbers[TRI_MAX_CALLER_NUMBERS]);
void train_take_signals(train_loop *loop, const double sums[TRI_MAX_CALLER_NUMBERS]);
// Defined in evaluate.c. Makes the evaluation that is due (tri_progress.evaluation_due), reports
// the result, decides about early stopping, and ranks the weights among the checkpoints. If a
// signal cuts the evaluation short, it stays due, and this process ends. Collective.
tri_status train_evaluate_if_due(train_loop *loop);
// Defined in evaluate.c. Whether the test data remain to be evaluated with the present weights.
// They do not if they serve as validation data: then they have been evaluated already.
bool train_test_is_due(const train_loop *loop);
// Defined in evaluate.c. Evaluates the test data at the end of a complete run, and adds the result
// to the checkpoint of the last step, so that a resumed run knows that this is done.
tri_status train_test(train_loop *loop);
// Defined in monitor.c. Called once the state is restored: settles what checkpoints are ranked by
// and what early stopping and the schedule plateau follow. Forgets a best value that is of another
// metric, mode, split or number of samples, because such values cannot be compared.
void train_settle_monitors(train_loop *loop);
// Defined in monitor.c. The key of trainer.early_stopping that has ended the run, in this process
// or in an earlier one; NULL: none has. If one has, a resumed run does not train on.
const char *train_stopped_by(const train_loop *loop);
// Defined in monitor.c. Gets the value of a monitored metric ("val_loss", "val_accuracy",
// "train_loss"). False: it has no finite value for the present weights.
bool train_monitored_value(const train_loop *loop, const char *name, double *out);
// Defined in evaluate.c. Runs one evaluation, TRI_STEP_EVALUATE or TRI_STEP_TEST, over all
// replicas. If a signal reaches any rank meanwhile, cuts the evaluation short, so that *out means
// nothing, and calls train_interrupt. `loop` NULL: there is no training loop, and no signal is
// looked at. Collective.
tri_status train_run_evaluation(train_loop *loop, tri_session *session, tri_loader *loader,
                                tri_step_shape shape, tri_evaluation *out);
// Defined in evaluate.c. Computes the mean of a metric; NaN if nothing was counted, for example if
// all labels are ignored.
double train_mean(const tri_step_output *sums, int metric);
// Defined in result.c. The first fills in what a run and an evaluation have in common, the second
// what only a run has, the third how many cores this process has got since `before`.
void train_fill_result(const tri_session *session, const tri_progress *progress,
                       tri_train_result *out);
void train_fill_run_result(const train_loop *loop, tri_train_result *out);
void train_fill_starved_cores(const tri_cpu_time *before, tri_train_result *out);

// Defined in saving.c. Saves a checkpoint. With `behind`, it is written while the next steps run,
// if there is memory for a copy of the state. If a checkpoint cannot be written, this function,
// train_advance_saving and train_finish_saving warn and let the run continue, because a later save
// may succeed. Collective.
tri_status train_save(train_loop *loop, bool behind);
// Defined in saving.c. Ranks the weights that were just evaluated among the checkpoints: adds the
// figure to the checkpoint of this step or, if there is none, saves one if it is among the best
// that are kept. Collective.
tri_status train_rank_weights(train_loop *loop);
// Defined in saving.c. Adds the result of the test to the checkpoint of the last step, if there is
// one. On ranks other than 0 it does nothing; not collective.
void train_record_test(train_loop *loop);
// Defined in saving.c. How far this rank is with the checkpoint in progress. 0: it still works, or
// there is no checkpoint in progress; 1: its part is done; the number of ranks: it failed. Each
// step also sums this number over all ranks, so that no rank has to wait in order to learn how far
// the others are: train_advance_saving goes on once the sum is at least the number of ranks.
double train_saving_ready(const train_loop *loop);
// Defined in saving.c. Called after a step: commits the checkpoint if all ranks have written it,
// and ends the save if it is committed. `ready_sum`: the sum of train_saving_ready over all ranks.
// Collective.
tri_status train_advance_saving(train_loop *loop, double ready_sum);
// Defined in saving.c. Waits until the checkpoint in progress is complete. Collective.
tri_status train_finish_saving(train_loop *loop);
// Defined in saving.c. Abandons the checkpoint in progress, at the end of a run that failed. Not
// collective, because other ranks may be lost.
void train_abandon_saving(train_loop *loop);

// Defined in average.c. Whether the run averages its weights.
bool train_averages(const train_loop *loop);
// Defined in average.c. Finds when the averages begin, once last_step is known. TRI_BAD_INPUT: that
// depends on the length of the run, and the run has no end.
tri_status train_settle_average(train_loop *loop);
// Defined in average.c. Sets how much the step counts in the averages and, if swa sets it, its
// learning rate.
void train_average_step(const train_loop *loop, tri_step_input *input);
// Defined in average.c. Called when the latest step is counted in `progress`: counts it among the
// averaged ones.
void train_count_average(train_loop *loop);
// Defined in average.c. Called before an evaluation and after it: puts the averages in the place of
// the weights, and the weights back. If evaluations do not use averages or there are none yet, does
// nothing.
tri_status train_exchange_averages(const train_loop *loop);
// Defined in average.c. Whether `progress`, as a checkpoint has it, has averages of the run's kind.
bool train_has_average(const train_loop *loop);
// Defined in average.c. Called once `progress` is restored and train_settle_average was called:
// begins the averages again if none were restored, or if the run was made so long that they begin
// later.
void train_go_on_averaging(train_loop *loop);
// Defined in average.c. Warns of averages that never begin, and of what they do not average.
void train_warn_of_average(const train_loop *loop);

// Defined in cause.c. Called after a step that failed with TRI_NOT_FINITE, on all ranks: names in
// the message where the numbers that are not finite begin. Returns TRI_NOT_FINITE. Collective.
tri_status train_name_cause(train_loop *loop);
// Defined in cause.c. Warns of an evaluation (TRI_STEP_EVALUATE or TRI_STEP_TEST) whose loss is not
// finite, and names the first sample that has a number which is not finite. Collective.
tri_status train_warn_not_finite(tri_session *session, tri_step_shape shape, double loss);

// Defined in scale.c. Called before the first step: gives the loss scale and the count of updates
// in `progress` to the engine, which hands them to the device.
tri_status train_carry(const tri_session *session, tri_progress *progress);
// Defined in scale.c. Called after a step: takes the loss scale and the count of updates from its
// results, and reports an overflow. TRI_NOT_FINITE: gradients overflowed at the smallest allowed
// scale.
tri_status train_take_carried(const tri_session *session, tri_progress *progress,
                              const tri_step_output *out);

// Defined in scale.c. Tells of the first step that changed nothing because its loss counts nothing.
void train_tell_empty_step(train_loop *loop, const tri_step_output *out);

// Defined in sample_log.c. A log of the samples that each step took. If it is NULL, its functions
// do nothing.
typedef struct train_sample_log train_sample_log;
// Whether this rank is the first of those that together run the micro-batches of one replica, and
// so all read the same samples.
bool train_is_first_of_replica(const tri_session *session);
// Counts this attempt, and opens this rank's file of the sample log unless another rank logs the
// same samples. If log.samples is not set or the run writes no files (fast_dev_run), does nothing;
// if nothing can be written, warns. Collective.
tri_status train_sample_log_open(train_loop *loop);
// Appends one micro-batch to the log. `step` counts from 1, as in metrics.jsonl.
void train_sample_log_note(train_sample_log *log, int64_t step, const tri_data_batch *batch);
void train_sample_log_close(train_sample_log *log);

// Defined in observer.c. On rank 0: opens loop->observer, and tells how the run begins.
void train_open_observer(train_loop *loop);

// Defined in summary.c. Makes the table of the model's blocks (layers or groups of layers): a list
// of maps with `block`, `output` (its shape), and how many `parameters` it has, how many of them
// are `frozen`, and their `bytes`. It is empty if the model cannot be built once more.
const tri_tree *train_model_table(train_loop *loop);
// Shows the table.
void train_show_summary(train_loop *loop, const tri_tree *table);

// Defined in evaluate.c. Sums over all replicas how many samples of an evaluation were left out
// (data.on_error: skip). A sample belongs to one replica, all of whose ranks read it. Collective.
tri_status train_sum_left_out(const tri_session *session, int64_t own, int64_t *out);

// Defined in evaluate.c. Loads the weights of --checkpoint into the session's model, after checking
// that all ranks see the same ones and that they fit the recipe. Collective.
tri_status train_load_weights(tri_session *session, const tri_task *task, const char *checkpoint);

// Defined in feed.c. Brings micro-batches from a loader to an engine, and gives their memory back
// to the loader once the engine has copied them.
typedef struct train_feed {
    tri_loader *loader;
    tri_engine *engine;
    int field_count;
    // Micro-batches of the loader, the oldest first, at most tri_plan_held_batches. The engine was
    // given the first `given` of them and may still read these. It has looked at the others in
    // advance, and will be given them later.
    const tri_data_batch **held;
    int64_t held_count, given;
    train_sample_log *log; // NULL: samples are not logged
    int64_t step;          // number of the step that is being issued, for the log
    int64_t left_out;      // how many of the samples given are left out (tri_data_batch.left_out)
} train_feed;
// Makes a feed of the loader's micro-batches. Its member `held` lies in `arena`.
train_feed train_feed_make(tri_arena *arena, tri_session *session, tri_loader *loader);
// The functions `next`, `release` and `look` of tri_step_input, which the engine calls.
tri_status train_feed_next(void *context, tri_engine_batch *out);
void train_feed_release(void *context);
tri_status train_feed_look_ahead(void *context, int64_t ahead, tri_engine_batch *out);
// Defined in feed.c. The shape of a step, by its number in its epoch: the last one may have fewer
// samples.
tri_step_shape train_step_shape(const tri_session *session, int64_t step_in_epoch);
// Defined in feed.c. The input of step `step`, which takes its micro-batches from `feed`. Without
// learning rates and averages.
tri_step_input train_step_input(const tri_session *session, train_feed *feed, int64_t step,
                                int64_t step_in_epoch);
// The input of the step after those that are in flight, which takes its micro-batches from `feed`.
tri_step_input train_next_step(const train_loop *loop, train_feed *feed);
// Ends a feed after the last step, which returned `status`. Waits until the engine no longer reads
// the loader's memory, and returns all batches to the loader. If the step failed, abandons the
// engine, and returns the step's failure.
tri_status train_feed_end(train_feed *feed, tri_status status);

#endif

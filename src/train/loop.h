// What the files of the training loop share.
#ifndef TRIREME_TRAIN_LOOP_H
#define TRIREME_TRAIN_LOOP_H

#include "observe/straggler.h"
#include "observe/trace.h"
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
    tri_loader *train_loader, *val_loader;
    tri_state_view model, optimizer;
    tri_progress progress;
    tri_test_result test; // of this process
    tri_rate rate;
    int64_t steps_per_epoch, last_step;    // last_step: at which the run ends; -1: no such step
    int64_t saved_step;                    // of the newest checkpoint; -1: none
    double started_s, saved_s, training_s; // clock; training_s: spent in steps by this process
    int64_t started_samples;
    double train_loss, grad_norm; // of the latest step
    bool stop;                    // early stopping or max_time: the run is complete
    bool saves;                   // this run writes checkpoints
    tri_pending_save *saving;     // in progress; NULL: none
    tri_arena *saving_arena;
    int64_t saving_step;
    bool has_said_wait, has_said_room;
} train_loop;

// Before anything is created: finds what to go on from and refuses what may not be.
tri_status loop_prepare(train_loop *loop);
// Takes the run folder for this process, if it is there: rank 0, not collective. TRI_BAD_INPUT: it
// is in use. What cannot be locked for another reason may still hold a complete run: to write to it
// fails later.
tri_status loop_lock_folder(train_loop *loop);
// Refuses monitors of the recipe that name no metric, or one that the run will not have.
tri_status loop_check_monitors(const train_loop *loop);
// Evaluates, reports, and looks whether to stop early.
tri_status loop_evaluate(train_loop *loop);
// At the end of a complete run: evaluates the test data that were kept for it, if there are any.
tri_status loop_test(train_loop *loop);
// Whether early stopping has ended the run, in this process or before its checkpoint.
bool loop_has_waited(const train_loop *loop);

// saving.c. A failure to write a checkpoint is said and is no failure of the run.
// Writes one, or begins to; `behind` the next steps, if there is memory for a copy.
tri_status loop_save(train_loop *loop, bool behind);
// What this rank tells the others at each step, and what to do with the sum.
double loop_share_saving(const train_loop *loop);
tri_status loop_advance_saving(train_loop *loop, double shared);
// Waits for what is still being written. Collective.
tri_status loop_finish_saving(train_loop *loop);
// Not collective, at the end of a run that failed.
void loop_abandon_saving(train_loop *loop);

// The value of a monitored name ("val_loss", "val_accuracy", "train_loss"); false: not known.
bool loop_monitored(const train_loop *loop, const char *name, double *out);

// scale.c. The loss scale of the next step; 0: none.
double loop_scale(const tri_session *session, tri_progress *progress);
// After a step: the scale of the one after it, and whether this one counts as an update.
tri_status loop_follow_scale(const tri_session *session, tri_progress *progress, bool overflowed);

// summary.c. A table of the model's blocks: what they make, and their parameters.
void loop_show_summary(train_loop *loop);

// One evaluation, of TRI_STEP_EVALUATE or TRI_STEP_TEST; sums are over all replicas.
tri_status loop_run_evaluation(tri_session *session, tri_loader *loader, tri_step_shape shape,
                               tri_step_output *out);
void loop_fill_result(const tri_session *session, const tri_progress *progress,
                      tri_train_result *out);

// Feeds an engine from a loader.
typedef struct loop_feed {
    tri_loader *loader;
    const tri_data_batch *held;
    int field_count;
    // Micro-batches behind the held one that were looked at, as many as the loader lets us hold.
    const tri_data_batch **ahead;
    int64_t ahead_count;
} loop_feed;
// Of the training data; what is looked at lives in the session's arena.
loop_feed loop_feed_of(tri_session *session, tri_loader *loader);
tri_status loop_next(void *context, tri_engine_batch *out);
tri_status loop_look(void *context, int64_t ahead, tri_engine_batch *out);
void loop_release(loop_feed *feed);

#endif

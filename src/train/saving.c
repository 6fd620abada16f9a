// Saves the checkpoints of a run: at once, or while the next steps run. A save has stages: each
// rank writes its chunks of the state, and when all have written, rank 0 commits the checkpoint,
// which makes it visible. To save while training goes on, a rank first copies its state (a
// snapshot). The training loop calls train_save when a checkpoint is due, and train_advance_saving
// after each step. Read next: state.c (what is saved), checkpoint/save.c (how).
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "train/loop.h"
#include "train/signals.h"

#include <stdio.h>
#include <unistd.h>

// How much memory this rank may use for a snapshot of its state, from which the checkpoint is
// written while training continues. The ranks of a host share TRI_SNAPSHOT_PERCENT of its memory.
static int64_t snapshot_limit_bytes(const train_loop *loop) {
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0) return 1;
    return pages / 100 * TRI_SNAPSHOT_PERCENT * page_bytes / loop->session->identity.local_size + 1;
}

static void warn(const train_loop *loop, const char *text) {
    if (loop->session->identity.rank == 0) tri_log_line(TRI_LOG_WARNING, "%s", text);
}

// Ends a save. If the checkpoint could not be written (no space, a failing file system), warns and
// lets the run continue: this does not harm the training state, and a later save may succeed.
// Returns any other failure.
static tri_status end_saving(train_loop *loop, tri_status status) {
    loop->saving = NULL;
    tri_arena_destroy(loop->saving_arena);
    loop->saving_arena = NULL;
    if (status == TRI_OK) {
        loop->saved_step = loop->saving_step;
        train_deadline_note_save(&loop->deadline, loop->saving_worked_s);
    }
    if (status != TRI_IO && status != TRI_NO_SPACE && status != TRI_BAD_INPUT &&
        status != TRI_NOT_FOUND)
        return status;
    char text[TRI_MESSAGE_MAX_BYTES];
    snprintf(text, sizeof text, "no checkpoint of step %lld: %.400s; training continues",
             (long long)loop->saving_step, tri_error_message());
    warn(loop, text);
    return TRI_OK;
}

tri_status train_finish_saving(train_loop *loop) {
    return loop->saving ? end_saving(loop, tri_checkpoint_save_finish(loop->saving)) : TRI_OK;
}

void train_abandon_saving(train_loop *loop) {
    tri_checkpoint_save_abandon(loop->saving);
    loop->saving = NULL;
}

static tri_status prepare(void *loop) { return train_keep_folder(loop); }

static tri_status admit(void *health) { return tri_health_admit(health); }

static tri_checkpoint_monitor monitor_of(const train_loop *loop) {
    tri_checkpoint_monitor monitor = loop->ranked_by;
    monitor.is_known = train_monitored_value(loop, monitor.name, &monitor.value);
    return monitor;
}

static tri_status begin_saving(train_loop *loop, bool behind) {
    const tri_checkpoint_options *o = &loop->recipe->checkpoint;
    tri_arena *arena = tri_arena_create(loop->arena, "checkpoint");
    loop->saving_arena = arena;
    loop->saving_step = loop->saving_stage_step = loop->progress.step;
    return tri_checkpoint_save_begin(
        &(tri_checkpoint_save_request){
            .run_dir = loop->request->run_dir,
            .step = loop->progress.step,
            .model = &loop->model.source,
            .optimizer = loop->optimizer.source.count > 0 ? &loop->optimizer.source : NULL,
            .average = loop->progress.averaged > 0 ? &loop->average.source : NULL,
            .training = tri_progress_tree(arena, &loop->progress, loop->session->plan->graph),
            .recipe = tri_recipe_record(arena, loop->recipe, loop->request->run_dir),
            .monitor = monitor_of(loop),
            .save_top_k = o->save_top_k,
            .comm = loop->session->comm->size > 1 ? loop->session->comm : NULL,
            .snapshot_bytes = behind ? snapshot_limit_bytes(loop) : 0,
            .prepare = prepare,
            .prepare_context = loop,
            .admit = admit,
            .admit_context = loop->session->health,
            .worked_s = &loop->saving_worked_s,
        },
        &loop->saving);
}

static tri_ledger_mark enter(const train_loop *loop, const char *what) {
    return tri_ledger_enter(loop->session->comm->ledger, "SAVE", what);
}

// Warns once that training had to wait until the previous checkpoint was written. A short wait, as
// in a run of a few quick steps, is not worth a warning.
static void warn_of_wait(train_loop *loop, double seconds) {
    const double least_s = 1;
    if (loop->has_warned_overlap || seconds < least_s) return;
    char text[160];
    snprintf(text, sizeof text,
             "a checkpoint was due while the last one was still being written: training waited "
             "%s; save less often, or to a faster disk",
             tri_duration_text(seconds));
    warn(loop, text);
    loop->has_warned_overlap = true;
}

static tri_status save(train_loop *loop, bool behind) {
    if (loop->saving) {
        double before = tri_os_seconds();
        TRI_TRY(train_finish_saving(loop));
        warn_of_wait(loop, tri_os_seconds() - before);
    }
    tri_status status = begin_saving(loop, behind);
    if (status != TRI_OK) {
        status = end_saving(loop, status);
    } else if (!behind || !tri_checkpoint_save_is_async(loop->saving)) {
        if (behind && !loop->has_warned_memory)
            warn(loop, "no memory for a copy of the state: training waits while checkpoints are "
                       "written");
        loop->has_warned_memory = behind;
        status = train_finish_saving(loop);
    }
    return status;
}

tri_status train_tell_all(const train_loop *loop, int32_t *decision, const char *label) {
    return tri_comm_run(loop->session->comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                            .dtype = TRI_I32,
                                                            .count = 1,
                                                            .send = decision,
                                                            .recv = decision,
                                                            .label = label});
}

// Adds the figures of an evaluation to the checkpoint of the present step. False: there is none, or
// it cannot be written.
static bool amend(train_loop *loop, const tri_checkpoint_monitor *monitor) {
    if (loop->saved_step != loop->progress.step) return false;
    tri_arena *arena = tri_arena_create(loop->arena, "amended checkpoint");
    const tri_tree *training =
        tri_progress_tree(arena, &loop->progress, loop->session->plan->graph);
    tri_status status = admit(loop->session->health);
    if (status == TRI_OK)
        status = tri_checkpoint_amend(loop->request->run_dir, loop->progress.step, training,
                                      monitor, loop->recipe->checkpoint.save_top_k);
    if (status != TRI_OK && status != TRI_NOT_FOUND)
        tri_log_line(
            TRI_LOG_WARNING,
            "the checkpoint of step %lld lacks its evaluation, which a resume makes again: %s",
            (long long)loop->progress.step, tri_error_message());
    tri_arena_destroy(arena);
    return status == TRI_OK;
}

tri_status train_rank_weights(train_loop *loop) {
    const tri_checkpoint_options *o = &loop->recipe->checkpoint;
    tri_checkpoint_monitor monitor = monitor_of(loop);
    bool is_rank_0 = loop->session->identity.rank == 0;
    int32_t saves = is_rank_0 && !amend(loop, &monitor) &&
                    tri_checkpoint_ranks(loop->request->run_dir, &monitor, o->save_top_k);
    TRI_TRY(train_tell_all(loop, &saves, "ranking of a checkpoint"));
    bool run_ends = loop->last_step >= 0 && loop->progress.step >= loop->last_step;
    return saves ? train_save(loop, o->async && !run_ends) : TRI_OK;
}

void train_record_test(train_loop *loop) {
    tri_checkpoint_monitor monitor = monitor_of(loop);
    if (loop->saves && loop->session->identity.rank == 0) amend(loop, &monitor);
}

tri_status train_save(train_loop *loop, bool behind) {
    double before = tri_os_seconds();
    const char *earlier = tri_signals_wait_for("the checkpoint that is being written");
    tri_ledger_mark saving = enter(loop, behind ? "a copy of the state" : "a checkpoint");
    tri_status status = save(loop, behind);
    tri_ledger_end(loop->session->comm->ledger, saving);
    tri_signals_wait_for(earlier);
    loop->saved_s = tri_os_seconds();
    tri_observe_pause(loop->observer, loop->saved_s - before);
    return status;
}

// The number that this rank adds to a sum over all ranks: 1 if it is done with its part of the
// present stage (to write its chunks; later, on rank 0, to commit), the number of ranks if it has
// failed, else 0. So one sum is enough: if it is at least the number of ranks, all are ready or one
// has failed.
double train_saving_ready(const train_loop *loop) {
    if (!loop->saving) return 0;
    tri_save_state state = tri_checkpoint_save_state(loop->saving);
    if (state == TRI_SAVE_FAILED) return loop->session->comm->size;
    return state == TRI_SAVE_READY;
}

tri_status train_advance_saving(train_loop *loop, double ready_sum) {
    // ready_sum is the sum of train_saving_ready over all ranks. It was computed by the latest step
    // whose results the host has read (number progress.step - 1, from 0). The sum is stale if that
    // step was issued before the present stage of the save began (to write, or to commit).
    bool is_stale = loop->progress.step <= loop->saving_stage_step;
    if (!loop->saving || is_stale || ready_sum < loop->session->comm->size) return TRI_OK;
    loop->saving_stage_step = loop->progress.step + loop->in_flight;
    bool ended;
    tri_ledger_mark saving = enter(loop, "what all have written");
    tri_status status = tri_checkpoint_save_advance(loop->saving, &ended);
    tri_ledger_end(loop->session->comm->ledger, saving);
    return ended ? end_saving(loop, status) : status;
}

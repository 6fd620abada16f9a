// Checkpoints of a run: at once, or behind its steps.
#include "base/log.h"
#include "base/os.h"
#include "train/loop.h"

#include <stdio.h>
#include <unistd.h>

// Of this rank: all ranks of a host share what a snapshot may take of its memory.
static int64_t most_snapshot_bytes(const train_loop *loop) {
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0) return 1;
    return pages / 100 * TRI_SNAPSHOT_PERCENT * page_bytes / loop->session->identity.local_size + 1;
}

static void say(const train_loop *loop, const char *text) {
    if (loop->recipe->log.progress)
        tri_observe_message(loop->observer, "warning: %s", text);
    else if (loop->session->identity.rank == 0) // who wants no progress is told of trouble still
        tri_log(TRI_LOG_WARNING, "%s", text);
}

// What a save came to. One that could not be written is said, and is no failure of the run.
static tri_status settle(train_loop *loop, tri_status status) {
    loop->saving = NULL;
    tri_arena_destroy(loop->saving_arena);
    loop->saving_arena = NULL;
    if (status == TRI_OK) loop->saved_step = loop->saving_step;
    if (status != TRI_IO && status != TRI_NO_SPACE && status != TRI_BAD_INPUT &&
        status != TRI_NOT_FOUND)
        return status;
    char text[TRI_MESSAGE_MAX_BYTES];
    snprintf(text, sizeof text, "no checkpoint of step %lld: %.400s; training goes on",
             (long long)loop->saving_step, tri_error_message());
    say(loop, text);
    return TRI_OK;
}

tri_status loop_finish_saving(train_loop *loop) {
    return loop->saving ? settle(loop, tri_checkpoint_save_finish(loop->saving)) : TRI_OK;
}

void loop_abandon_saving(train_loop *loop) {
    tri_checkpoint_save_abandon(loop->saving);
    loop->saving = NULL;
}

static tri_status begin(train_loop *loop, bool behind) {
    const tri_checkpoint_options *o = &loop->recipe->checkpoint;
    tri_arena *arena = tri_arena_create(loop->arena, "checkpoint");
    bool stateless = loop->session->optimizer.state_count == 0;
    tri_checkpoint_monitor monitor = {.name = o->monitor,
                                      .larger_is_better = o->mode == TRI_MONITOR_MAX};
    monitor.is_known = loop_monitored(loop, o->monitor, &monitor.value);
    loop->saving_arena = arena;
    loop->saving_step = loop->progress.step;
    return tri_checkpoint_save_begin(
        &(tri_checkpoint_save_request){
            .run_dir = loop->request->run_dir,
            .step = loop->progress.step,
            .model = &loop->model.source,
            .optimizer = stateless ? NULL : &loop->optimizer.source,
            .training = tri_progress_tree(arena, &loop->progress, loop->session->plan->graph),
            .recipe = tri_recipe_emit(arena, loop->recipe),
            .monitor = monitor,
            .save_top_k = o->save_top_k,
            .comm = loop->session->comm->size > 1 ? loop->session->comm : NULL,
            .snapshot_bytes = behind ? most_snapshot_bytes(loop) : 0,
        },
        &loop->saving);
}

static tri_ledger_mark mark(const train_loop *loop, const char *what) {
    return tri_ledger_enter(loop->session->comm->ledger, "SAVE", what);
}

static tri_status save(train_loop *loop, bool behind) {
    if (loop->saving) {
        if (!loop->has_said_wait)
            say(loop, "a checkpoint is due while the one before is still being written: training "
                      "waits; save less often, or to a faster disk");
        loop->has_said_wait = true;
        TRI_TRY(loop_finish_saving(loop));
    }
    tri_status status = begin(loop, behind);
    if (status != TRI_OK) {
        status = settle(loop, status);
    } else if (!behind || !tri_checkpoint_save_is_async(loop->saving)) {
        if (behind && !loop->has_said_room)
            say(loop, "no memory for a copy of the state: training waits while checkpoints are "
                      "written");
        loop->has_said_room = behind;
        status = loop_finish_saving(loop);
    }
    return status;
}

tri_status loop_save(train_loop *loop, bool behind) {
    double before = tri_os_seconds();
    tri_ledger_mark saving = mark(loop, behind ? "a copy of the state" : "a checkpoint");
    tri_status status = save(loop, behind);
    tri_ledger_end(loop->session->comm->ledger, saving);
    loop->saved_s = tri_os_seconds();
    tri_observe_pause(loop->observer, loop->saved_s - before);
    return status;
}

// With the sum over all ranks: all are ready, or one of them has failed.
double loop_share_saving(const train_loop *loop) {
    if (!loop->saving) return 0;
    tri_save_state state = tri_checkpoint_save_state(loop->saving);
    if (state == TRI_SAVE_FAILED) return loop->session->comm->size;
    return state == TRI_SAVE_READY;
}

tri_status loop_advance_saving(train_loop *loop, double shared) {
    if (!loop->saving || shared < loop->session->comm->size) return TRI_OK;
    bool ended;
    tri_ledger_mark saving = mark(loop, "what all have written");
    tri_status status = tri_checkpoint_save_advance(loop->saving, &ended);
    tri_ledger_end(loop->session->comm->ledger, saving);
    return ended ? settle(loop, status) : status;
}

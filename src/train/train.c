// The training loop: opens a session, restores the state, runs step after step, and decides after
// each step what is due: metrics, an evaluation, a checkpoint, the end. A step is issued, is then
// in flight, and is collected when its results are read, on an asynchronous device after the next
// one.
//
// Read next: session.c (what a run needs), resume.c (how a run continues), saving.c (how a
// checkpoint is saved). feed.c supplies a step's samples and rate.c its learning rate.
#include "base/cpu_time.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "recipe/idle.h"
#include "recipe/steps.h"
#include "train/loop.h"
#include "train/signals.h"
#include "train/tell.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Numbers that each step sums over all ranks. With them all ranks learn what only one rank has
// noticed, and so take the same decisions.
enum {
    SHARED_SIGNAL,
    SHARED_JOB_ENDS,
    SHARED_TIME_IS_UP,
    SHARED_TIME_TO_SAVE,
    SHARED_SAVING,
    SHARED_LOST_FOLDER,
    SHARED_DATA_S // seconds for which the loader made the rank wait
};

static bool is_due(int64_t count, int64_t every) { return every > 0 && count % every == 0; }

// What is due after a step. This is found out before the next step is issued. If an evaluation or a
// checkpoint is due, the next step has to wait, because it would change the state that they need.
typedef struct train_due {
    bool evaluation, checkpoint;
    bool epoch_ends, run_ends;
} train_due;

// Finds what is due after the step that comes `ahead` steps after the one whose results were read
// last.
static train_due due_after(const train_loop *loop, int64_t ahead) {
    const tri_checkpoint_options *c = &loop->recipe->checkpoint;
    const tri_progress *p = &loop->progress;
    int64_t step = p->step + ahead, step_in_epoch = p->step_in_epoch + ahead;
    train_due due = {.epoch_ends = step_in_epoch == loop->steps_per_epoch,
                     .run_ends = loop->stop || (loop->last_step >= 0 && step >= loop->last_step)};
    bool evaluate = train_is_evaluated(loop, p->epoch, step, step_in_epoch);
    // A run ends with an evaluation, so that its result is that of the final weights.
    due.evaluation = (evaluate || due.run_ends) && loop->session->val_data;
    due.checkpoint = is_due(step, c->every_n_steps) ||
                     (due.epoch_ends && is_due(p->epoch + 1, c->every_n_epochs));
    return due;
}

bool train_evaluation_is_due(const train_loop *loop, int64_t ahead) {
    return due_after(loop, ahead).evaluation;
}

bool train_checkpoint_is_due(const train_loop *loop, int64_t ahead) {
    return due_after(loop, ahead).checkpoint;
}

// Saves the checkpoint and makes the evaluation that are due after the latest step. No step is in
// flight then, so the weights do not change.
static tri_status finish_step(train_loop *loop) {
    tri_progress *p = &loop->progress;
    train_due due = due_after(loop, 0);
    bool save = due.checkpoint || loop->is_time_to_save;
    loop->is_time_to_save = false;
    p->evaluation_due = due.evaluation;
    if (due.epoch_ends) {
        p->epoch++;
        p->step_in_epoch = 0;
    }
    if (!loop->session->val_data) train_follow_monitors(loop);
    // The checkpoint is committed before the evaluation, which may take long: whatever ends the
    // process meanwhile, only the evaluation is made again. The last checkpoint is written at once
    // too, because no step follows during which it could be written.
    bool behind = loop->recipe->checkpoint.async && !due.run_ends && !due.evaluation;
    if (save && loop->saves) TRI_TRY(train_save(loop, behind));
    return train_evaluate_if_due(loop);
}

void train_share_signals(double numbers[TRI_MAX_CALLER_NUMBERS]) {
    numbers[SHARED_SIGNAL] = tri_signals_seen() != 0;
    numbers[SHARED_JOB_ENDS] = tri_signals_job_ends();
}

static void share_decisions(train_loop *loop, double numbers[TRI_MAX_CALLER_NUMBERS]) {
    double now = tri_os_seconds();
    double interval = loop->recipe->checkpoint.train_time_interval;
    train_share_signals(numbers);
    numbers[SHARED_SAVING] = train_saving_ready(loop);
    double data_s = 1e-9 * (double)tri_loader_waited_ns(loop->train_loader);
    numbers[SHARED_DATA_S] = data_s - loop->data_s;
    loop->data_s = data_s;
    if (loop->session->identity.rank != 0) return;
    numbers[SHARED_JOB_ENDS] += train_job_ends(loop);
    numbers[SHARED_LOST_FOLDER] = loop->lost_folder || train_lock_noticed_loss(loop->lock);
    numbers[SHARED_TIME_IS_UP] = loop->recipe->trainer.max_time > 0 &&
                                 now - loop->started_s >= loop->recipe->trainer.max_time;
    numbers[SHARED_TIME_TO_SAVE] = interval > 0 && now - loop->saved_s >= interval;
}

// Returns the shape of the step that comes `ahead` steps after the one whose results were read
// last: the last step of an epoch may have fewer samples.
static tri_step_shape shape_of(const train_loop *loop, int64_t ahead) {
    return train_step_shape(loop->session, loop->progress.step_in_epoch + ahead);
}

// Adds the time since `begun_s` to the time of the steps. It is called after a step was issued and
// again after it was collected: usually issuing takes the time, but on a device that works
// asynchronously, issuing returns at once and collecting takes it.
static void note_time(train_loop *loop, double begun_s, double waited_s) {
    double seconds = tri_os_seconds() - begun_s;
    loop->training_s += seconds;
    loop->waited_s += tri_session_waited_s(loop->session) - waited_s;
    train_deadline_note_step(&loop->deadline, seconds);
}

tri_step_input train_next_step(const train_loop *loop, train_feed *feed) {
    const tri_progress *p = &loop->progress;
    tri_step_input input = train_step_input(loop->session, feed, p->step + loop->in_flight,
                                            p->step_in_epoch + loop->in_flight);
    for (int i = 0; i <= tri_engine_steps_ahead(loop->session->engine); i++)
        input.lr[i] = tri_rate_at(&loop->rate, p->updates + i, p->epoch);
    train_average_step(loop, &input);
    return input;
}

static tri_status issue_step(train_loop *loop, train_feed *feed) {
    tri_step_input input = train_next_step(loop, feed);
    share_decisions(loop, input.caller_numbers);
    feed->step = input.step + 1;
    double before = tri_os_seconds(), waited = tri_session_waited_s(loop->session);
    TRI_TRY(tri_engine_issue(loop->session->engine, &input));
    note_time(loop, before, waited);
    loop->in_flight++;
    return TRI_OK;
}

// Reports the step whose results are `out`. One that ends the run (`fails`) is not counted in
// `progress`.
static void report_step(const train_loop *loop, const tri_step_output *out, bool fails) {
    const tri_progress *p = &loop->progress;
    int64_t samples = fails ? loop->session->plan->steps[shape_of(loop, 0)].samples : 0;
    tri_ledger *ledger = loop->session->comm->ledger;
    tri_ledger_mark writing = tri_ledger_enter(ledger, TRI_LEDGER_METRICS, NULL);
    tri_observe_train(loop->observer, (tri_train_event){.step = p->step + fails,
                                                        .epoch = p->epoch,
                                                        .loss = train_mean(out, 0),
                                                        .lr = out->lr,
                                                        .grad_norm = out->gradient_norm,
                                                        .samples = p->samples + samples,
                                                        .data_s = out->caller_sums[SHARED_DATA_S] /
                                                                  loop->session->comm->size,
                                                        .ends_run = fails});
    tri_ledger_end(ledger, writing);
}

// Reports a step that ends the run because of numbers that are not finite, and returns its status
// with its message, which the failure of a sink would replace.
static tri_status report_failure(const train_loop *loop, const tri_step_output *out,
                                 tri_status status) {
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    report_step(loop, out, true);
    return TRI_FAIL(status, "%s", why);
}

void train_take_signals(train_loop *loop, const double sums[TRI_MAX_CALLER_NUMBERS]) {
    loop->job_ends = loop->job_ends || sums[SHARED_JOB_ENDS] > 0;
    if (sums[SHARED_SIGNAL] > 0) train_interrupt(loop, "by a signal");
}

// Decides by the sums over all ranks (share_decisions) whether this process ends.
static void take_decisions(train_loop *loop, const double sums[TRI_MAX_CALLER_NUMBERS]) {
    train_take_signals(loop, sums);
    if (loop->job_ends) train_interrupt(loop, "before the job's time is over");
    if (sums[SHARED_LOST_FOLDER] > 0)
        train_interrupt(loop, "because its folder was removed or renamed");
    if (sums[SHARED_TIME_IS_UP] == 0) return;
    // Without another limit, max_time is what completes the run.
    if (loop->last_step < 0)
        loop->stop = true;
    else if (loop->progress.step < loop->last_step)
        train_interrupt(loop, "by trainer.max_time");
}

void train_interrupt(train_loop *loop, const char *cause) {
    if (!loop->interruption) loop->interruption = cause;
}

// Adds the loss of a step of so many samples to those of the metric train_loss. A weighted sum of
// losses has no count of its own, so it counts by the samples. A loss that is not finite, as where
// a scaled one overflows, is left out.
static void add_loss(train_loop *loop, const tri_step_output *out, int64_t samples) {
    tri_progress *p = &loop->progress;
    bool was_evaluated = p->val.is_known && p->val.step == p->step && train_evaluation_counts(loop);
    if (p->step_in_epoch == 0 || was_evaluated) p->loss_sum = p->loss_count = 0;
    if (!isfinite(out->sum[0])) return;
    double each = loop->session->plan->graph->term_count > 0 ? (double)samples : 1;
    p->loss_sum += each * out->sum[0];
    p->loss_count += each * out->count[0];
}

// Waits for the oldest step in flight and handles its results: logs them, decides whether to stop.
static tri_status collect_step(train_loop *loop) {
    tri_session *s = loop->session;
    tri_progress *p = &loop->progress;
    tri_step_output out;
    double before = tri_os_seconds(), waited = tri_session_waited_s(s);
    loop->in_flight--;
    tri_status status = tri_engine_collect(s->engine, &out);
    if (status == TRI_OK) status = train_take_carried(s, p, &out);
    if (status == TRI_NOT_FINITE) return report_failure(loop, &out, status);
    TRI_TRY(status);
    train_tell_empty_step(loop, &out);
    if (!loop->has_stepped) tri_log_stage("first step");
    loop->has_stepped = true;
    note_time(loop, before, waited);
    const char *slow = tri_straggler_look(loop->straggler, p->step + 1);
    if (slow) tri_log_line(TRI_LOG_WARNING, "%s", slow);
    int64_t samples = s->plan->steps[shape_of(loop, 0)].samples;
    p->samples += samples;
    add_loss(loop, &out, samples);
    p->step++;
    p->step_in_epoch++;
    train_count_average(loop);
    loop->train_loss = train_mean(&out, 0);
    loop->grad_norm = out.gradient_norm;
    report_step(loop, &out, false);
    take_decisions(loop, out.caller_sums);
    loop->is_time_to_save = loop->is_time_to_save || out.caller_sums[SHARED_TIME_TO_SAVE] > 0;
    TRI_TRY(train_lock_check(loop->lock));
    TRI_TRY(train_advance_saving(loop, out.caller_sums[SHARED_SAVING]));
    return loop->in_flight == 0 ? finish_step(loop) : TRI_OK;
}

static bool is_complete(const train_loop *loop) {
    bool has_stepped = loop->last_step >= 0 && loop->progress.step >= loop->last_step;
    return (loop->stop || has_stepped) && !loop->progress.evaluation_due;
}

// Whether a step may be issued now. On an asynchronous device it may be issued while another step
// is in flight, unless something is due after the step in flight. After a decision to end or to
// save no step is issued, because the run ends or saves only when no step is in flight.
static bool may_issue(const train_loop *loop) {
    int64_t last = loop->last_step, ahead = loop->in_flight;
    if (loop->interruption || loop->stop || loop->is_time_to_save) return false;
    if (train_reaches_until_epoch(loop)) return false;
    if (last >= 0 && loop->progress.step + ahead >= last) return false;
    if (ahead == 0) return true;
    if (ahead > tri_engine_steps_ahead(loop->session->engine)) return false;
    train_due due = due_after(loop, ahead);
    return !due.evaluation && !due.checkpoint && !due.epoch_ends;
}

// What comes before the first step of this process: the sanity evaluation, and an evaluation that
// an earlier process has not completed.
static tri_status evaluate_first(train_loop *loop) {
    tri_session *s = loop->session;
    if (s->val_data) TRI_TRY(tri_session_val_loader(s, &loop->val_loader));
    bool is_sane = loop->recipe->trainer.num_sanity_val_steps == 0 || loop->progress.step > 0;
    tri_evaluation unused; // the result is not used: this only checks that evaluation works
    if (!is_sane && s->val_data)
        TRI_TRY(train_run_evaluation(loop, s, loop->val_loader, TRI_STEP_EVALUATE, &unused));
    return loop->interruption ? TRI_OK : train_evaluate_if_due(loop);
}

// Ends a process that has made its last step: completes and saves the checkpoint, and tests a run
// that is complete.
static tri_status end_steps(train_loop *loop) {
    const tri_progress *p = &loop->progress;
    TRI_TRY(train_finish_saving(loop));
    bool complete = is_complete(loop);
    if (train_reaches_until_epoch(loop))
        train_interrupt(loop, tri_arena_printf(loop->arena, "by --until-epoch %lld",
                                               (long long)loop->request->until_epoch));
    bool due = !complete || loop->recipe->checkpoint.save_last;
    if (loop->saves && due && loop->saved_step != p->step) TRI_TRY(train_save(loop, false));
    bool is_lost = loop->saves && due && loop->saved_step != p->step;
    if (complete && is_lost)
        return TRI_FAIL(TRI_IO,
                        "the run is complete at step %lld, but its last checkpoint could not "
                        "be written; make room and run the same command again",
                        (long long)p->step);
    if (complete) loop->interruption = NULL;
    if (complete) TRI_TRY(train_test(loop));
    if (!loop->interruption) return train_check_folder(loop);
    const char *cause = loop->interruption;
    if (!loop->saves)
        return TRI_FAIL(TRI_IO, "stopped %s at step %lld; fast_dev_run saves nothing", cause,
                        (long long)p->step);
    if (is_lost)
        return TRI_FAIL(TRI_IO, "stopped %s at step %lld, and no checkpoint of it could be written",
                        cause, (long long)p->step);
    if (train_starts_again(loop))
        return TRI_FAIL(TRI_STOPPED,
                        "stopped %s at step %lld, with a checkpoint, from which the job goes on "
                        "when it starts again",
                        cause, (long long)p->step);
    return TRI_FAIL(TRI_STOPPED,
                    "stopped %s at step %lld, with a checkpoint: run the same command again%s to "
                    "resume",
                    cause, (long long)p->step, train_flag_to_drop(loop));
}

static tri_status run_steps(train_loop *loop) {
    tri_session *s = loop->session;
    tri_progress *p = &loop->progress;
    TRI_TRY(train_carry(s, p));
    TRI_TRY(tri_session_train_loader(s, p->epoch, p->step_in_epoch, &loop->train_loader));
    TRI_TRY(evaluate_first(loop));
    train_feed feed = train_feed_make(s->arena, s, loop->train_loader);
    feed.log = loop->sample_log;
    tri_status status = TRI_OK;
    while (status == TRI_OK) {
        if (may_issue(loop))
            status = issue_step(loop, &feed);
        else if (loop->in_flight > 0)
            status = collect_step(loop);
        else
            break;
    }
    status = train_feed_end(&feed, status);
    if (status != TRI_NOT_FINITE) return status == TRI_OK ? end_steps(loop) : status;
    // All ranks get this status in the same step, so together they can still complete the
    // checkpoint in progress.
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    (void)train_finish_saving(loop);
    (void)TRI_FAIL(status, "%s", why);
    // The search for anomalies has named the cause already.
    return loop->recipe->trainer.detect_anomaly ? status : train_name_cause(loop);
}

// Opens the trace on all ranks, and on rank 0 the run's files, which only rank 0 writes.
static tri_status open_files(train_loop *loop) {
    const char *trace = loop->request->trace;
    if (trace) TRI_TRY(tri_trace_open(loop->session->comm, trace, &loop->trace));
    bool is_rank_0 = loop->session->identity.rank == 0;
    return is_rank_0 && loop->saves ? train_open_folder(loop) : TRI_OK;
}

// Locks a run folder that has a .lock, because another process may be writing there; then restores
// its state or begins a new run. A folder without a .lock is locked later, so that a rejected run
// leaves no .lock behind: by train_restore if the folder exists, by train_open_folder if it is new.
static tri_status lock_and_restore(train_loop *loop) {
    loop->saves = loop->recipe->trainer.fast_dev_run == 0;
    TRI_TRY(train_settle_start(loop));
    TRI_TRY(train_await_folder(loop));
    bool has_lock = loop->saves && train_folder_has(loop, ".lock");
    tri_status status = train_check_outputs(loop);
    if (status == TRI_OK && has_lock) status = train_lock_folder(loop);
    TRI_TRY(tri_tell_and_agree(loop->session->comm, status, "run folder"));
    TRI_TRY(train_restore(loop));
    train_settle_monitors(loop);
    return TRI_OK;
}

static tri_status settle_length(train_loop *loop) {
    loop->last_step =
        tri_steps_of_run(&loop->recipe->trainer, loop->steps_per_epoch, loop->extra_steps);
    loop->rate = (tri_rate){.schedule = &loop->recipe->schedule,
                            .lr = loop->recipe->optimizer.lr,
                            .steps_per_epoch = loop->steps_per_epoch,
                            .factor = loop->progress.plateau.factor,
                            .total_updates = loop->last_step > 0 ? loop->last_step : 0};
    TRI_TRY(train_settle_average(loop));
    return loop->last_step < 0 ? tri_rate_check(&loop->rate) : TRI_OK;
}

static tri_status run(train_loop *loop, tri_train_result *out) {
    const tri_session *s = loop->session;
    // The search for stragglers compares only ranks of the same pipeline stage, because these do
    // the same work.
    tri_ledger_set_peers(s->comm->ledger,
                         tri_mesh_coordinate(&s->mesh, s->identity.rank, TRI_AXIS_PIPELINE));
    loop->steps_per_epoch = tri_session_steps_per_epoch(s);
    TRI_TRY(settle_length(loop));
    tri_state_view_model(loop->arena, loop->session->engine, false, &loop->model);
    tri_state_view_optimizer(loop->arena, loop->session->engine, &loop->optimizer);
    tri_state_view_average(loop->arena, loop->session->engine, &loop->average);
    TRI_TRY(train_check_monitors(loop));
    tri_ledger_mark restoring = tri_ledger_enter(s->comm->ledger, "restoring the state", NULL);
    tri_status prepared = lock_and_restore(loop);
    tri_ledger_end(s->comm->ledger, restoring);
    TRI_TRY(prepared);
    TRI_TRY(settle_length(loop)); // the epochs so far may have been of another length
    train_go_on_averaging(loop);
    loop->stop = train_stopped_by(loop) != NULL;
    out->was_complete = is_complete(loop) && !train_test_is_due(loop) && loop->progress.step > 0;
    if (!out->was_complete) {
        tri_ledger_mark opening = tri_ledger_enter(s->comm->ledger, "opening the run folder", NULL);
        tri_status opened = open_files(loop);
        tri_ledger_end(s->comm->ledger, opening);
        TRI_TRY(tri_tell_and_agree(s->comm, opened, "opening of the run folder"));
        if (loop->session->identity.rank == 0) {
            tri_recipe_log_notes(loop->recipe);
            tri_recipe_warn_idle(loop->recipe, &s->mesh);
            tri_task_warn_idle(&s->task_options, loop->recipe, s->plan->graph, s->task->name);
            tri_task_warn_idle_patterns(s->optimizer.groups, s->optimizer.group_count,
                                        s->plan->graph);
            train_warn_of_length(loop);
            tri_session_warn(loop->session);
        }
        train_open_observer(loop);
        train_tell_changes(loop);
        TRI_TRY(train_sample_log_open(loop));
        loop->straggler = tri_straggler_create(loop->session->comm);
        loop->started_s = loop->saved_s = tri_os_seconds();
        loop->started_samples = loop->progress.samples;
        train_watch_job(loop);
        tri_signals_watch();
        tri_cpu_time before;
        bool known = tri_cpu_time_read(&before);
        tri_status status = run_steps(loop);
        if (known) train_fill_starved_cores(&before, out);
        tri_trace_finish(loop->trace, status == TRI_OK || status == TRI_STOPPED);
        loop->trace = NULL;
        const char *reason = loop->interruption ? loop->interruption : loop->end_reason;
        bool has_failed = status != TRI_OK && status != TRI_STOPPED;
        // A full disk, say, must not replace the message.
        const char *why = tri_arena_strdup(loop->arena, tri_error_message());
        tri_observe_end(loop->observer, status, has_failed && !reason ? why : reason,
                        loop->progress.step, tri_actions_tree(loop->arena, s->comm));
        if (status != TRI_OK) return TRI_FAIL(status, "%s", why);
        out->wall_s = tri_os_seconds() - loop->started_s;
        snprintf(out->end_reason, sizeof out->end_reason, "%s", reason ? reason : "");
    }
    train_fill_result(loop->session, &loop->progress, out);
    train_fill_run_result(loop, out);
    return TRI_OK;
}

static void watch_start(const tri_train_request *request) {
    char last[PATH_MAX];
    tri_identity identity = {.rank = 0};
    // If the identity is not known, the session fails, and reports it.
    (void)tri_identity_read((const char *(*)(const char *))getenv, &identity);
    snprintf(last, sizeof last, "%s/checkpoints/last", request->run_dir);
    bool saves = request->recipe->trainer.fast_dev_run == 0;
    tri_signals_watch_start(last, saves ? request->backends->end : NULL, identity.rank == 0,
                            saves && train_job_may_start_again(request->recipe));
}

tri_status tri_train(const tri_train_request *request, tri_train_result *out) {
    *out = (tri_train_result){.rank = 0};
    tri_session *session;
    watch_start(request);
    TRI_TRY(tri_session_open(&(tri_session_request){.backends = request->backends,
                                                    .recipe = request->recipe,
                                                    .task = request->task,
                                                    .device = request->device,
                                                    .train = true,
                                                    .evaluate = true},
                             &session));
    tri_recipe recipe = *request->recipe;
    // The session computes batch.global for these ranks if the recipe leaves it open (auto); the
    // recipe in the run folder and in checkpoints has to have this number.
    recipe.batch.global = session->recipe->batch.global;
    train_loop loop = {
        .arena = session->arena, .request = request, .recipe = &recipe, .session = session};
    loop.resume = request->resume;
    tri_status status = tri_session_tell(session, run(&loop, out));
    // The engine must not read the loaders' memory any more, which is freed below.
    if (status != TRI_OK) tri_engine_abandon(session->engine);
    train_abandon_saving(&loop);
    tri_trace_finish(loop.trace, false);
    tri_straggler_destroy(loop.straggler);
    train_sample_log_close(loop.sample_log);
    tri_observer_destroy(loop.observer);
    tri_loader_destroy(loop.train_loader);
    tri_loader_destroy(loop.val_loader);
    train_lock_release(loop.lock);
    tri_session_close(session);
    if (status != TRI_STOPPED) return status;
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    train_start_again(&loop);
    return TRI_FAIL(status, "%s", why);
}

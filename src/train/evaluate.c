// Evaluates during training and in `trireme eval`, keeps the monitored metrics (those by which the
// recipe chooses checkpoints and stops early), and decides about early stopping. The training loop
// (train.c) calls train_evaluate after steps and train_test at the end of a run.
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "train/loop.h"
#include "train/origin.h"
#include "train/signals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const tri_val_source_names[] = {[TRI_VAL_NONE] = "nothing",
                                            [TRI_VAL_SPLIT] = "validation",
                                            [TRI_VAL_TEST] = "test",
                                            [TRI_VAL_TRAINING] = "training"};

static bool has_signal(void *context) {
    (void)context;
    return tri_signals_seen() != 0;
}

tri_status train_run_evaluation(train_loop *loop, tri_session *session, tri_loader *loader,
                                tri_step_shape shape, tri_step_output *out) {
    tri_arena *arena = tri_arena_create(NULL, "evaluation");
    train_feed feed = train_feed_make(arena, session, loader);
    tri_step_input input = {.shape = shape,
                            .next = train_feed_next,
                            .release = train_feed_release,
                            .is_cancelled = loop ? has_signal : NULL,
                            .context = &feed};
    const char *earlier = tri_signals_wait_for("the running batch of an evaluation");
    tri_ledger_mark mark = tri_ledger_enter(session->comm->ledger, "evaluation", NULL);
    tri_status status = tri_engine_step(session->engine, &input, out);
    tri_ledger_end(session->comm->ledger, mark);
    status = train_feed_end(&feed, status);
    tri_signals_wait_for(earlier);
    tri_arena_destroy(arena);
    if (status != TRI_OK) return status;
    if (out->caller_sums[0] > 0) {
        train_interrupt(loop, "by a signal");
        return TRI_OK;
    }
    bool is_known = isfinite(out->sum[0]) || out->count[0] == 0;
    if (is_known || (loop && loop->has_warned_not_finite)) return TRI_OK;
    if (loop) loop->has_warned_not_finite = true;
    return train_warn_not_finite(session, shape, train_mean(out, 0));
}

bool train_monitored_value(const train_loop *loop, const char *name, double *out) {
    const tri_graph *g = loop->session->plan->graph;
    if (!name) return false;
    if (!strcmp(name, "train_loss")) {
        *out = loop->progress.loss_sum / loop->progress.loss_count;
        return isfinite(*out);
    }
    // An evaluation is valid only for the weights of its step, because later steps change them.
    bool is_fresh = loop->progress.has_val && loop->progress.val_step == loop->progress.step;
    if (strncmp(name, "val_", 4) != 0 || !is_fresh) return false;
    if (!strcmp(name + 4, "loss")) {
        *out = loop->progress.val_loss;
        return isfinite(*out);
    }
    for (int i = 1; i < g->metric_count; i++) {
        if (strcmp(name + 4, g->metrics[i].name) != 0) continue;
        *out = loop->progress.val[i];
        return isfinite(*out);
    }
    return false;
}

static tri_status check_monitor(const train_loop *loop, const char *key, const char *name) {
    const tri_graph *g = loop->session->plan->graph;
    const char *known[TRI_MAX_METRICS + 1] = {"train_loss", "val_loss"};
    int count = 2;
    for (int i = 1; i < g->metric_count; i++)
        known[count++] = tri_arena_printf(loop->arena, "val_%s", g->metrics[i].name);
    const char *list = "";
    for (int i = 0; i < count; i++) {
        if (!strcmp(known[i], name)) return TRI_OK;
        list = tri_arena_printf(loop->arena, "%s%s%s", list, i ? ", " : "", known[i]);
    }
    return TRI_FAIL(TRI_BAD_INPUT, "%s: the run has no metric '%s'; it has %s", key, name, list);
}

tri_status train_check_monitors(const train_loop *loop) {
    const tri_recipe *r = loop->recipe;
    const char *early = r->trainer.early_stopping.monitor;
    const char *best = r->checkpoint.monitor;
    if (best) TRI_TRY(check_monitor(loop, "checkpoint.monitor", best));
    if (early) TRI_TRY(check_monitor(loop, "trainer.early_stopping.monitor", early));
    if (loop->session->val_data) return TRI_OK;
    // The default, val_loss, is no wish of the user.
    bool needs_value = best && r->checkpoint.save_top_k != 0 && !strncmp(best, "val_", 4) &&
                       strcmp(best, "val_loss") != 0;
    if (!early && !needs_value) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: the run has no evaluation: the data has no validation or test samples, or "
                    "trainer.limit_val_batches is 0",
                    early ? "trainer.early_stopping" : "checkpoint.monitor");
}

// Describes the samples from which a monitored metric is computed: "the 23 test samples"; NULL: it
// is no metric of an evaluation.
static const char *samples_of(const train_loop *loop, const char *metric) {
    const tri_session *s = loop->session;
    if (!metric || strncmp(metric, "val_", 4) != 0 || !s->val_data) return NULL;
    return tri_arena_printf(loop->arena, "the %lld %s samples",
                            (long long)tri_sampler_step_size(&s->val_sampler, 0),
                            tri_val_source_names[s->val_source]);
}

void train_settle_monitors(train_loop *loop) {
    const tri_checkpoint_options *c = &loop->recipe->checkpoint;
    const tri_early_stopping_options *o = &loop->recipe->trainer.early_stopping;
    tri_progress *p = &loop->progress;
    loop->ranked_by = (tri_checkpoint_monitor){.name = c->monitor,
                                               .samples = samples_of(loop, c->monitor),
                                               .larger_is_better = c->mode == TRI_MONITOR_MAX};
    if (!o->monitor) return;
    const char *samples = samples_of(loop, o->monitor);
    loop->stops_by =
        tri_arena_printf(loop->arena, "%s (%s)%s%s", o->monitor, tri_monitor_modes[o->mode],
                         samples ? " of " : "", samples ? samples : "");
    // Checkpoints of older versions do not name what their best value is of.
    bool differs = p->has_best && p->best_of && strcmp(p->best_of, loop->stops_by) != 0;
    if (differs && loop->session->identity.rank == 0)
        tri_log(TRI_LOG_INFO,
                "trainer.early_stopping begins again: its best value so far is of %s, and from now "
                "on it follows %s",
                p->best_of, loop->stops_by);
    if (!differs) return;
    p->has_best = false;
    p->evaluations_since_best = 0;
}

bool train_has_stopped_early(const train_loop *loop) {
    const tri_early_stopping_options *o = &loop->recipe->trainer.early_stopping;
    const tri_progress *p = &loop->progress;
    return o->monitor && p->evaluations_since_best > 0 && p->evaluations_since_best >= o->patience;
}

static void update_early_stopping(train_loop *loop) {
    const tri_early_stopping_options *o = &loop->recipe->trainer.early_stopping;
    tri_progress *p = &loop->progress;
    double value;
    if (!o->monitor) return;
    // A value that is not finite is none better.
    bool is_finite = train_monitored_value(loop, o->monitor, &value);
    double gain = !is_finite ? 0 : o->mode == TRI_MONITOR_MIN ? p->best - value : value - p->best;
    if (is_finite && (!p->has_best || gain > o->min_delta)) {
        p->has_best = true;
        p->best = value;
        p->best_of = loop->stops_by;
        p->evaluations_since_best = 0;
        return;
    }
    p->evaluations_since_best++;
    if (!train_has_stopped_early(loop)) return;
    loop->stop = true;
    const char *evaluations = tri_counted(p->evaluations_since_best, "evaluation");
    if (p->has_best)
        tri_observe_message(loop->observer, "%s has not improved on %.6g for %s: stopping",
                            o->monitor, p->best, evaluations);
    else
        tri_observe_message(loop->observer, "%s has had no finite value for %s: stopping",
                            o->monitor, evaluations);
}

// The epoch to which the latest step belongs.
static int64_t latest_epoch(const train_loop *loop) {
    int64_t step = loop->progress.step - loop->extra_steps;
    return step > 0 ? (step - 1) / loop->steps_per_epoch : 0;
}

double train_mean(const tri_step_output *sums, int i) {
    double mean = sums->sum[i] / sums->count[i];
    return isnan(mean) ? (double)NAN : mean; // 0 / 0 may be a negative NaN, printed as -nan
}

static void take_evaluation(train_loop *loop, const tri_step_output *sums) {
    tri_session *s = loop->session;
    const tri_graph *g = s->plan->graph;
    tri_progress *p = &loop->progress;
    tri_metric_value metrics[TRI_MAX_METRICS];
    p->evaluation_due = false;
    p->has_val = true;
    p->val_step = p->step;
    p->val_loss = train_mean(sums, 0);
    p->val_samples = tri_sampler_step_size(&s->val_sampler, 0);
    for (int i = 1; i < g->metric_count; i++) {
        p->val[i] = train_mean(sums, i);
        metrics[i - 1] = (tri_metric_value){g->metrics[i].name, p->val[i]};
    }
    tri_observe_val(loop->observer, (tri_val_event){.step = p->step,
                                                    .epoch = latest_epoch(loop),
                                                    .loss = p->val_loss,
                                                    .metrics = metrics,
                                                    .metric_count = g->metric_count - 1,
                                                    .samples = p->val_samples});
    update_early_stopping(loop);
}

tri_status train_evaluate_if_due(train_loop *loop) {
    tri_session *s = loop->session;
    tri_step_output sums;
    // A resumed run may have no validation data any more.
    if (!s->val_data) loop->progress.evaluation_due = false;
    if (!loop->progress.evaluation_due || loop->interruption) return TRI_OK;
    double before = tri_os_seconds();
    TRI_TRY(train_run_evaluation(loop, s, loop->val_loader, TRI_STEP_EVALUATE, &sums));
    train_deadline_note_pause(&loop->deadline, tri_os_seconds() - before);
    if (loop->interruption) return TRI_OK;
    take_evaluation(loop, &sums);
    return loop->saves ? train_rank_weights(loop) : TRI_OK;
}

tri_status train_test(train_loop *loop) {
    tri_session *s = loop->session;
    const tri_graph *g = s->plan->graph;
    tri_loader *loader;
    tri_step_output sums;
    tri_test_result *out = &loop->test;
    if (!s->test_data) return TRI_OK;
    TRI_TRY(tri_session_test_loader(s, &loader));
    tri_status status = train_run_evaluation(loop, s, loader, TRI_STEP_TEST, &sums);
    tri_loader_destroy(loader);
    if (status != TRI_OK || loop->interruption) return status;
    *out = (tri_test_result){.samples = tri_sampler_step_size(&s->test_sampler, 0),
                             .loss = train_mean(&sums, 0)};
    tri_metric_value metrics[TRI_MAX_METRICS];
    for (int i = 1; i < g->metric_count; i++) {
        out->metrics[i] = train_mean(&sums, i);
        metrics[i - 1] = (tri_metric_value){g->metrics[i].name, out->metrics[i]};
    }
    tri_observe_test(loop->observer, (tri_val_event){.step = loop->progress.step,
                                                     .epoch = latest_epoch(loop),
                                                     .loss = out->loss,
                                                     .metrics = metrics,
                                                     .metric_count = g->metric_count - 1,
                                                     .samples = out->samples});
    return TRI_OK;
}

void train_fill_result(const tri_session *session, const tri_progress *progress,
                       tri_train_result *out) {
    const tri_graph *g = session->plan->graph;
    out->rank = session->identity.rank;
    out->ranks = session->identity.size;
    int local = session->identity.local_size;
    out->hosts = local > 0 ? (out->ranks + local - 1) / local : 1;
    out->threads = session->device->description.threads;
    out->device_is_host = session->device->backend->host_memory;
    for (int i = 0; i < g->parameter_count; i++)
        out->has_statistics = out->has_statistics || g->parameters[i].role == TRI_ROLE_STATISTIC;
    out->tail_samples = session->plan->steps[TRI_STEP_TAIL].samples;
    out->steps = progress->step;
    out->samples = progress->samples;
    out->has_val = progress->has_val;
    out->val_loss = progress->val_loss;
    out->val_samples = progress->val_samples;
    out->val_step = progress->val_step;
    out->val_source = session->val_source;
    out->val_count = g->metric_count - 1;
    for (int i = 1; i < g->metric_count; i++) {
        snprintf(out->names[i - 1], sizeof out->names[i - 1], "%s", g->metrics[i].name);
        out->val[i - 1] = (tri_metric_value){out->names[i - 1], progress->val[i]};
    }
}

static tri_status evaluate(tri_session *s, const tri_eval_request *request, tri_train_result *out) {
    tri_state_view model;
    tri_state_view_model(s->arena, s->engine, true, &model);
    tri_ledger_mark loading = tri_ledger_enter(s->comm->ledger, "loading the weights", NULL);
    tri_status loaded = train_check_origin(s, request->task, request->checkpoint);
    if (loaded == TRI_OK) loaded = tri_checkpoint_load_weights(request->checkpoint, &model.sink);
    tri_ledger_end(s->comm->ledger, loading);
    if (loaded != TRI_OK) return tri_status_context(loaded, "--checkpoint");
    tri_loader *loader;
    TRI_TRY(tri_session_val_loader(s, &loader));
    tri_step_output sums;
    double started = tri_os_seconds();
    tri_status status = train_run_evaluation(NULL, s, loader, TRI_STEP_EVALUATE, &sums);
    tri_loader_destroy(loader);
    if (status != TRI_OK) return status;
    tri_progress progress = {.has_val = true,
                             .val_loss = train_mean(&sums, 0),
                             .val_samples = tri_sampler_step_size(&s->val_sampler, 0)};
    for (int i = 1; i < s->plan->graph->metric_count; i++) progress.val[i] = train_mean(&sums, i);
    train_fill_result(s, &progress, out);
    out->wall_s = tri_os_seconds() - started;
    out->samples_per_s = out->wall_s > 0 ? (double)out->val_samples / out->wall_s : 0;
    return TRI_OK;
}

tri_status tri_evaluate(const tri_eval_request *request, tri_train_result *out) {
    *out = (tri_train_result){.rank = 0};
    tri_session *s;
    TRI_TRY(tri_session_open(&(tri_session_request){.backends = request->backends,
                                                    .recipe = request->recipe,
                                                    .task = request->task,
                                                    .device = request->device,
                                                    .evaluate = true},
                             &s));
    tri_status status = evaluate(s, request, out);
    if (status == TRI_OK && s->identity.rank == 0) {
        tri_recipe_log_notes(s->recipe);
        tri_session_warn(s);
    }
    status = tri_session_tell(s, status);
    tri_session_close(s);
    return status;
}

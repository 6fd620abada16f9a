// Evaluates during training and in `trireme eval`. The training loop (train.c) calls
// train_evaluate_if_due after steps and train_test at the end of a run.
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "graph/metric.h"
#include "tensor/half.h"
#include "train/compare.h"
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

static bool has_signal(void *context, double numbers[TRI_MAX_CALLER_NUMBERS]) {
    (void)context;
    train_share_signals(numbers);
    return tri_signals_seen() != 0;
}

tri_status train_sum_left_out(const tri_session *s, int64_t own, int64_t *out) {
    *out = train_is_first_of_replica(s) ? own : 0;
    if (s->comm->size == 1) return TRI_OK;
    return tri_comm_run(s->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                .dtype = TRI_I64,
                                                .count = 1,
                                                .send = out,
                                                .recv = out,
                                                .label = "samples left out"});
}

// Finds how many samples of an evaluation count in its loss. Where each sample has one label, the
// loss has counted them, without those whose label is ignored.
static tri_status count_samples(const tri_session *s, const tri_dataset *data, int64_t given,
                                int64_t left_out, const tri_step_output *sums, int64_t *out) {
    const tri_graph *g = s->plan->graph;
    const tri_node *loss = g->term_count == 0 ? tri_value_node(g, g->metrics[0].value) : NULL;
    *out = given;
    if (loss && loss->op->labels && !loss->op->sums_labels) {
        const tri_value_info *labels = tri_value_get(g, loss->inputs[loss->op->labels - 1]);
        bool is_soft = tri_dtype_is_float(labels->dtype); // a number for each class
        if (labels->shape.rank == (is_soft ? 2 : 1) &&
            labels->shape.dims[0] == tri_graph_samples(g)) {
            *out = (int64_t)sums->count[0];
            return TRI_OK;
        }
    }
    if (!tri_dataset_leaves_out(data)) return TRI_OK;
    TRI_TRY(train_sum_left_out(s, left_out, &left_out));
    *out = given - left_out;
    return TRI_OK;
}

// Warns of a metric that is not finite beside a finite loss: once in a run, because it would be the
// same in each evaluation.
static void warn_of_metric(const tri_session *s, tri_step_shape shape, const tri_step_output *sums,
                           const tri_evaluation *found, bool *has_warned) {
    const tri_graph *g = s->plan->graph;
    for (int i = 1; i < g->metric_count && !*has_warned; i++) {
        double mean = found->mean[i];
        bool is_one = g->metrics[i].figures.rank == 0;
        if (!is_one || isfinite(mean) || s->identity.rank != 0) continue;
        *has_warned = true;
        tri_log_line(
            TRI_LOG_WARNING, "metric %s of the %s data is %g, although the loss is finite%s",
            g->metrics[i].name,
            tri_val_source_names[shape == TRI_STEP_TEST ? TRI_VAL_TEST : s->val_source], mean,
            g->metrics[i].kind == TRI_METRIC_MEAN && sums->count[i] == 0
                ? ": it counts none of the samples"
                : "");
    }
}

// Warns of an AUC whose scores its intervals do not tell apart, once in a run.
static void warn_of_intervals(const tri_session *s, const tri_step_output *sums, bool *has_warned) {
    const tri_graph *g = s->plan->graph;
    for (int i = 1; i < g->metric_count && !*has_warned && s->identity.rank == 0; i++) {
        double error = tri_metric_error(&g->metrics[i], sums->numbers[i]);
        if (!(error > 0.005)) continue;
        *has_warned = true;
        tri_log_line(TRI_LOG_WARNING,
                     "metric %s may be off by up to %.2g, unless scores are equal: many samples "
                     "share an interval of scores; set more .bins, or scale the scores so that "
                     "they lie around 0 to 10",
                     g->metrics[i].name, error);
    }
}

// Warns of an evaluation whose loss counts nothing, once in a run.
static void warn_of_nothing(const tri_session *s, tri_step_shape shape, bool *has_warned) {
    if (!*has_warned && s->identity.rank == 0)
        tri_log_line(TRI_LOG_WARNING,
                     "the loss of the %s data counts nothing: all labels of these samples are "
                     "ignored, or its divisor is 0; evaluate more samples",
                     tri_val_source_names[shape == TRI_STEP_TEST ? TRI_VAL_TEST : s->val_source]);
    *has_warned = true;
}

static tri_status warn_of_sums(train_loop *loop, tri_session *s, tri_step_shape shape,
                               const tri_step_output *sums, const tri_evaluation *found) {
    bool unused = false;
    if (sums->count[0] == 0) {
        warn_of_nothing(s, shape, loop ? &loop->has_warned_nothing : &unused);
        return TRI_OK;
    }
    if (isfinite(sums->sum[0])) {
        bool *has_warned = loop ? &loop->has_warned_metric : &unused;
        warn_of_metric(s, shape, sums, found, has_warned);
        warn_of_intervals(s, sums, has_warned);
        return TRI_OK;
    }
    if (loop && loop->has_warned_not_finite) return TRI_OK;
    if (loop) loop->has_warned_not_finite = true;
    return train_warn_not_finite(s, shape, train_mean(sums, 0));
}

// Computes all metrics from their sums.
static void finish_metrics(tri_session *s, const tri_step_output *sums, tri_evaluation *out) {
    const tri_graph *g = s->plan->graph;
    out->mean[0] = train_mean(sums, 0);
    for (int i = 1; i < g->metric_count; i++) {
        const tri_metric_info *m = &g->metrics[i];
        if (!s->figures[i]) s->figures[i] = TRI_NEW_ARRAY(s->arena, double, tri_metric_figures(m));
        tri_metric_finish(m, sums->numbers[i], s->figures[i]);
        out->mean[i] = m->figures.rank == 0 ? s->figures[i][0] : (double)NAN;
    }
}

static tri_status run_evaluation(train_loop *loop, tri_session *session, tri_loader *loader,
                                 tri_step_shape shape, tri_evaluation *out) {
    bool tests = shape == TRI_STEP_TEST;
    const tri_sampler *sampler = tests ? &session->test_sampler : &session->val_sampler;
    tri_step_output sums;
    int64_t samples;
    tri_arena *arena = tri_arena_create(NULL, "evaluation");
    train_feed feed = train_feed_make(arena, session, loader);
    tri_step_input input = {.shape = shape,
                            .next = train_feed_next,
                            .release = train_feed_release,
                            .is_cancelled = loop ? has_signal : NULL,
                            .context = &feed};
    const char *earlier = tri_signals_wait_for("the running batch of an evaluation");
    tri_ledger_mark mark = tri_ledger_enter(session->comm->ledger, "evaluation", NULL);
    tri_status status = tri_engine_step(session->engine, &input, &sums);
    tri_ledger_end(session->comm->ledger, mark);
    status = train_feed_end(&feed, status);
    tri_signals_wait_for(earlier);
    tri_arena_destroy(arena);
    if (status != TRI_OK) return status;
    if (loop) train_take_signals(loop, sums.caller_sums);
    if (loop && loop->interruption) return TRI_OK;
    TRI_TRY(count_samples(session, tests ? session->test_data : session->val_data,
                          tri_sampler_step_size(sampler, 0), feed.left_out, &sums, &samples));
    *out = (tri_evaluation){
        .is_known = true, .step = loop ? loop->progress.step : 0, .samples = samples};
    finish_metrics(session, &sums, out);
    return warn_of_sums(loop, session, shape, &sums, out);
}

tri_status train_run_evaluation(train_loop *loop, tri_session *session, tri_loader *loader,
                                tri_step_shape shape, tri_evaluation *out) {
    if (!loop) return run_evaluation(NULL, session, loader, shape, out);
    TRI_TRY(train_exchange_averages(loop));
    TRI_TRY(run_evaluation(loop, session, loader, shape, out));
    return train_exchange_averages(loop);
}

bool train_is_evaluated(const train_loop *loop, int64_t epoch, int64_t step,
                        int64_t step_in_epoch) {
    const tri_trainer_options *t = &loop->recipe->trainer;
    int64_t steps = loop->steps_per_epoch, interval;
    bool is_fraction = t->val_check_interval.is_fraction;
    interval = (int64_t)(t->val_check_interval.value * (is_fraction ? (double)steps : 1));
    int64_t within = interval >= steps && !is_fraction ? step : step_in_epoch;
    if (!loop->session->val_data) return step_in_epoch == steps;
    bool is_due = within % (interval > 0 ? interval : 1) == 0;
    return is_due && t->check_val_every_n_epoch > 0 &&
           (epoch + 1) % t->check_val_every_n_epoch == 0;
}

bool train_evaluation_counts(const train_loop *loop) {
    const tri_progress *p = &loop->progress;
    bool has_ended = p->step_in_epoch == 0; // an epoch, with the latest step
    return train_is_evaluated(loop, p->epoch - has_ended, p->step,
                              has_ended ? loop->steps_per_epoch : p->step_in_epoch);
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

// The names of the classes; none if the files do not name them, or in other bytes than UTF-8.
static tri_strings names_of_classes(const tri_session *s) {
    tri_strings none = {0};
    for (int i = 0; s->val_data && i < tri_dataset_field_count(s->val_data); i++) {
        const tri_strings *names = &tri_dataset_names(s->val_data, i)->classes;
        for (int k = 0; k < names->count; k++)
            if (!tri_json_is_text(names->items[k])) return none;
        if (names->count > 0) return *names;
    }
    return none;
}

static tri_metric_value value_of(const tri_session *s, const tri_evaluation *found, int i) {
    const tri_metric_info *m = &s->plan->graph->metrics[i];
    bool are_counts = m->kind == TRI_METRIC_CONFUSION || m->kind == TRI_METRIC_SUPPORT;
    return (tri_metric_value){.name = m->name,
                              .value = found->mean[i],
                              .figures = m->figures.rank > 0 ? s->figures[i] : NULL,
                              .shape = m->figures,
                              .are_counts = are_counts,
                              .names =
                                  m->figures.rank > 0 && tri_tally_has_labels((tri_tally)m->tally)
                                      ? names_of_classes(s)
                                      : (tri_strings){0}};
}

typedef void observe_function(tri_observer *observer, tri_val_event event);

static void report(const train_loop *loop, const tri_evaluation *found, observe_function *observe) {
    const tri_graph *g = loop->session->plan->graph;
    tri_metric_value metrics[TRI_MAX_METRICS];
    for (int i = 1; i < g->metric_count; i++) metrics[i - 1] = value_of(loop->session, found, i);
    observe(loop->observer, (tri_val_event){.step = found->step,
                                            .epoch = latest_epoch(loop),
                                            .loss = found->mean[0],
                                            .metrics = metrics,
                                            .metric_count = g->metric_count - 1,
                                            .samples = found->samples});
}

tri_status train_evaluate_if_due(train_loop *loop) {
    tri_session *s = loop->session;
    tri_evaluation found;
    // A resumed run may have no validation data any more.
    if (!s->val_data) loop->progress.evaluation_due = false;
    if (!loop->progress.evaluation_due || loop->interruption) return TRI_OK;
    double before = tri_os_seconds();
    TRI_TRY(train_run_evaluation(loop, s, loop->val_loader, TRI_STEP_EVALUATE, &found));
    train_deadline_note_pause(&loop->deadline, tri_os_seconds() - before);
    if (loop->interruption) return TRI_OK;
    loop->progress.val = found;
    loop->progress.evaluation_due = false;
    report(loop, &found, tri_observe_val);
    train_follow_monitors(loop);
    return loop->saves ? train_rank_weights(loop) : TRI_OK;
}

bool train_test_is_due(const train_loop *loop) {
    const tri_progress *p = &loop->progress;
    return loop->session->test_data && !(p->test.is_known && p->test.step == p->step);
}

tri_status train_test(train_loop *loop) {
    tri_session *s = loop->session;
    tri_loader *loader;
    tri_evaluation found;
    if (!train_test_is_due(loop)) return TRI_OK;
    TRI_TRY(tri_session_test_loader(s, &loader));
    tri_status status = train_run_evaluation(loop, s, loader, TRI_STEP_TEST, &found);
    tri_loader_destroy(loader);
    if (status != TRI_OK || loop->interruption) return status;
    loop->progress.test = found;
    report(loop, &found, tri_observe_test);
    train_record_test(loop);
    return TRI_OK;
}

// Adds to the result the metrics that have several figures.
static void keep_figures(const tri_session *s, tri_arena *arena, const tri_evaluation *found,
                         tri_train_result *out) {
    const tri_graph *g = s->plan->graph;
    for (int i = 1; i < g->metric_count && arena; i++) {
        if (g->metrics[i].figures.rank == 0) continue;
        tri_metric_value value = value_of(s, found, i);
        int64_t count = tri_metric_figures(&g->metrics[i]);
        double *figures = TRI_NEW_ARRAY(arena, double, count);
        memcpy(figures, value.figures, (size_t)count * sizeof *figures);
        value.name = tri_arena_strdup(arena, value.name);
        value.figures = figures;
        const char **names = TRI_NEW_ARRAY(arena, const char *, value.names.count);
        for (int k = 0; k < value.names.count; k++)
            names[k] = tri_arena_strdup(arena, value.names.items[k]);
        value.names.items = names;
        out->val[out->val_count++] = value;
    }
}

tri_status train_load_weights(tri_session *s, const tri_task *task, const char *checkpoint) {
    tri_state_view model;
    tri_state_view_model(s->arena, s->engine, true, &model);
    model.sink.lists_mismatches = s->identity.rank == 0;
    if (s->identity.rank == 0) tri_task_warn_of_batch(s->plan->graph);
    TRI_TRY(train_compare_weights(&(train_ranks){s->arena, s->comm, s->host_claims}, checkpoint,
                                  "--checkpoint"));
    tri_ledger_mark loading = tri_ledger_enter(s->comm->ledger, "loading the weights", NULL);
    tri_status loaded = train_check_origin(s, task, checkpoint);
    bool averaged = false;
    if (loaded == TRI_OK && s->recipe->average.evaluate)
        loaded = tri_checkpoint_load_evaluated(checkpoint, &model.sink, &averaged);
    else if (loaded == TRI_OK)
        loaded = tri_checkpoint_load_weights(checkpoint, NULL, &model.sink);
    tri_ledger_end(s->comm->ledger, loading);
    if (averaged && s->identity.rank == 0)
        tri_log_line(TRI_LOG_INFO,
                     "the weights of %s are averages over steps; average.evaluate=false takes "
                     "those of its last step",
                     checkpoint);
    return loaded == TRI_OK ? TRI_OK : tri_status_context(loaded, "--checkpoint");
}

static tri_status evaluate(tri_session *s, const tri_eval_request *request, tri_train_result *out) {
    TRI_TRY(train_load_weights(s, request->task, request->checkpoint));
    tri_loader *loader;
    TRI_TRY(tri_session_val_loader(s, &loader));
    tri_progress progress = {.step = 0};
    double started = tri_os_seconds();
    tri_status status = train_run_evaluation(NULL, s, loader, TRI_STEP_EVALUATE, &progress.val);
    tri_loader_destroy(loader);
    if (status != TRI_OK) return status;
    train_fill_result(s, &progress, out);
    keep_figures(s, request->arena, &progress.val, out);
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
                                                    .weights = request->checkpoint,
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

// The monitored metrics: those by which the recipe chooses checkpoints, stops early, and lowers the
// learning rate (the schedule plateau).
#include "base/log.h"
#include "base/quantity.h"
#include "graph/metric.h"
#include "train/loop.h"

#include <math.h>
#include <string.h>

static bool lowers_rate(const train_loop *loop) {
    return !strcmp(loop->recipe->schedule.name, "plateau");
}

bool train_monitored_value(const train_loop *loop, const char *name, double *out) {
    const tri_graph *g = loop->session->plan->graph;
    if (!name) return false;
    // An evaluation is valid only for the weights of its step, because later steps change them.
    const tri_progress *p = &loop->progress;
    const tri_evaluation *val = &p->val;
    bool is_fresh = val->is_known && val->step == p->step;
    if (!strcmp(name, "train_loss")) {
        // Means over fewer samples than those of others are not compared with them.
        bool is_whole = loop->session->val_data ? is_fresh && train_evaluation_counts(loop)
                                                : p->step_in_epoch == 0;
        *out = p->loss_sum / p->loss_count;
        return is_whole && isfinite(*out);
    }
    if (strncmp(name, "val_", 4) != 0 || !is_fresh) return false;
    for (int i = 0; i < g->metric_count; i++) {
        if (strcmp(name + 4, i == 0 ? "loss" : g->metrics[i].name) != 0) continue;
        if (g->metrics[i].figures.rank > 0) continue;
        *out = val->mean[i];
        return isfinite(*out);
    }
    return false;
}

static tri_status check_monitor(const train_loop *loop, const char *key, const char *name) {
    const tri_graph *g = loop->session->plan->graph;
    const char *known[TRI_MAX_METRICS + 1] = {"train_loss", "val_loss"};
    int count = 2;
    for (int i = 1; i < g->metric_count; i++)
        if (g->metrics[i].figures.rank == 0)
            known[count++] = tri_arena_printf(loop->arena, "val_%s", g->metrics[i].name);
    const char *list = "";
    for (int i = 0; i < count; i++) {
        if (!strcmp(known[i], name)) return TRI_OK;
        list = tri_arena_printf(loop->arena, "%s%s%s", list, i ? ", " : "", known[i]);
    }
    for (int i = 1; i < g->metric_count; i++)
        if (!strncmp(name, "val_", 4) && !strcmp(name + 4, g->metrics[i].name))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: '%s' has %lld figures, and only one number can be monitored; the "
                            "run has %s",
                            key, name, (long long)tri_metric_figures(&g->metrics[i]), list);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: the run has no metric '%s'; it has %s", key, name, list);
}

tri_status train_check_monitors(const train_loop *loop) {
    const tri_recipe *r = loop->recipe;
    const char *early = r->trainer.early_stopping.monitor;
    const char *best = r->checkpoint.monitor;
    const char *lowers = lowers_rate(loop) ? r->schedule.monitor : NULL;
    if (best) TRI_TRY(check_monitor(loop, "checkpoint.monitor", best));
    if (early) TRI_TRY(check_monitor(loop, "trainer.early_stopping.monitor", early));
    if (lowers) TRI_TRY(check_monitor(loop, "schedule.monitor", lowers));
    if (loop->session->val_data) return TRI_OK;
    // The default, val_loss, is no wish of the user.
    bool needs_value = best && r->checkpoint.save_top_k != 0 && !strncmp(best, "val_", 4) &&
                       strcmp(best, "val_loss") != 0;
    bool stops = early && strcmp(early, "train_loss") != 0;
    bool follows = lowers && strcmp(lowers, "train_loss") != 0;
    if (!stops && !needs_value && !follows) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: the run has no evaluation: the data has no validation or test samples, or "
                    "trainer.limit_val_batches is 0",
                    stops         ? "trainer.early_stopping"
                    : needs_value ? "checkpoint.monitor"
                                  : "schedule.monitor");
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

// Describes what is followed: "val_loss (min) of the 23 test samples". Forgets the best value so
// far if it is of something else. `what`: for whom, as a message says it.
static const char *settle_watched(train_loop *loop, const char *what, const char *monitor,
                                  tri_monitor_mode mode, tri_watched *watched) {
    const char *samples = samples_of(loop, monitor);
    const char *of = tri_arena_printf(loop->arena, "%s (%s)%s%s", monitor, tri_monitor_modes[mode],
                                      samples ? " of " : "", samples ? samples : "");
    // Checkpoints of older versions do not name what their best value is of.
    if (!watched->has_best || !watched->best_of || !strcmp(watched->best_of, of)) return of;
    if (loop->session->identity.rank == 0)
        tri_log_line(TRI_LOG_INFO,
                     "%s begins again: its best value so far is of %s, and from now on it follows "
                     "%s",
                     what, watched->best_of, of);
    *watched = (tri_watched){.waited = 0};
    return of;
}

void train_settle_monitors(train_loop *loop) {
    const tri_checkpoint_options *c = &loop->recipe->checkpoint;
    const tri_early_stopping_options *e = &loop->recipe->trainer.early_stopping;
    const tri_schedule_options *o = &loop->recipe->schedule;
    loop->ranked_by = (tri_checkpoint_monitor){.name = c->monitor,
                                               .samples = samples_of(loop, c->monitor),
                                               .larger_is_better = c->mode == TRI_MONITOR_MAX};
    if (e->monitor)
        loop->stops_by = settle_watched(loop, "trainer.early_stopping", e->monitor, e->mode,
                                        &loop->progress.stopping);
    // Another schedule has not waited for anything.
    if (!lowers_rate(loop))
        loop->progress.plateau = (tri_plateau){.factor = 0};
    else
        loop->lowers_by = settle_watched(loop, "schedule.name=plateau", o->monitor, o->mode,
                                         &loop->progress.plateau.watched);
}

static const char *const stoppers[] = {"trainer.early_stopping.stopping_threshold",
                                       "trainer.early_stopping.divergence_threshold",
                                       "trainer.early_stopping.patience"};

const char *train_stopped_by(const train_loop *loop) {
    const tri_early_stopping_options *o = &loop->recipe->trainer.early_stopping;
    const tri_watched *w = &loop->progress.stopping;
    const tri_number *enough = &o->stopping_threshold, *lost = &o->divergence_threshold;
    if (!o->monitor) return NULL;
    if (enough->is_set && w->has_last && tri_gain(o->mode, w->last, enough->value) > 0)
        return stoppers[0];
    bool is_worse = w->has_last && tri_gain(o->mode, w->last, lost->value) < 0;
    if (lost->is_set && (is_worse || w->is_lost)) return stoppers[1];
    return w->waited > 0 && w->waited >= o->patience ? stoppers[2] : NULL;
}

// Says why; `by` is what train_stopped_by has returned.
static const char *why_stopped(const train_loop *loop, const char *by) {
    const tri_early_stopping_options *o = &loop->recipe->trainer.early_stopping;
    const tri_watched *w = &loop->progress.stopping;
    if (by == stoppers[0])
        return tri_arena_printf(loop->arena, "%s has reached %.6g, beyond stopping_threshold %.6g",
                                o->monitor, w->last, o->stopping_threshold.value);
    if (by == stoppers[1] && w->is_lost)
        return tri_arena_printf(loop->arena, "%s is not finite, beyond divergence_threshold %.6g",
                                o->monitor, o->divergence_threshold.value);
    if (by == stoppers[1])
        return tri_arena_printf(loop->arena,
                                "%s has diverged to %.6g, beyond divergence_threshold %.6g",
                                o->monitor, w->last, o->divergence_threshold.value);
    const char *evaluations =
        tri_counted(w->waited, loop->session->val_data ? "evaluation" : "epoch");
    return w->has_best ? tri_arena_printf(loop->arena, "%s has not improved on %.6g for %s",
                                          o->monitor, w->best, evaluations)
                       : tri_arena_printf(loop->arena, "%s has had no finite value for %s",
                                          o->monitor, evaluations);
}

static void follow_for_stopping(train_loop *loop) {
    const tri_early_stopping_options *o = &loop->recipe->trainer.early_stopping;
    double value;
    bool is_finite = train_monitored_value(loop, o->monitor, &value);
    tri_watch(&loop->progress.stopping, o->mode, o->min_delta, is_finite ? &value : NULL,
              loop->stops_by);
    const char *by = train_stopped_by(loop);
    if (!by) return;
    loop->stop = true;
    loop->end_reason = why_stopped(loop, by);
    tri_observe_message(loop->observer, "%s: stopping", loop->end_reason);
}

static void follow_for_rate(train_loop *loop) {
    const tri_schedule_options *o = &loop->recipe->schedule;
    double value;
    bool is_finite = train_monitored_value(loop, o->monitor, &value);
    if (tri_plateau_follow(&loop->progress.plateau, &loop->rate, is_finite ? &value : NULL,
                           loop->lowers_by))
        tri_observe_message(
            loop->observer, "%s has not improved for %s: the learning rate is lowered to %g",
            o->monitor, tri_counted(o->patience + 1, "evaluation"), tri_rate_lowered(&loop->rate));
}

void train_follow_monitors(train_loop *loop) {
    if (!train_evaluation_counts(loop)) return;
    if (loop->recipe->trainer.early_stopping.monitor) follow_for_stopping(loop);
    if (lowers_rate(loop)) follow_for_rate(loop);
}

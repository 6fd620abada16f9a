// Warns before a run's first step of settings that do not fit its length, and of schedules that
// cannot be meant.
#include "base/log.h"
#include "base/quantity.h"
#include "recipe/steps.h"
#include "train/loop.h"

enum { LOOKED_AT = 10000000 }; // steps

static void warn_endless_warmup(const train_loop *loop) {
    int64_t length = tri_rate_endless_warmup(&loop->rate), total = loop->rate.total_updates;
    if (length > 0 && loop->saves) // a run with fast_dev_run is short on purpose
        tri_log_line(TRI_LOG_WARNING,
                     "the run of %s ends %s its warm-up (schedule.warmup_steps: %s): "
                     "the learning rate only rises, to %g",
                     tri_counted(total, "step"), total < length ? "before" : "with",
                     tri_counted(length, "update"),
                     tri_rate_at(&loop->rate, total - 1, (total - 1) / loop->steps_per_epoch));
}

// Warns if the default of trainer.max_epochs ends the run before the max_steps that the user wants.
static void warn_default_epochs(const train_loop *loop) {
    const tri_trainer_options *t = &loop->recipe->trainer;
    int64_t steps = tri_steps_of_epochs(t, loop->steps_per_epoch, loop->extra_steps);
    if (!loop->recipe->has_default_epochs || steps < 0 || t->max_steps <= steps || !loop->saves)
        return;
    tri_log_line(
        TRI_LOG_WARNING,
        "the run ends after %s, before trainer.max_steps=%lld, because trainer.max_epochs is "
        "%lld by default; trainer.max_epochs=-1 sets no limit",
        tri_counted(steps, "step"), (long long)t->max_steps, (long long)t->max_epochs);
}

// Warns if the schedule ends long before the run, with a rate with which nothing is learned or one
// that rises again.
static void warn_early_schedule(const train_loop *loop) {
    tri_rate_end end;
    if (tri_rate_ends_early(&loop->rate, &end) && loop->saves)
        tri_log_line(TRI_LOG_WARNING,
                     "the schedule ends after %s, but the run has %lld: the learning rate %s %g; "
                     "schedule.%s=0 lasts until the end of the run",
                     tri_counted(end.update, "update"), (long long)loop->rate.total_updates,
                     end.rises ? "then rises again to" : "stays for the rest at", end.rate,
                     end.key);
}

// Warns of a lowest rate above the highest one: it was taken for a factor.
static void warn_inverted(const train_loop *loop) {
    double least, most;
    const char *key = tri_rate_inverted(&loop->rate, &least, &most);
    if (key && most > 0)
        tri_log_line(
            TRI_LOG_WARNING,
            "schedule.%s=%g is above %g, the schedule's highest learning rate, which turns it "
            "upside down: %s is a learning rate, and no factor",
            key, least, most, key);
}

// Whether a multiple of `every` comes after `from`, at `to` or before it.
static bool comes_due(int64_t from, int64_t to, int64_t every) {
    return every > 0 && to / every > from / every;
}

// Warns of a run that will not write its weights, or only if it lasts long enough.
static void warn_nothing_saved(const train_loop *loop) {
    const tri_checkpoint_options *c = &loop->recipe->checkpoint;
    const tri_progress *p = &loop->progress;
    int64_t left = loop->last_step - p->step;
    int64_t epochs = (p->step_in_epoch + left) / loop->steps_per_epoch;
    bool has_end = loop->last_step >= 0, keeps_best = c->save_top_k > 0 && loop->session->val_data;
    bool is_due = has_end ? comes_due(p->step, loop->last_step, c->every_n_steps) ||
                                comes_due(p->epoch, p->epoch + epochs, c->every_n_epochs)
                          : c->every_n_steps > 0 || c->every_n_epochs > 0;
    bool by_time = c->train_time_interval > 0;
    if (!loop->saves || is_due || c->save_last || keeps_best || (by_time && !has_end) || left == 0)
        return;
    const char *until =
        by_time ? tri_arena_printf(loop->arena, " before %s (checkpoint.train_time_interval)",
                                   tri_duration_text(c->train_time_interval))
                : "";
    tri_log_line(TRI_LOG_WARNING,
                 "the run writes no checkpoint%s, unless a signal ends it: its weights are lost%s; "
                 "checkpoint.save_last=true keeps those of its end",
                 until, by_time ? " if it is shorter" : "");
}

// Warns of a schedule that counts epochs in a run that ends before the rate changes.
static void warn_constant_rate(const train_loop *loop) {
    if (tri_rate_stays(&loop->rate) && loop->saves)
        tri_log_line(TRI_LOG_WARNING,
                     "schedule.name=%s changes the learning rate with each epoch, but the run of "
                     "%s ends within the first one: the rate stays at %g; schedule.every=step "
                     "changes it with each step",
                     loop->rate.schedule->name, tri_counted(loop->rate.total_updates, "step"),
                     tri_rate_at(&loop->rate, loop->rate.total_updates - 1, 0));
}

// Warns of early stopping in a run that has no value that counts for it.
static void warn_late_stop(const train_loop *loop) {
    const tri_trainer_options *t = &loop->recipe->trainer;
    int64_t end = loop->last_step, epoch = loop->steps_per_epoch, step = 1;
    if (!t->early_stopping.monitor || !loop->saves || end <= 0 || end > LOOKED_AT) return;
    while (step <= end &&
           !train_is_evaluated(loop, (step - 1) / epoch, step, (step - 1) % epoch + 1))
        step++;
    if (step > end)
        tri_log_line(TRI_LOG_WARNING,
                     "trainer.early_stopping has no effect: the run of %s ends before its first "
                     "%s",
                     tri_counted(end, "step"),
                     loop->session->val_data
                         ? "evaluation (trainer.val_check_interval, check_val_every_n_epoch)"
                         : "epoch does");
}

bool train_reaches_until_epoch(const train_loop *loop) {
    const tri_progress *p = &loop->progress;
    int64_t until = loop->request->until_epoch;
    return until > 0 && p->epoch >= until && p->step_in_epoch == 0 && loop->in_flight == 0;
}

void train_warn_of_length(const train_loop *loop) {
    warn_endless_warmup(loop);
    warn_default_epochs(loop);
    warn_early_schedule(loop);
    warn_constant_rate(loop);
    warn_inverted(loop);
    warn_nothing_saved(loop);
    warn_late_stop(loop);
    train_warn_of_average(loop);
}

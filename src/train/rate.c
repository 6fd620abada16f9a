#include "train/rate.h"

#include <math.h>
#include <string.h>

// What a schedule is told: the moment and the end of its course, in its own unit.
typedef struct moment {
    const tri_schedule_options *o;
    double lr;
    int64_t t, end;
} moment;

static double constant(const moment *m) { return m->lr; }

static double step(const moment *m) {
    return m->lr * pow(m->o->gamma, (double)(m->t / m->o->step_size));
}

// torch.optim.lr_scheduler.LinearLR
static double linear(const moment *m) {
    double end = (double)(m->o->total_iters ? m->o->total_iters : m->end);
    double part = end > 0 ? fmin((double)m->t / end, 1) : 1;
    return m->lr * (m->o->start_factor + (m->o->end_factor - m->o->start_factor) * part);
}

// torch.optim.lr_scheduler.CosineAnnealingLR, closed form
static double cosine(const moment *m) {
    double end = (double)(m->o->T_max ? m->o->T_max : m->end);
    double part = end > 0 ? (double)m->t / end : 1;
    if (!m->o->T_max) part = fmin(part, 1);
    return m->o->eta_min + (m->lr - m->o->eta_min) * (1 + cos(M_PI * part)) / 2;
}

static double anneal(const moment *m, double from, double to, double part) {
    if (m->o->anneal_strategy == TRI_ANNEAL_LINEAR) return from + (to - from) * part;
    return to + (from - to) * (1 + cos(M_PI * part)) / 2;
}

// torch.optim.lr_scheduler.OneCycleLR, two phases
static double onecycle(const moment *m) {
    const tri_schedule_options *o = m->o;
    double total = (double)(o->total_steps ? o->total_steps : m->end), t = (double)m->t;
    double peak = o->max_lr > 0 ? o->max_lr : m->lr, first = peak / o->div_factor;
    double least = first / o->final_div_factor, top = o->pct_start * total - 1, last = total - 1;
    if (t <= top) return anneal(m, first, peak, top > 0 ? t / top : 1);
    return anneal(m, peak, least, last > top ? fmin((t - top) / (last - top), 1) : 1);
}

static const struct {
    const char *name;
    double (*rate)(const moment *m);
} rows[] = {{"constant", constant},
            {"step", step},
            {"linear", linear},
            {"cosine", cosine},
            {"onecycle", onecycle}};

tri_status tri_rate_check(const tri_rate *rate) {
    const tri_schedule_options *o = rate->schedule;
    const struct {
        const char *name, *key;
        int64_t length;
    } reaching[] = {{"linear", "total_iters", o->total_iters},
                    {"cosine", "T_max", o->T_max},
                    {"onecycle", "total_steps", o->total_steps}};
    if (rate->total_updates > 0) return TRI_OK;
    if (o->warmup_steps.is_fraction && o->warmup_steps.value > 0)
        return TRI_FAIL(TRI_BAD_INPUT, "schedule.warmup_steps: a fraction of a run without end; "
                                       "set trainer.max_epochs or max_steps, or a whole number");
    for (size_t i = 0; i < sizeof reaching / sizeof *reaching; i++)
        if (!strcmp(o->name, reaching[i].name) && reaching[i].length == 0)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "schedule.name: %s reaches to the end of the run, but this one has "
                            "none; set trainer.max_epochs or max_steps, or schedule.%s",
                            o->name, reaching[i].key);
    return TRI_OK;
}

double tri_rate_at(const tri_rate *rate, int64_t update) {
    const tri_schedule_options *o = rate->schedule;
    int64_t warmup = (int64_t)o->warmup_steps.value;
    if (o->warmup_steps.is_fraction)
        warmup = (int64_t)(o->warmup_steps.value * (double)rate->total_updates);
    int64_t t = update > warmup ? update - warmup : 0;
    int64_t end = rate->total_updates > warmup ? rate->total_updates - warmup : 0;
    if (o->every == TRI_EVERY_EPOCH && rate->steps_per_epoch > 0) {
        t /= rate->steps_per_epoch;
        end = (end + rate->steps_per_epoch - 1) / rate->steps_per_epoch;
    }
    double lr = rate->lr;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, o->name))
            lr = rows[i].rate(&(moment){.o = o, .lr = rate->lr, .t = t, .end = end});
    if (update < warmup) lr *= (double)(update + 1) / (double)warmup;
    return lr;
}

// Learning rates. Each schedule is a function of the update's number, so that the rate of any
// update can be computed at any time. An update is a step that changed the weights. With
// schedule.warmup_steps, a linear warm-up comes first: the rate rises to the schedule's first
// value, and only then does the schedule begin. Some schedules have a warm-up of their own instead.
#include "train/rate.h"

#include <math.h>
#include <string.h>

// What a schedule computes a rate from. `t` is the time since the schedule began and `end` its
// length. Both are counted in updates or, if schedule.every is epoch and the schedule has no
// warm-up of its own, in epochs.
typedef struct moment {
    const tri_schedule_options *o;
    double lr; // the recipe's optimizer.lr
    int64_t t, end;
    int64_t warmup; // the length of the schedule's own warm-up in updates, if it has one
} moment;

static double constant(const moment *m) { return m->lr; }

static double step(const moment *m) {
    return m->lr * pow(m->o->gamma, (double)(m->t / m->o->step_size));
}

// The schedule of torch.optim.lr_scheduler.LinearLR.
static double linear(const moment *m) {
    double end = (double)(m->o->total_iters ? m->o->total_iters : m->end);
    double fraction = end > 0 ? fmin((double)m->t / end, 1) : 1;
    return m->lr * (m->o->start_factor + (m->o->end_factor - m->o->start_factor) * fraction);
}

static double linear_start(const moment *m) { return m->lr * m->o->start_factor; }

// The schedule of torch.optim.lr_scheduler.CosineAnnealingLR, in closed form, so that a resumed run
// needs no state of the scheduler.
static double cosine(const moment *m) {
    double end = (double)(m->o->T_max ? m->o->T_max : m->end);
    double fraction = end > 0 ? (double)m->t / end : 1;
    if (!m->o->T_max) fraction = fmin(fraction, 1);
    return m->o->eta_min + (m->lr - m->o->eta_min) * (1 + cos(M_PI * fraction)) / 2;
}

static double anneal(const moment *m, double from, double to, double fraction) {
    if (m->o->anneal_strategy == TRI_ANNEAL_LINEAR) return from + (to - from) * fraction;
    return to + (from - to) * (1 + cos(M_PI * fraction)) / 2;
}

static double peak_of(const moment *m) { return m->o->max_lr > 0 ? m->o->max_lr : m->lr; }

static double onecycle_start(const moment *m) { return peak_of(m) / m->o->div_factor; }

// The schedule of torch.optim.lr_scheduler.OneCycleLR with two phases.
static double onecycle(const moment *m) {
    const tri_schedule_options *o = m->o;
    double total = (double)(o->total_steps ? o->total_steps : m->end), t = (double)m->t;
    double peak = peak_of(m), first = onecycle_start(m);
    double least = first / o->final_div_factor, top = o->pct_start * total - 1, last = total - 1;
    if (t <= top) return anneal(m, first, peak, top > 0 ? t / top : 1);
    return anneal(m, peak, least, last > top ? fmin((t - top) / (last - top), 1) : 1);
}

// The schedules warmup, warmup-decay and warmup-cosine are DeepSpeed's
// (deepspeed/runtime/lr_schedules.py). Its schedulers take their first step after the first update.
// So update t uses the rate of their iteration t - 1, and update 0 uses the initial rate. Their
// warm-up has at least two updates.

static int64_t warmup_length(const moment *m) { return m->warmup > 2 ? m->warmup : 2; }

// How far the warm-up has come: 0 when it begins, 1 from its end on.
static double warmup_fraction(const moment *m) {
    int64_t iteration = m->t - 1, length = warmup_length(m);
    if (iteration < 0) return 0;
    if (iteration >= length) return 1;
    if (m->o->warmup_type == TRI_WARMUP_LINEAR) return (double)iteration / (double)length;
    return log((double)iteration + 1) / log((double)length);
}

static double between(const moment *m, double fraction) {
    double least = m->o->warmup_min_lr;
    return least + (peak_of(m) - least) * fraction;
}

static double warmup(const moment *m) { return between(m, warmup_fraction(m)); }

static int64_t total_of(const moment *m) { return m->o->total_steps ? m->o->total_steps : m->end; }

static double warmup_decay(const moment *m) {
    int64_t iteration = m->t - 1, length = warmup_length(m), total = total_of(m);
    if (iteration < length) return between(m, warmup_fraction(m));
    return between(m, fmax((double)(total - iteration) / fmax((double)(total - length), 1), 0));
}

static double warmup_cosine(const moment *m) {
    int64_t iteration = m->t - 1, length = warmup_length(m);
    double start = m->o->warmup_min_ratio, end = m->o->cos_min_ratio;
    if (iteration < 0) return 0;
    if (iteration < length) return m->lr * (start + warmup_fraction(m) * (1 - start));
    double fraction = (double)(iteration - length + 1) / fmax((double)(total_of(m) - length), 1);
    return m->lr * (end + (1 - end) * (1 + cos(M_PI * fmin(fraction, 1))) / 2);
}

static double triangle(const moment *m) {
    const tri_schedule_options *o = m->o;
    double first = (double)o->first_steps;
    double second = o->second_steps ? (double)o->second_steps : first;
    double peak = peak_of(m), t = (double)m->t;
    if (t > first + second) {
        double decays = o->decay_steps ? (t - first - second) / (double)o->decay_steps : 0;
        return o->min_lr / (1 + o->decay_rate * decays);
    }
    bool rises = t <= first;
    double height = rises ? t : first + second - t, top = rises ? first : second;
    double stairs = (double)(rises || o->second_stairs < 0 ? o->first_stairs : o->second_stairs);
    double fraction = stairs > 0 ? floor(height * stairs / top) / stairs : height / top;
    return o->min_lr + (peak - o->min_lr) * fraction;
}

static const struct {
    const char *name;
    double (*rate)(const moment *m);
    // Gives the schedule's first value, to which a warm-up before the schedule rises; NULL: that
    // value is lr.
    double (*start)(const moment *m);
    bool warms_up; // the schedule has its own warm-up, so moment.t counts from the first update
} rows[] = {{"constant", constant, NULL, false},
            {"step", step, NULL, false},
            {"linear", linear, linear_start, false},
            {"cosine", cosine, NULL, false},
            {"onecycle", onecycle, onecycle_start, false},
            {"warmup", warmup, NULL, true},
            {"warmup-decay", warmup_decay, NULL, true},
            {"warmup-cosine", warmup_cosine, NULL, true},
            {"triangle", triangle, NULL, true}};

tri_status tri_rate_check(const tri_rate *rate) {
    const tri_schedule_options *o = rate->schedule;
    const struct {
        const char *name, *key;
        int64_t length;
    } until_end[] = {{"linear", "total_iters", o->total_iters},
                     {"cosine", "T_max", o->T_max},
                     {"onecycle", "total_steps", o->total_steps},
                     {"warmup-decay", "total_steps", o->total_steps},
                     {"warmup-cosine", "total_steps", o->total_steps}};
    if (rate->total_updates > 0) return TRI_OK;
    if (o->warmup_steps.is_fraction && o->warmup_steps.value > 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "schedule.warmup_steps: is a fraction of the run, but the run has no end; "
                        "set trainer.max_epochs or max_steps, or a whole number");
    for (size_t i = 0; i < sizeof until_end / sizeof *until_end; i++)
        if (!strcmp(o->name, until_end[i].name) && until_end[i].length == 0)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "schedule.name: %s lasts until the end of the run, but the run has no "
                            "end; set trainer.max_epochs or max_steps, or schedule.%s",
                            o->name, until_end[i].key);
    return TRI_OK;
}

static int64_t warmup_of(const tri_rate *rate) {
    const tri_amount *steps = &rate->schedule->warmup_steps;
    return (int64_t)(steps->is_fraction ? steps->value * (double)rate->total_updates
                                        : steps->value);
}

int64_t tri_rate_endless_warmup(const tri_rate *rate) {
    int64_t length = warmup_of(rate);
    return rate->total_updates > 0 && length >= rate->total_updates ? length : 0;
}

double tri_rate_at(const tri_rate *rate, int64_t update) {
    const tri_schedule_options *o = rate->schedule;
    size_t row = 0;
    while (row < sizeof rows / sizeof *rows && strcmp(rows[row].name, o->name) != 0) row++;
    TRI_ASSERT(row < sizeof rows / sizeof *rows);
    moment m = {
        .o = o, .lr = rate->lr, .t = update, .end = rate->total_updates, .warmup = warmup_of(rate)};
    if (rows[row].warms_up) return rows[row].rate(&m);
    if (update < m.warmup)
        return (rows[row].start ? rows[row].start(&m) : m.lr) * (double)(update + 1) /
               (double)m.warmup;
    m.t -= m.warmup;
    m.end = m.end > m.warmup ? m.end - m.warmup : 0;
    if (o->every == TRI_EVERY_EPOCH && rate->steps_per_epoch > 0) {
        m.t /= rate->steps_per_epoch;
        m.end = (m.end + rate->steps_per_epoch - 1) / rate->steps_per_epoch;
    }
    return rows[row].rate(&m);
}

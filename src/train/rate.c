// Learning rates. Each schedule is a function of the update's number, or of the epoch's if
// schedule.every is epoch, so that the rate of any step can be computed at any time. An update is a
// step that changed the weights. With schedule.warmup_steps, a linear warm-up comes first: the rate
// rises to the schedule's first value. A schedule that counts updates begins after that; one that
// counts epochs goes on meanwhile, so that it changes the rate in the epochs that it names. Some
// schedules have a warm-up of their own instead.
#include "train/rate.h"

#include <math.h>
#include <string.h>

// What a schedule computes a rate from. `t` is the time since the schedule began and `end` its
// length. Both are counted in updates or, if schedule.every is epoch and the schedule has no
// warm-up of its own, in epochs.
typedef struct rate_input {
    const tri_schedule_options *o;
    double lr; // the recipe's optimizer.lr
    int64_t t, end;
    int64_t warmup; // the length of the warm-up in updates
    double lowered; // tri_rate_lowered
} rate_input;

static double constant(const rate_input *in) { return in->lr; }

static double step(const rate_input *in) {
    return in->lr * pow(in->o->gamma, (double)(in->t / in->o->step_size));
}

// The schedule of torch.optim.lr_scheduler.LinearLR.
static double linear(const rate_input *in) {
    double end = (double)(in->o->total_iters ? in->o->total_iters : in->end);
    double fraction = end > 0 ? fmin((double)in->t / end, 1) : 1;
    return in->lr * (in->o->start_factor + (in->o->end_factor - in->o->start_factor) * fraction);
}

static double linear_start(const rate_input *in) { return in->lr * in->o->start_factor; }

// The schedule of torch.optim.lr_scheduler.CosineAnnealingLR, in closed form, so that a resumed run
// needs no state of the scheduler.
static double cosine(const rate_input *in) {
    double end = (double)(in->o->T_max ? in->o->T_max : in->end);
    double fraction = end > 0 ? (double)in->t / end : 1;
    if (!in->o->T_max) fraction = fmin(fraction, 1);
    return in->o->eta_min + (in->lr - in->o->eta_min) * (1 + cos(M_PI * fraction)) / 2;
}

static double polynomial(const rate_input *in) {
    double end = (double)(in->o->total_iters ? in->o->total_iters : in->end);
    double left = end > 0 ? fmax(1 - (double)in->t / end, 0) : 0;
    return in->o->end_lr + (in->lr - in->o->end_lr) * pow(left, in->o->power);
}

// The schedule of torch.optim.lr_scheduler.CosineAnnealingWarmRestarts: cycle n, from 0, begins at
// T_0 (T_mult^n - 1) / (T_mult - 1).
static double cosine_restarts(const rate_input *in) {
    int64_t length = in->o->T_0, t = in->t;
    if (in->o->T_mult == 1) t %= length;
    while (t >= length) {
        t -= length;
        if (__builtin_mul_overflow(length, in->o->T_mult, &length)) break;
    }
    double fraction = (double)t / (double)length;
    return in->o->eta_min + (in->lr - in->o->eta_min) * (1 + cos(M_PI * fraction)) / 2;
}

// The schedule of get_inverse_sqrt_schedule in transformers/optimization.py; there too, t counts
// from the warm-up's end.
static double inverse_sqrt(const rate_input *in) {
    int64_t scale = in->o->timescale ? in->o->timescale : in->warmup ? in->warmup : 10000;
    return in->lr / sqrt(((double)in->t + (double)scale) / (double)scale);
}

double tri_rate_lowered(const tri_rate *rate) {
    return rate->factor > 0 ? rate->lr * rate->factor : rate->lr;
}

static double plateau(const rate_input *in) { return in->lowered; }

static double anneal(const rate_input *in, double from, double to, double fraction) {
    if (in->o->anneal_strategy == TRI_ANNEAL_LINEAR) return from + (to - from) * fraction;
    return to + (from - to) * (1 + cos(M_PI * fraction)) / 2;
}

static double peak_of(const rate_input *in) { return in->o->max_lr > 0 ? in->o->max_lr : in->lr; }

static double onecycle_start(const rate_input *in) { return peak_of(in) / in->o->div_factor; }

// The schedule of torch.optim.lr_scheduler.OneCycleLR with two phases.
static double onecycle(const rate_input *in) {
    const tri_schedule_options *o = in->o;
    double total = (double)(o->total_steps ? o->total_steps : in->end), t = (double)in->t;
    double peak = peak_of(in), first = onecycle_start(in);
    double least = first / o->final_div_factor, top = o->pct_start * total - 1, last = total - 1;
    if (t <= top) return anneal(in, first, peak, top > 0 ? t / top : 1);
    return anneal(in, peak, least, last > top ? fmin((t - top) / (last - top), 1) : 1);
}

// The schedules warmup, warmup-decay and warmup-cosine are DeepSpeed's
// (deepspeed/runtime/lr_schedules.py). Its schedulers take their first step after the first update.
// So update t uses the rate of their iteration t - 1, and update 0 uses the initial rate. Their
// warm-up has at least two updates.

static int64_t warmup_length(const rate_input *in) { return in->warmup > 2 ? in->warmup : 2; }

// How far the warm-up has come: 0 when it begins, 1 from its end on.
static double warmup_fraction(const rate_input *in) {
    int64_t iteration = in->t - 1, length = warmup_length(in);
    if (iteration < 0) return 0;
    if (iteration >= length) return 1;
    if (in->o->warmup_type == TRI_WARMUP_LINEAR) return (double)iteration / (double)length;
    return log((double)iteration + 1) / log((double)length);
}

static double between(const rate_input *in, double fraction) {
    double least = in->o->warmup_min_lr;
    return least + (peak_of(in) - least) * fraction;
}

static double warmup(const rate_input *in) { return between(in, warmup_fraction(in)); }

static int64_t total_of(const rate_input *in) {
    return in->o->total_steps ? in->o->total_steps : in->end;
}

static double warmup_decay(const rate_input *in) {
    int64_t iteration = in->t - 1, length = warmup_length(in), total = total_of(in);
    if (iteration < length) return between(in, warmup_fraction(in));
    return between(in, fmax((double)(total - iteration) / fmax((double)(total - length), 1), 0));
}

static double warmup_cosine(const rate_input *in) {
    int64_t iteration = in->t - 1, length = warmup_length(in);
    double start = in->o->warmup_min_ratio, end = in->o->cos_min_ratio;
    if (iteration < 0) return 0;
    if (iteration < length) return in->lr * (start + warmup_fraction(in) * (1 - start));
    double fraction = (double)(iteration - length + 1) / fmax((double)(total_of(in) - length), 1);
    return in->lr * (end + (1 - end) * (1 + cos(M_PI * fmin(fraction, 1))) / 2);
}

static double triangle(const rate_input *in) {
    const tri_schedule_options *o = in->o;
    double first = (double)o->first_steps;
    double second = o->second_steps ? (double)o->second_steps : first;
    double peak = peak_of(in), t = (double)in->t;
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
    double (*rate)(const rate_input *in);
    // Gives the schedule's first value, to which a warm-up before the schedule rises; NULL: that
    // value is lr.
    double (*start)(const rate_input *in);
    bool warms_up; // the schedule has its own warm-up, so `t` counts from the first update
} rows[] = {{"constant", constant, NULL, false},
            {"step", step, NULL, false},
            {"linear", linear, linear_start, false},
            {"polynomial", polynomial, NULL, false},
            {"cosine", cosine, NULL, false},
            {"cosine_restarts", cosine_restarts, NULL, false},
            {"inverse_sqrt", inverse_sqrt, NULL, false},
            {"plateau", plateau, plateau, false},
            {"onecycle", onecycle, onecycle_start, false},
            {"warmup", warmup, NULL, true},
            {"warmup-decay", warmup_decay, NULL, true},
            {"warmup-cosine", warmup_cosine, NULL, true},
            {"triangle", triangle, NULL, true}};

typedef struct rate_length {
    const char *name, *key;
    int64_t length;
} rate_length;

// Finds the key with the length of a schedule that ends, and the length; 0: the end of the run.
// False: the schedule has no end.
static bool find_length(const tri_schedule_options *o, rate_length *out) {
    const rate_length lengths[] = {{"linear", "total_iters", o->total_iters},
                                   {"polynomial", "total_iters", o->total_iters},
                                   {"cosine", "T_max", o->T_max},
                                   {"onecycle", "total_steps", o->total_steps},
                                   {"warmup-decay", "total_steps", o->total_steps},
                                   {"warmup-cosine", "total_steps", o->total_steps}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        *out = lengths[i];
        if (!strcmp(o->name, out->name)) return true;
    }
    return false;
}

static size_t row_of(const tri_schedule_options *o) {
    size_t row = 0;
    while (row < sizeof rows / sizeof *rows && strcmp(rows[row].name, o->name) != 0) row++;
    TRI_ASSERT(row < sizeof rows / sizeof *rows);
    return row;
}

tri_status tri_rate_check(const tri_rate *rate) {
    const tri_schedule_options *o = rate->schedule;
    rate_length until;
    if (rate->total_updates > 0) return TRI_OK;
    if (o->warmup_steps.is_fraction && o->warmup_steps.value > 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "schedule.warmup_steps: is a fraction of the run, but the run has no end; "
                        "set trainer.max_epochs or max_steps, or a whole number");
    if (find_length(o, &until) && until.length == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "schedule.name: %s lasts until the end of the run, but the run has no end; "
                        "set trainer.max_epochs or max_steps, or schedule.%s",
                        o->name, until.key);
    return TRI_OK;
}

const char *tri_rate_inverted(const tri_rate *rate, double *least, double *most) {
    const tri_schedule_options *o = rate->schedule;
    const struct {
        const char *name, *key;
        double least;
    } lows[] = {{"cosine", "eta_min", o->eta_min},
                {"cosine_restarts", "eta_min", o->eta_min},
                {"polynomial", "end_lr", o->end_lr},
                {"plateau", "min_lr", o->min_lr},
                {"warmup", "warmup_min_lr", o->warmup_min_lr},
                {"warmup-decay", "warmup_min_lr", o->warmup_min_lr},
                {"triangle", "min_lr", o->min_lr}};
    *most = o->max_lr > 0 ? o->max_lr : rate->lr;
    for (size_t i = 0; i < sizeof lows / sizeof *lows; i++) {
        *least = lows[i].least;
        if (!strcmp(o->name, lows[i].name) && *least > *most) return lows[i].key;
    }
    return NULL;
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

double tri_rate_at(const tri_rate *rate, int64_t update, int64_t epoch) {
    const tri_schedule_options *o = rate->schedule;
    size_t row = row_of(o);
    rate_input in = {.o = o,
                     .lr = rate->lr,
                     .t = update,
                     .end = rate->total_updates,
                     .warmup = warmup_of(rate),
                     .lowered = tri_rate_lowered(rate)};
    if (rows[row].warms_up) return rows[row].rate(&in);
    if (update < in.warmup)
        return (rows[row].start ? rows[row].start(&in) : in.lr) * (double)(update + 1) /
               (double)in.warmup;
    if (o->every == TRI_EVERY_EPOCH) {
        in.t = epoch;
        in.end = (in.end + rate->steps_per_epoch - 1) / rate->steps_per_epoch;
        return rows[row].rate(&in);
    }
    in.t -= in.warmup;
    in.end = in.end > in.warmup ? in.end - in.warmup : 0;
    return rows[row].rate(&in);
}

static double rate_in_epochs(const tri_rate *rate, int64_t update) {
    return tri_rate_at(rate, update, update / rate->steps_per_epoch);
}

bool tri_rate_ends_early(const tri_rate *rate, tri_rate_end *out) {
    const tri_schedule_options *o = rate->schedule;
    rate_length until;
    if (rate->total_updates <= 0 || !find_length(o, &until) || until.length == 0) return false;
    bool warms_up = rows[row_of(o)].warms_up, by_epoch = !warms_up && o->every == TRI_EVERY_EPOCH;
    int64_t length = until.length;
    if (by_epoch && __builtin_mul_overflow(length, rate->steps_per_epoch, &length)) return false;
    int64_t end = by_epoch || warms_up ? length : length + warmup_of(rate);
    if (end >= rate->total_updates) return false;
    // Beyond T_max the rate of cosine rises again, as PyTorch's does, until twice T_max.
    bool rises = !strcmp(o->name, "cosine");
    int64_t last = rate->total_updates - 1;
    if (rises && last - end > length) last = end + length;
    *out = (tri_rate_end){
        .update = end, .key = until.key, .rises = rises, .rate = rate_in_epochs(rate, last)};
    double least = rises ? rate_in_epochs(rate, end) : 0,
           peak = o->max_lr > 0 ? o->max_lr : rate->lr;
    return (out->rate - least > peak / 100) == rises;
}

bool tri_rate_stays(const tri_rate *rate) {
    rate_length until;
    int64_t total = rate->total_updates;
    bool by_epoch =
        !rows[row_of(rate->schedule)].warms_up && rate->schedule->every == TRI_EVERY_EPOCH;
    return by_epoch && find_length(rate->schedule, &until) && total > 1 &&
           total <= rate->steps_per_epoch;
}

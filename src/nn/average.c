// Which steps count in the averages of the weights, and how much, and the option table of the
// recipe's section `average`. Read next: train/average.c.
#include "nn/average.h"

#include <math.h>
#include <string.h>

#define S tri_average_options

static const tri_option rows[] = {
    TRI_OPTION_NAME(S, name, "none", "whether to average the weights over steps, and how"),
    TRI_OPTION_BOOL(S, evaluate, "true",
                    "evaluations, predictions and exports use the averages as soon as there are "
                    "any, and so do the best checkpoint and early stopping"),
};
static const tri_option ema_rows[] = {
    TRI_OPTION_FLOAT(S, decay, "0.999", 0, 1, "how much of the average each counted step keeps"),
    TRI_OPTION_INT(S, every_n_steps, "1", 1, 1e15, "steps divisible by it count"),
    TRI_OPTION_INT(S, start_step, "0", 0, 1e15,
                   "steps up to this one do not count; the average begins as the weights after the "
                   "first that does"),
};
static const tri_option swa_rows[] = {
    TRI_OPTION_FLOAT(S, start, "0.8", 0, 1,
                     "fraction of the run's steps after which the weights of all steps count "
                     "alike"),
    TRI_OPTION_FLOAT(S, lr, "0", 0, 1e6,
                     "learning rate of the steps that count; 0: as the schedule says"),
};
static const tri_option_variant kinds[] = {
    {.name = "none", .help = "no averages"},
    TRI_OPTION_VARIANT("ema", ema_rows, "exponential moving average"),
    TRI_OPTION_VARIANT("swa", swa_rows,
                       "stochastic weight averaging: the mean over the last steps of the run"),
};

static tri_status check(const void *options, const tri_tree *map) {
    const S *o = options;
    if (o->decay >= 1)
        return tri_tree_fail(tri_tree_get(map, "decay"), "'average.decay' has to be less than 1");
    if (o->start >= 1)
        return tri_tree_fail(tri_tree_get(map, "start"), "'average.start' has to be less than 1");
    return TRI_OK;
}

const tri_option_table tri_average_table =
    TRI_OPTION_TABLE("average", S, rows, "averages of the weights", .variants = kinds,
                     .variant_count = TRI_OPTION_COUNT(kinds), .check = check);

static bool is_swa(const S *o) { return !strcmp(o->name, "swa"); }

bool tri_average_is_on(const S *o) { return o->name && strcmp(o->name, "none") != 0; }

int64_t tri_average_start(const S *o, int64_t total_steps) {
    // 0.29 * 100 is less than 29 in F64.
    return is_swa(o) ? (int64_t)floor(o->start * (double)total_steps + 1e-6) : o->start_step;
}

bool tri_average_counts(const S *o, int64_t start, int64_t step) {
    return tri_average_is_on(o) && step > start && (is_swa(o) || step % o->every_n_steps == 0);
}

double tri_average_weight(const S *o, int64_t counted) {
    if (counted == 0) return 1;
    return is_swa(o) ? 1 / (double)(counted + 1) : 1 - o->decay;
}

// Averages of the weights over the steps of a run (the recipe's section `average`): with which
// weight each step counts. The average of a parameter is one more state beside the optimizer's
// (nn/optimizer.h).
#ifndef TRIREME_NN_AVERAGE_H
#define TRIREME_NN_AVERAGE_H

#include "base/option.h"

// Options that the named kind of average does not have are zero.
typedef struct tri_average_options {
    const char *name; // none | ema | swa
    // Whether evaluations, predictions and exports use the averages where there are any.
    bool evaluate;
    double decay;          // ema: how much of the average each counted step keeps
    int64_t every_n_steps; // ema: steps divisible by it count
    int64_t start_step;    // ema: steps up to this one do not count
    double start;          // swa: the fraction of the run's steps after which all steps count
    double lr;             // swa: the learning rate of the steps that count; 0: the schedule's
} tri_average_options;

extern const tri_option_table tri_average_table;

bool tri_average_is_on(const tri_average_options *options);
// The last step (from 1) before the average may begin. `total_steps`: of the whole run; swa needs
// them.
int64_t tri_average_start(const tri_average_options *options, int64_t total_steps);
// Whether the weights after step `step` (from 1) count. `start`: tri_average_start.
bool tri_average_counts(const tri_average_options *options, int64_t start, int64_t step);
// The weight w of a step that counts, after `counted` others: average += w * (weights - average).
// The first one has the weight 1. As torch.optim.swa_utils: get_ema_multi_avg_fn, and the running
// mean that is AveragedModel's default.
double tri_average_weight(const tri_average_options *options, int64_t counted);

#endif

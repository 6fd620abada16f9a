// The learning rate of each update: a pure function of the recipe.
#ifndef TRIREME_TRAIN_RATE_H
#define TRIREME_TRAIN_RATE_H

#include "base/status.h"
#include "recipe/trainer.h"

typedef struct tri_rate {
    const tri_schedule_options *schedule;
    double lr; // optimizer.lr
    int64_t steps_per_epoch;
    int64_t total_updates; // of the whole run; 0: the run has no end
} tri_rate;

// TRI_BAD_INPUT if the schedule depends on the end of a run that has none.
tri_status tri_rate_check(const tri_rate *rate);
// The updates of the warm-up if it is as long as the run or longer; 0: it ends before the run.
int64_t tri_rate_endless_warmup(const tri_rate *rate);
// The learning rate of update `update`, counted from 0.
double tri_rate_at(const tri_rate *rate, int64_t update);

#endif

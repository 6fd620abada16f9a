// The learning rate of each update: a pure function of the recipe.
#ifndef TRIREME_TRAIN_RATE_H
#define TRIREME_TRAIN_RATE_H

#include "base/status.h"
#include "recipe/trainer.h"

typedef struct tri_rate {
    const tri_schedule_options *schedule;
    double lr; // optimizer.lr
    int64_t steps_per_epoch;
    int64_t total_updates; // of the whole run; 0: open end
} tri_rate;

// TRI_BAD_INPUT when the schedule reaches to the end of a run that has none.
tri_status tri_rate_check(const tri_rate *rate);
// Updates of a warm-up that is as long as the whole run or longer; 0: it ends before the run does.
int64_t tri_rate_endless_warmup(const tri_rate *rate);
// The learning rate of update `update`, counted from 0.
double tri_rate_at(const tri_rate *rate, int64_t update);

#endif

// The learning rate of each update (a step that changes the weights). It is a pure function of the
// recipe and the numbers of the update and its epoch, so that a resumed run needs no state of a
// scheduler; for plateau, also of how far the rate was lowered.
#ifndef TRIREME_TRAIN_RATE_H
#define TRIREME_TRAIN_RATE_H

#include "base/status.h"
#include "recipe/trainer.h"

typedef struct tri_rate {
    const tri_schedule_options *schedule;
    double lr; // the recipe's optimizer.lr
    int64_t steps_per_epoch;
    int64_t total_updates; // updates of the whole run; 0: the run has no end
    double factor;         // by which plateau has lowered the rate; 0: it has not
} tri_rate;

// Checks the schedule. TRI_BAD_INPUT: it depends on the length of the run, and the run has no end.
tri_status tri_rate_check(const tri_rate *rate);
// If the warm-up is as long as the run or longer, returns its length in updates, for a warning:
// the learning rate then only rises. Else returns 0.
int64_t tri_rate_endless_warmup(const tri_rate *rate);
// If the schedule's lowest rate is above its highest one, returns the former's key, and both, for a
// warning. Else returns NULL.
const char *tri_rate_inverted(const tri_rate *rate, double *least, double *most);
typedef struct tri_rate_end {
    int64_t update;  // after how many updates the schedule ends
    const char *key; // of its length
    bool rises;      // the rate rises again after it
    double rate;     // the rate of the rest of the run, or the highest to which it rises again
} tri_rate_end;

// Whether the schedule ends before the run, and leaves it a rate below a hundredth of the peak or,
// as cosine does beyond T_max, one that rises again. For a warning.
bool tri_rate_ends_early(const tri_rate *rate, tri_rate_end *out);
// Whether the schedule counts epochs, and would change the rate with each, in a run that ends
// within the first one. For a warning: this is no wish of anybody.
bool tri_rate_stays(const tri_rate *rate);
// The learning rate of plateau after its warm-up.
double tri_rate_lowered(const tri_rate *rate);
// The learning rate of update `update` in epoch `epoch`, both counted from 0. Steps that changed
// nothing are no updates but belong to an epoch, so neither number follows from the other.
double tri_rate_at(const tri_rate *rate, int64_t update, int64_t epoch);

#endif

// How a monitored metric has gone, for early stopping and for the schedule plateau.
#ifndef TRIREME_TRAIN_WATCHED_H
#define TRIREME_TRAIN_WATCHED_H

#include "train/rate.h"

typedef struct tri_watched {
    bool has_best, has_last;
    bool is_lost;        // the latest value is not finite
    double best, last;   // the best and the latest finite value
    const char *best_of; // metric, mode and samples of `best`; NULL: not known
    int64_t waited;      // number of evaluations since the best one
} tri_watched;

// What the schedule plateau knows of a run.
typedef struct tri_plateau {
    tri_watched watched; // `waited` begins again with each lowering and in a cooldown
    int64_t cooldown;    // evaluations that are still ignored
    double factor;       // by which the learning rate was lowered; 0: it was not
} tri_plateau;

// How much better value `a` is than `b`; below 0: it is worse.
double tri_gain(tri_monitor_mode mode, double a, double b);
// Counts an evaluation: its value is the best one so far if it is better by more than `margin`.
// `value` NULL: it is not finite, so none better. `of` is kept as best_of.
void tri_watch(tri_watched *w, tri_monitor_mode mode, double margin, const double *value,
               const char *of);
// Counts an evaluation for plateau, by the rule of torch.optim.lr_scheduler.ReduceLROnPlateau, with
// the options and rate of `rate`. Returns whether it lowers the rate: rate->lowered is then one
// more than before.
bool tri_plateau_follow(tri_plateau *p, tri_rate *rate, const double *value, const char *of);

#endif

// The curve of a search for a learning rate (lr_find.h), and the rules that choose a rate from it.
#ifndef TRIREME_TRAIN_LR_RULE_H
#define TRIREME_TRAIN_LR_RULE_H

#include <stdbool.h>

typedef struct tri_lr_point {
    double lr;
    double loss; // smoothed: the mean of the losses so far, each with 0.98 of the next one's weight
} tri_lr_point;

// A curve under way. All zero but for `points`, which has room for all steps: no step yet.
typedef struct tri_lr_curve {
    tri_lr_point *points;
    int count;
    double average, best; // what the smoothed loss is made from, and the smallest one so far
} tri_lr_curve;

// The rate of step `step` of `steps`, at least two: it rises from `least` to `most` by equal
// factors.
double tri_lr_of_step(double least, double most, int steps, int step);
// Adds a step's loss. Returns whether the search ends with it, because the smoothed loss exceeds
// four times the smallest one (Lightning and fastai; not asked where that is negative) or is not
// finite; what is not finite is no point of the curve.
bool tri_lr_curve_add(tri_lr_curve *curve, double lr, double loss);

// Chooses a point of a curve that was made for so many steps. Returns its index; -1: the curve has
// too few points.
typedef int tri_lr_rule(const tri_lr_curve *curve, int steps);
// The point where the loss falls most from step to step: the smallest central difference (at the
// ends one-sided) without the first ten points and the last, as Lightning's suggestion is up to
// 2.4. From 2.5 on it divides by the rate's own differences, which makes one of the smallest rates
// the steepest.
tri_lr_rule tri_lr_steepest;
// fastai's: half of the way through the longest decreasing subsequence of the losses, in thirds
// rounded down, without the first tenth of the steps and the last five points.
tri_lr_rule tri_lr_valley;

#endif

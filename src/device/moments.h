// Joins the moments (number, mean and sum of squared deviations from the mean) of two groups of
// values into those of all the values, on the host or a GPU. The variance follows from the joined
// moments. If it were computed as the mean of squares minus the square of the mean, digits would
// cancel.
#ifndef TRIREME_DEVICE_MOMENTS_H
#define TRIREME_DEVICE_MOMENTS_H

#include "base/kernel_inline.h"

typedef struct tri_moments {
    double count, mean;
    double squares; // the sum of squared deviations from the mean
} tri_moments;

// Computes the moments of the values of both groups together; `b` is not empty. Chan, Golub and
// LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
TRI_KERNEL_INLINE tri_moments tri_moments_join(tri_moments a, tri_moments b) {
    tri_moments both = {a.count + b.count, 0, 0};
    double delta = b.mean - a.mean;
    both.mean = a.mean + delta * b.count / both.count;
    both.squares = a.squares + b.squares + delta * delta * a.count * b.count / both.count;
    return both;
}

#endif

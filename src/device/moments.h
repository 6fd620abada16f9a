// Mean and variance of values that are summed in several groups.
#ifndef TRIREME_DEVICE_MOMENTS_H
#define TRIREME_DEVICE_MOMENTS_H

typedef struct tri_moments {
    double count, mean;
    double squares; // the sum of squared deviations from the mean
} tri_moments;

// The moments of the values of both groups together; `b` is not empty. Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
tri_moments tri_moments_join(tri_moments a, tri_moments b);

#endif

// The logarithm of the gamma function, and its first two derivatives, digamma and trigamma, in F64;
// results of F32 are rounded once. The host and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_FORMULA_GAMMA_H
#define TRIREME_OPS_FORMULA_GAMMA_H

#include "base/kernel_inline.h"

#include <math.h>

TRI_KERNEL_INLINE double formula_lgamma(double x) {
#if defined(GPU_KERNEL) && !defined(TRIREME_EMULATED_GPU)
    return lgamma(x);
#else
    int sign; // lgamma writes it to a variable that all threads have in common
    return lgamma_r(x, &sign);
#endif
}

// From 10 on by the asymptotic series (Abramowitz and Stegun, "Handbook of Mathematical Functions",
// 6.3.18), which smaller x reach by psi(x) = psi(x + 1) - 1 / x, and those below 0 by reflection,
// psi(1 - x) - psi(x) = pi / tan(pi x). NaN at the poles below 0, an infinity at 0, as in PyTorch.
TRI_KERNEL_INLINE double formula_digamma(double x) {
    const double pi = 3.14159265358979323846;
    double sum = 0;
    if (x == 0) return 1 / -x;
    if (x < 0) {
        double part = x - floor(x);
        if (!(part > 0)) return (double)NAN;
        sum = -pi / tan(pi * part);
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum -= 1 / x;
    double z = 1 / (x * x), p = 1.0 / 12;
    p = 691.0 / 32760 - p * z;
    p = 1.0 / 132 - p * z;
    p = 1.0 / 240 - p * z;
    p = 1.0 / 252 - p * z;
    p = 1.0 / 120 - p * z;
    p = 1.0 / 12 - p * z;
    return sum + (log(x) - 0.5 / x - p * z);
}

// The same for the derivative of digamma (6.4.12, 6.4.6 and 6.4.7): infinite at its poles.
TRI_KERNEL_INLINE double formula_trigamma(double x) {
    const double pi = 3.14159265358979323846;
    double sum = 0, sign = 1;
    if (x < 0.5) {
        double sine = sin(pi * (x - floor(x)));
        if (x - x != 0) return x - x;
        sum = pi / sine * (pi / sine);
        sign = -1;
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum += sign / (x * x);
    double z = 1 / (x * x), p = 7.0 / 6;
    p = 691.0 / 2730 - p * z;
    p = 5.0 / 66 - p * z;
    p = 1.0 / 30 - p * z;
    p = 1.0 / 42 - p * z;
    p = 1.0 / 30 - p * z;
    p = 1.0 / 6 - p * z;
    return sum + sign * (1 / x + 0.5 * z + p * z / x);
}

#endif

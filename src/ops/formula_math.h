// The functions by which the steps of a formula (formula.h) are computed with the standard library:
// in F64 where this is C, and in the type of their operands where it is C++.
#ifndef TRIREME_OPS_FORMULA_MATH_H
#define TRIREME_OPS_FORMULA_MATH_H

#include "ops/formula_division.h"
#include "ops/formula_erfinv.h"
#include "ops/formula_gamma.h"

FORMULA_DIVISION(double, floor)
FORMULA_ERFINV(double, erf, erfc, exp, log, sqrt)
#if defined(__cplusplus)
FORMULA_DIVISION(float, floorf)
FORMULA_ERFINV(float, erff, erfcf, expf, logf, sqrtf)
#endif

#define MAP_POW(a, b) pow(a, b)
#define MAP_ABS(a) fabs(a)
#define MAP_FLOOR(a) floor(a)
#define MAP_CEIL(a) ceil(a)
#define MAP_ROUND(a) rint(a)
#define MAP_SQRT(a) sqrt(a)
#define MAP_EXP(a) exp(a)
#define MAP_EXPM1(a) expm1(a)
#define MAP_LOG(a) log(a)
#define MAP_LOG1P(a) log1p(a)
#define MAP_SIN(a) sin(a)
#define MAP_COS(a) cos(a)
#define MAP_ATAN(a) atan(a)
#define MAP_ERF(a) erf(a)
#define MAP_ERFINV(a) formula_erfinv(a)
#define MAP_LGAMMA(a) ((__typeof__(a))formula_lgamma((double)(a)))
#define MAP_DIGAMMA(a) ((__typeof__(a))formula_digamma((double)(a)))
#define MAP_TRIGAMMA(a) ((__typeof__(a))formula_trigamma((double)(a)))
#define MAP_NORMAL_CDF(a) (erfc((a) * (__typeof__(a))-0.70710678118654752440) / 2)
#define MAP_TANH(a) tanh(a)
#define MAP_SIGMOID(a) (1 / (1 + exp(-(a))))
#define MAP_FLOOR_DIV(a, b) formula_floor_div(a, b, MAP_FMOD(a, b))
#define MAP_REMAINDER(a, b) formula_remainder(b, MAP_FMOD(a, b))
#define MAP_FMOD(a, b) fmod(a, b)

#endif

// Division with remainder of floating numbers, as PyTorch's // and %: the quotient is rounded down,
// and the remainder has the sign of the divisor. By 0 the quotient is infinite or NaN, the
// remainder NaN. The host and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_FORMULA_DIVISION_H
#define TRIREME_OPS_FORMULA_DIVISION_H

#include "base/kernel_inline.h"

#include <math.h>

// Defines the functions for a type, which has these functions of the standard library. In C, a
// source has them for one type.
#define FORMULA_DIVISION(type, FMOD, FLOOR)                                                        \
    TRI_KERNEL_INLINE type formula_remainder(type a, type b) {                                     \
        type rest = FMOD(a, b);                                                                    \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                               \
    }                                                                                              \
    TRI_KERNEL_INLINE type formula_floor_div(type a, type b) {                                     \
        type rest = FMOD(a, b), quotient = (a - rest) / b; /* whole but for its rounding */        \
        if (b == 0) return a / b;                                                                  \
        if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;                                     \
        type whole = FLOOR(quotient);                                                              \
        return quotient - whole > (type)0.5 ? whole + 1 : whole;                                   \
    }

#endif

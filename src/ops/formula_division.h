// Division with remainder of floating numbers, as PyTorch's // and %: the quotient is rounded down,
// and the remainder has the sign of the divisor. By 0 the quotient is infinite or NaN, the
// remainder NaN. The host and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_FORMULA_DIVISION_H
#define TRIREME_OPS_FORMULA_DIVISION_H

#include "base/kernel_inline.h"

#include <math.h>

// Defines the functions for a type. `rest` is fmod(a, b). In C, a source has them for one type.
#define FORMULA_DIVISION(type, FLOOR)                                                              \
    TRI_KERNEL_INLINE type formula_remainder(type b, type rest) {                                  \
        type other = rest + b;                                                                     \
        return (rest != 0) & ((rest < 0) != (b < 0)) ? other : rest;                               \
    }                                                                                              \
    TRI_KERNEL_INLINE type formula_floor_div(type a, type b, type rest) {                          \
        type quotient = (a - rest) / b; /* whole but for its rounding */                           \
        type less = (rest != 0) & ((rest < 0) != (b < 0)) ? (type)1 : (type)0;                     \
        type whole = FLOOR(quotient - less), next = whole + 1, by_zero = a / b;                    \
        whole = quotient - less - whole > (type)0.5 ? next : whole;                                \
        return b == 0 ? by_zero : whole;                                                           \
    }

#endif

// The inverse of the error function, by Halley's method from S. Winitzki's approximation ("A handy
// approximation for the error function and its inverse", 2008): of erf in the middle, and of erfc
// at the ends, where 1 - |y| is exact. The host and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_FORMULA_ERFINV_H
#define TRIREME_OPS_FORMULA_ERFINV_H

#include "base/kernel_inline.h"

#include <math.h>

// Defines the function for a type, which has these functions of the standard library. In C, a
// source has it for one type.
#define FORMULA_ERFINV(type, ERF, ERFC, EXP, LOG, SQRT)                                            \
    TRI_KERNEL_INLINE type formula_erfinv(type y) {                                                \
        const type slope = (type)0.88622692545275801365; /* sqrt(pi) / 2 */                        \
        type size = y < 0 ? -y : y, rest = 1 - size;                                               \
        if (!(rest > 0)) return rest == 0 ? y / rest : rest - rest + LOG(rest);                    \
        type half = LOG(rest * (1 + size)) / 2, middle = (type)4.3307467508 + half;                \
        type x = SQRT(SQRT(middle * middle - half * (type)13.6054421769) - middle);                \
        for (int i = 0; i < 3; i++) {                                                              \
            type far = size < (type)0.5 ? ERF(x) - size : rest - ERFC(x);                          \
            type step = far * EXP(x * x) * slope;                                                  \
            x -= step / (1 + x * step);                                                            \
        }                                                                                          \
        return y < 0 ? -x : y == 0 ? y : x;                                                        \
    }

#endif

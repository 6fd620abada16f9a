// The steps of formulas on integers, all computed in 64 bits, so that numbers above 2^53 stay
// exact. A result that has no room wraps, as in PyTorch. Quotients are rounded down, and remainders
// have the sign of the divisor (`fmod`: of the dividend). What is divided by 0 has the quotient and
// the remainder 0 on every device, as in NumPy. The host and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_FORMULA_INTEGER_H
#define TRIREME_OPS_FORMULA_INTEGER_H

#include "base/kernel_inline.h"
#include "ops/formula.h"

// Whether a step of this kind has an integer result for all integers.
TRI_KERNEL_INLINE bool formula_is_integer(int kind) {
    switch (kind) {
    case TRI_STEP_add:
    case TRI_STEP_sub:
    case TRI_STEP_mul:
    case TRI_STEP_min:
    case TRI_STEP_max:
    case TRI_STEP_neg:
    case TRI_STEP_abs:
    case TRI_STEP_sign:
    case TRI_STEP_less:
    case TRI_STEP_less_equal:
    case TRI_STEP_equal:
    case TRI_STEP_not:
    case TRI_STEP_select:
    case TRI_STEP_floor_div:
    case TRI_STEP_remainder:
    case TRI_STEP_fmod:
        return true;
    default:
        return kind >= TRI_STEP_bit_and; // the steps of bits
    }
}

// The remainder of a division that rounds towards 0. The smallest number divided by -1 has no
// quotient: processors stop there.
TRI_KERNEL_INLINE int64_t formula_integer_rest(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}

TRI_KERNEL_INLINE int64_t formula_integer_floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

TRI_KERNEL_INLINE int64_t formula_integer_step(int kind, int64_t a, int64_t b, int64_t c) {
    int64_t rest;
    switch (kind) {
#define A a
#define B b
#define X(name, arity, value)                                                                      \
    case TRI_STEP_##name:                                                                          \
        return value;
        TRI_BIT_STEP_LIST(X)
#undef X
#undef A
#undef B
    case TRI_STEP_floor_div:
        return formula_integer_floor_div(a, b);
    case TRI_STEP_remainder:
        rest = formula_integer_rest(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    case TRI_STEP_fmod:
        return formula_integer_rest(a, b);
    case TRI_STEP_add:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case TRI_STEP_sub:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case TRI_STEP_mul:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case TRI_STEP_min:
        return b < a ? b : a;
    case TRI_STEP_max:
        return b > a ? b : a;
    case TRI_STEP_neg:
        return (int64_t)(0 - (uint64_t)a);
    case TRI_STEP_abs:
        return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
    case TRI_STEP_sign:
        return a > 0 ? 1 : a < 0 ? -1 : 0;
    case TRI_STEP_less:
        return a < b;
    case TRI_STEP_less_equal:
        return a <= b;
    case TRI_STEP_equal:
        return a == b;
    case TRI_STEP_not:
        return a == 0;
    default: // TRI_STEP_select
        return a != 0 ? b : c;
    }
}

#endif

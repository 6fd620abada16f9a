// How fast a rotary position embedding turns a pair of features, in radians a position. The CPU and
// kernels of a GPU use the same code.
#ifndef TRIREME_OPS_ROTARY_RATE_H
#define TRIREME_OPS_ROTARY_RATE_H

#include "base/kernel_inline.h"

// Llama 3's slower rates for sequences longer than those of the first training: `length` positions.
// A pair that turns once in fewer than length / high positions keeps its rate, in more than length
// / low it is divided by `factor`, and between them it is a mixture. Source: Hugging Face's
// transformers, modeling_rope_utils.py. Factor 0: none.
typedef struct tri_rotary_scaling {
    double factor, low, high, length;
} tri_rotary_scaling;

TRI_KERNEL_INLINE double rotary_scaled(double rate, tri_rotary_scaling s) {
    const double tau = 6.283185307179586;
    if (s.factor == 0) return rate;
    double turns = s.length * rate / tau; // of the pair within `length` positions
    if (turns > s.high) return rate;
    if (turns < s.low) return rate / s.factor;
    double own = (turns - s.low) / (s.high - s.low);
    return (1 - own) * rate / s.factor + own * rate;
}

#endif

// Reductions whose state are two numbers, on the host or a GPU: the sum of squared distances from
// the mean (`squares`; the state is the mean and that sum), and the logarithm of a sum of
// exponentials (the largest and the sum of exp(x - shift)). The parts of a tensor are computed in
// two passes each, so that no digits cancel and nothing overflows, and are joined in F64.
#ifndef TRIREME_DEVICE_REDUCE_PAIR_H
#define TRIREME_DEVICE_REDUCE_PAIR_H

#include "device/moments.h"

#include <math.h>
#include <stdbool.h>

typedef struct tri_reduce_pair {
    double first, second;
} tri_reduce_pair;

// What the largest is subtracted as: 0 if it is not finite, for then exp(x) is right as it is.
TRI_KERNEL_INLINE double tri_pair_shift(double largest) {
    return largest - largest == 0 ? largest : 0;
}

TRI_KERNEL_INLINE double tri_pair_scaled(double sum, double largest, double most) {
    return sum == 0 || largest == most ? sum : sum * exp(largest - most);
}

// Joins the pairs of `a_terms` and of `b_terms` elements, of which the second are some.
TRI_KERNEL_INLINE tri_reduce_pair tri_pair_join(bool squares, double a_terms, tri_reduce_pair a,
                                                double b_terms, tri_reduce_pair b) {
    tri_reduce_pair joined = b;
    if (a_terms == 0) return b;
    if (squares) {
        tri_moments left = {a_terms, a.first, a.second}, right = {b_terms, b.first, b.second};
        tri_moments both = tri_moments_join(left, right);
        joined.first = both.mean;
        joined.second = both.squares;
        return joined;
    }
    joined.first = b.first != b.first || b.first > a.first ? b.first : a.first; // NaN stays
    joined.second = tri_pair_scaled(a.second, a.first, joined.first) +
                    tri_pair_scaled(b.second, b.first, joined.first);
    return joined;
}

TRI_KERNEL_INLINE double tri_pair_result(bool squares, tri_reduce_pair pair) {
    return squares ? pair.second : log(pair.second) + tri_pair_shift(pair.first);
}

#endif

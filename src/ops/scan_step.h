// One step of a scan (running sum, product, extreme) and of its gradient. All are computed in F64,
// so that a long sum has the digits of its type, and those of integers in 64 bits, where they wrap.
// The host and kernels of a GPU use the same code.
// Of equal extremes the last one counts, as in PyTorch.
#ifndef TRIREME_OPS_SCAN_STEP_H
#define TRIREME_OPS_SCAN_STEP_H

#include "ops/axis_ops.h"

#include <math.h>

typedef struct scan_so_far {
    double value;
    int64_t at; // index of the extreme along the axis
} scan_so_far;

TRI_KERNEL_INLINE scan_so_far scan_start(int64_t kind) {
    scan_so_far start = {kind == TRI_SCAN_PROD                                ? 1
                         : kind == TRI_SCAN_MIN                               ? (double)INFINITY
                         : kind == TRI_SCAN_MAX || kind == TRI_SCAN_LOGSUMEXP ? -(double)INFINITY
                                                                              : 0,
                         0};
    return start;
}

// The logarithm of exp(a) + exp(b).
TRI_KERNEL_INLINE double scan_log_sum(double a, double b) {
    if (a != a || b != b) return a + b;
    double most = a > b ? a : b, least = a > b ? b : a;
    return most == least ? most + log(2.0) : most + log1p(exp(least - most));
}

TRI_KERNEL_INLINE scan_so_far scan_step(int64_t kind, scan_so_far s, double x, int64_t at) {
    bool takes = x != x || (kind == TRI_SCAN_MAX ? x >= s.value : x <= s.value);
    if (kind == TRI_SCAN_SUM) s.value += x;
    if (kind == TRI_SCAN_PROD) s.value *= x;
    if (kind == TRI_SCAN_LOGSUMEXP)
        s.value = s.value == -(double)INFINITY ? x : scan_log_sum(s.value, x);
    if ((kind == TRI_SCAN_MAX || kind == TRI_SCAN_MIN) && takes && (s.value == s.value || x != x)) {
        s.value = x;
        s.at = at;
    }
    return s;
}

typedef struct scan_integer {
    int64_t value, at;
} scan_integer;

TRI_KERNEL_INLINE scan_integer scan_integer_start(int64_t kind) {
    scan_integer start = {kind == TRI_SCAN_PROD  ? 1
                          : kind == TRI_SCAN_MIN ? INT64_MAX
                          : kind == TRI_SCAN_MAX ? INT64_MIN
                                                 : 0,
                          0};
    return start;
}

TRI_KERNEL_INLINE scan_integer scan_integer_step(int64_t kind, scan_integer s, int64_t x,
                                                 int64_t at) {
    bool extreme = kind == TRI_SCAN_MAX || kind == TRI_SCAN_MIN;
    if (kind == TRI_SCAN_SUM) s.value = (int64_t)((uint64_t)s.value + (uint64_t)x);
    if (kind == TRI_SCAN_PROD) s.value = (int64_t)((uint64_t)s.value * (uint64_t)x);
    if (extreme && (kind == TRI_SCAN_MAX ? x >= s.value : x <= s.value)) {
        s.value = x;
        s.at = at;
    }
    return s;
}

// The gradient of a product or of a logarithm of sums goes from the end of the axis to its begin:
// s[k] = dy[k] + behind · s[k + 1], and dx[k] = own · s[k]. It divides by nothing, so that zeros
// among the factors are as good as other numbers. before: y[k - 1] (1 for k = 0); next_x, next_y:
// of k + 1.
TRI_KERNEL_INLINE double scan_behind(int64_t kind, double y, double next_x, double next_y) {
    return kind == TRI_SCAN_PROD ? next_x : y == next_y ? 1 : exp(y - next_y);
}

TRI_KERNEL_INLINE double scan_own(int64_t kind, double x, double y, double before) {
    if (kind == TRI_SCAN_PROD) return before;
    return x == -(double)INFINITY ? 0 : exp(x - y);
}

#endif

// The windows of average pooling, for the host and for kernels of a GPU, so that both have the
// same: see ops_avg_window.
#ifndef TRIREME_OPS_POOL_WINDOW_H
#define TRIREME_OPS_POOL_WINDOW_H

#include "base/kernel_inline.h"

#include <stdbool.h>
#include <stdint.h>

// One axis of the pooling of x, of `in` elements. If `out` is above 0, that many windows cover
// them.
typedef struct pool_axis {
    int64_t in, out, kernel, stride, padding;
} pool_axis;

// Window number `place` covers elements [*begin, *end).
TRI_KERNEL_INLINE void pool_window_at(const pool_axis *a, int64_t place, int64_t *begin,
                                      int64_t *end) {
    if (a->out > 0) { // windows that cover the axis and differ by at most one element
        *begin = place * a->in / a->out;
        *end = ((place + 1) * a->in + a->out - 1) / a->out;
        return;
    }
    int64_t first = place * a->stride - a->padding;
    *begin = first > 0 ? first : 0;
    *end = first + a->kernel < a->in ? first + a->kernel : a->in;
}

// The windows that cover element `at`, whose gradients the backward pass adds up, are [*begin,
// *end), of `windows` in all. They overlap where the stride is smaller than the kernel.
TRI_KERNEL_INLINE void pool_windows_over(const pool_axis *a, int64_t windows, int64_t at,
                                         int64_t *begin, int64_t *end) {
    if (a->out > 0) {
        *begin = at * a->out / a->in;
        *end = ((at + 1) * a->out + a->in - 1) / a->in;
    } else {
        int64_t first = at + a->padding - a->kernel + 1; // window's first element, at the least
        *begin = first > 0 ? (first + a->stride - 1) / a->stride : 0;
        *end = (at + a->padding) / a->stride + 1;
    }
    if (*end > windows) *end = windows;
}

#endif

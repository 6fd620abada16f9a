// Which elements a window of pooling covers along one axis, and which windows cover an element. The
// functions are inline, so that the host (ops_avg_window) and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_POOL_WINDOW_H
#define TRIREME_OPS_POOL_WINDOW_H

#include "base/kernel_inline.h"

#include <stdbool.h>
#include <stdint.h>

// What max pooling writes as index where ReLU or dropout has set the result to zero. Such a result
// passes no gradient back, so the position of the maximum is not needed.
enum { TRI_POOL_NO_GRADIENT = 255 };

// One axis of the pooling of x, with `in` elements. If `out` is above 0, that many windows cover
// the axis (adaptive pooling).
typedef struct pool_axis {
    int64_t in, out, kernel, stride, padding;
} pool_axis;

// Finds the elements [*begin, *end) of x that window number `window` covers.
TRI_KERNEL_INLINE void pool_window_at(const pool_axis *a, int64_t window, int64_t *begin,
                                      int64_t *end) {
    if (a->out == 1) { // global pooling; not divided, because GPUs divide slowly
        *begin = 0;
        *end = a->in;
        return;
    }
    if (a->out > 0) { // the windows cover the axis and differ in size by at most one element
        *begin = window * a->in / a->out;
        *end = ((window + 1) * a->in + a->out - 1) / a->out;
        return;
    }
    int64_t first = window * a->stride - a->padding;
    *begin = first > 0 ? first : 0;
    *end = first + a->kernel < a->in ? first + a->kernel : a->in;
}

// Finds the pooling windows that cover element `at` of x: [*begin, *end) of `windows` windows. The
// gradient of the element is the sum over these windows. There are several where windows overlap,
// for example if the stride is smaller than the kernel. The padded axis must have fewer than 2^31
// elements, because the last case divides in 32 bits, which is faster on a GPU.
TRI_KERNEL_INLINE void pool_windows_over(const pool_axis *a, int64_t windows, int64_t at,
                                         int64_t *begin, int64_t *end) {
    if (a->out == 1) {
        *begin = 0;
        *end = 1;
    } else if (a->out > 0) {
        *begin = at * a->out / a->in;
        *end = ((at + 1) * a->out + a->in - 1) / a->in;
    } else {
        // On the padded axis, the element is number at + padding, and window w covers elements
        // w · stride to w · stride + kernel - 1. A window that begins before `first` ends before
        // the element. The first window is therefore `first` / stride, rounded up.
        int64_t first = at + a->padding - a->kernel + 1;
        uint32_t stride = (uint32_t)a->stride;
        *begin = first > 0 ? ((uint32_t)first + stride - 1) / stride : 0;
        *end = (int64_t)((uint32_t)(at + a->padding) / stride) + 1;
    }
    if (*end > windows) *end = windows;
}

#endif

// Which elements of x an element of an interpolated tensor is computed from, along one axis, as
// PyTorch's interpolate has it. The functions are inline, so that the host and kernels of a GPU use
// the same code.
#ifndef TRIREME_OPS_INTERPOLATE_AXIS_H
#define TRIREME_OPS_INTERPOLATE_AXIS_H

#include "base/kernel_inline.h"

#include <stdbool.h>
#include <stdint.h>

// One axis that is resized from `in` to `out` elements.
typedef struct interpolate_axis {
    int64_t in, out;
    bool linear;        // between two neighbours; false: the nearest
    bool align_corners; // the first and the last elements keep their places
} interpolate_axis;

// An element is (1 - weight) · x[first] + weight · x[second].
typedef struct interpolate_source {
    int64_t first, second;
    double weight;
} interpolate_source;

TRI_KERNEL_INLINE interpolate_source interpolate_from(const interpolate_axis *a, int64_t at) {
    interpolate_source s = {at, at, 0};
    if (a->in == a->out) return s;
    if (!a->linear) { // in single precision, as PyTorch rounds it
        float scale = (float)a->in / (float)a->out, place = (float)at * scale;
        s.first = (int64_t)place < a->in - 1 ? (int64_t)place : a->in - 1;
        s.second = s.first;
        return s;
    }
    double place = a->align_corners && a->out > 1
                       ? (double)at * ((double)(a->in - 1) / (double)(a->out - 1))
                       : ((double)at + 0.5) * ((double)a->in / (double)a->out) - 0.5;
    if ((a->align_corners && a->out == 1) || place < 0) place = 0;
    s.first = (int64_t)place < a->in - 1 ? (int64_t)place : a->in - 1;
    s.second = s.first < a->in - 1 ? s.first + 1 : s.first;
    s.weight = place - (double)s.first;
    if (s.weight > 1) s.weight = 1;
    return s;
}

// The first element of the result that reads x[at] or an element behind it; `out` if there is none.
TRI_KERNEL_INLINE int64_t interpolate_reader(const interpolate_axis *a, int64_t at) {
    int64_t low = 0, high = a->out;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (interpolate_from(a, middle).second >= at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// How much of element `reader` of the result comes from x[at].
TRI_KERNEL_INLINE double interpolate_share(const interpolate_axis *a, int64_t reader, int64_t at) {
    interpolate_source s = interpolate_from(a, reader);
    return (s.first == at ? 1 - s.weight : 0) + (s.second == at ? s.weight : 0);
}

#endif

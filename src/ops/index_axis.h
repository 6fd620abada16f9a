// How indices name elements along one axis, for the ops gather and scatter: a tensor is outer ×
// size × inner, and there are `count` indices along its axis, for each outer and each inner index
// or the same ones for all. The struct is plain, so that the host and kernels of a GPU use the same
// code.
#ifndef TRIREME_OPS_INDEX_AXIS_H
#define TRIREME_OPS_INDEX_AXIS_H

#include "base/kernel_inline.h"

#include <stdbool.h>
#include <stdint.h>

// A tensor that is cut along one axis: what lies before it, its size, and what lies behind it.
typedef struct axis_cut {
    int64_t outer, size, inner;
} axis_cut;

typedef struct index_axis {
    axis_cut cut; // of the tensor whose elements the indices name
    int64_t count;
    // Index k for (outer o, inner i) is number o · outer_step + k · step + i · inner_step.
    int64_t outer_step, step, inner_step;
} index_axis;

TRI_KERNEL_INLINE int64_t index_axis_at(const index_axis *a, int64_t outer, int64_t k,
                                        int64_t inner) {
    return outer * a->outer_step + k * a->step + inner * a->inner_step;
}

// How many indices there are.
TRI_KERNEL_INLINE int64_t index_axis_indices(const index_axis *a) {
    return (a->outer_step ? a->cut.outer : 1) * a->count * (a->inner_step ? a->cut.inner : 1);
}

#endif

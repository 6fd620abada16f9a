// How a tensor is reduced: neighbouring axes are joined, so that most tensors become
// [outer, reduced, inner], and some [repeats, outer, reduced, inner], of which the first axis is
// reduced too: all samples and pixels of each channel.
#ifndef TRIREME_DEVICE_REDUCE_PLAN_H
#define TRIREME_DEVICE_REDUCE_PLAN_H

#include "graph/op.h"

typedef struct tri_reduce_plan {
    int64_t repeats, outer, reduced, inner;
    // Number of parts of the reduced axis, and their size. They depend on the shape alone, so that
    // a sum is added in the same order on any number of threads.
    int64_t parts, part;
} tri_reduce_plan;

// False: the axes cannot be joined like this, because reduced axes and others alternate more often,
// or an axis is empty. Unless `may_repeat`, there is one repeat. `tile`: the elements of the inner
// axis that one thread takes at a time.
bool tri_reduce_plan_make(const tri_shape *x, int64_t axes, int64_t tile, bool may_repeat,
                          tri_reduce_plan *out);

#endif

// Elementwise reductions of several ranks' memory. They add in rank order, so that the bits of a
// sum depend on the values only.
#ifndef TRIREME_COMM_REDUCE_H
#define TRIREME_COMM_REDUCE_H

#include "comm/comm.h"

// Reduces arrays element by element: out[o][i] = in[0][i] + in[1][i] + … (or the maximum or
// minimum), for i < count and o < out_count. Type and reduction are those of `op`. If `op`
// accumulates, in[0] is the old contents of its `recv`. An array of `out` may be one of the arrays
// of `in`. BF16 and F16 are added in F32 and rounded once, to nearest, ties to even. `stream`: the
// results are too large for the caches, so they are written past them where that is possible.
void comm_reduce(const tri_comm_op *op, int in_count, const void *const *in, int out_count,
                 void *const *out, size_t count, bool stream);
// Convert F32 to a half type, to nearest, ties to even, and back.
void comm_narrow(tri_dtype half, void *to, const void *from, int64_t count);
void comm_widen(tri_dtype half, void *to, const void *from, int64_t count);
// Copies as memcpy does. `stream`: the data are too large to stay in the caches until they are read
// again, so they are written past the caches where that is possible.
void comm_copy(void *to, const void *from, size_t bytes, bool stream);

#endif

// Elementwise reductions of several ranks' memory, in rank order, so that the bits depend on
// nothing else.
#ifndef TRIREME_COMM_REDUCE_H
#define TRIREME_COMM_REDUCE_H

#include "comm/comm.h"

// out[o][i] = in[0][i] + in[1][i] + … for `count` elements, o < outs, in the operation's types;
// where it accumulates, in[0] is what it adds to. An `out` may be one of the `in`. BF16 and F16 are
// added in F32 and rounded once, to nearest, ties to even. `stream`: the results are too many for
// the caches and are written past them where that is possible.
void comm_reduce(const tri_comm_op *op, int ins, const void *const *in, int outs, void *const *out,
                 size_t count, bool stream);
// memcpy, or past the caches.
void comm_copy(void *to, const void *from, size_t bytes, bool stream);

#endif

// The generic layer: does on top of a communicator what its backend cannot do by itself, with the
// bits that comm.h promises.
//
// - Sums in rank order, sums that accumulate and sums that travel as half types: an all-to-all of
//   the terms, which are added where they arrive, in rank order; an all-gather ends an ALL_REDUCE.
// - Mismatches: the ranks first compare what they call, over a control communicator.
//
// It works in memory that the host can touch. If the host cannot touch the device's memory,
// comm/staged, on top of this layer, copies between the two.
#ifndef TRIREME_COMM_GENERIC_GENERIC_H
#define TRIREME_COMM_GENERIC_GENERIC_H

#include "comm/comm.h"

// Takes over `inner` and `control`, which nobody else uses; both have the same ranks. *out has the
// abilities of `inner` and those of `wanted` (TRI_COMM_ARITHMETIC, TRI_COMM_FINDS_MISMATCHES). If
// nothing is missing it is `inner` itself. Collective. TRI_UNSUPPORTED: `inner` does not take
// memory that is `wanted`, or has too many ranks.
tri_status tri_comm_generic_open(tri_comm *inner, tri_comm *control, unsigned wanted,
                                 tri_comm **out);

#endif

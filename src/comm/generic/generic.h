// The generic layer: does on top of a communicator, the inner one, what its backend cannot do by
// itself, so that results have the bits that comm.h promises. A term is one rank's contribution to
// a sum.
//
// - Sums in rank order, sums that accumulate and sums that travel as half types: an all-to-all
//   brings the terms to the rank that adds them, in rank order. In an ALL_REDUCE an all-gather then
//   brings the sums to all ranks.
// - Mismatches: the ranks first compare their calls over a second communicator of the same ranks,
//   the control communicator.
//
// The layer works in memory that the host can read and write. If the host cannot do so with the
// device's memory, comm/staged, on top of this layer, copies between the two.
#ifndef TRIREME_COMM_GENERIC_GENERIC_H
#define TRIREME_COMM_GENERIC_GENERIC_H

#include "comm/comm.h"

// Opens the layer over `inner`. It takes over `inner` and `control`, which have the same ranks and
// which nobody else uses. *out has the abilities of `inner` and those in `wanted` (bits of
// tri_comm_ability). The layer can add the bits of TRI_COMM_ARITHMETIC, and
// TRI_COMM_FINDS_MISMATCHES. If `inner` lacks none of `wanted`, or has one rank, *out is `inner`
// itself. Collective. TRI_UNSUPPORTED: `inner` does not take the kind of memory that `wanted` asks
// for, or has more than TRI_MAX_GENERIC_RANKS ranks.
tri_status tri_comm_generic_open(tri_comm *inner, tri_comm *control, unsigned wanted,
                                 tri_comm **out);

#endif

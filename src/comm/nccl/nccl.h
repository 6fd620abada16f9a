// A communicator for the memory of NVIDIA's GPUs. Collectives go from GPU to GPU by NCCL, on a
// queue of their own; the host only issues them. Sums in rank order, sums that accumulate, and sums
// that travel as half types or are of half types, which NCCL would round at each addition, are
// exchanged as terms and added by a kernel of ours. Sends and receives go through the memory of the
// host (comm/staged), where messages of different pairs of ranks overtake each other, as comm.h has
// it; NCCL does what it is asked for in order.
//
// A thread of the communicator issues the groups in order. Before it issues one, the ranks compare
// over the control network what they call: well ahead of the GPU, which is still busy with earlier
// work.
#ifndef TRIREME_COMM_NCCL_NCCL_H
#define TRIREME_COMM_NCCL_NCCL_H

#include "comm/comm.h"
#include "device/device.h"

// tri_comm_nccl_takes: whether NCCL takes memory of devices of this kind. tri_comm_nccl_is_there:
// whether this rank has the library and may use it; TRIREME_NCCL=0 forbids that.
bool tri_comm_nccl_takes(const tri_device *device);
bool tri_comm_nccl_is_there(const tri_device *device);
// Opens the communicator. Collective. Takes over `compares`, a communicator of the same ranks in
// the host's memory, over which calls are compared, and `messages`, which carries sends and
// receives, also if it fails. *out cannot be split.
tri_status tri_comm_nccl_open(tri_comm *compares, tri_comm *messages, tri_device *device,
                              bool rank_order, tri_comm **out);
// Ends what is under way, as tri_comm_staged_stop does, so that nothing waits for it for ever. Does
// nothing for NULL and for communicators of other kinds.
void tri_comm_nccl_stop(tri_comm *comm);

#endif

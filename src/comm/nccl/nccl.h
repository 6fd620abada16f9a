// A communicator for the memory of GPUs. Data go from GPU to GPU by NCCL, on queues of its own; the
// host only issues them. Sums in rank order, sums that accumulate, and sums that travel as half
// types or are of half types, which NCCL would round at each addition, are exchanged as terms and
// added by a kernel of ours.
//
// A thread of the communicator issues the groups. Before it issues one, the ranks compare over the
// control network what they call: collectives well ahead of the GPU, which is still busy with
// earlier work, and a message when what it sends is ready, so that no call of NCCL is on a GPU that
// waits for the work of another.
#ifndef TRIREME_COMM_NCCL_NCCL_H
#define TRIREME_COMM_NCCL_NCCL_H

#include "comm/comm.h"
#include "device/device.h"

// Whether NCCL takes memory of devices of this kind.
bool tri_comm_nccl_takes(const tri_device_backend *backend);
// TRI_NOT_FOUND: this rank has no NCCL that can be used, or TRIREME_NCCL=0 forbids it. *splits: it
// has one that splits communicators.
tri_status tri_comm_nccl_find(const tri_device *device, bool *splits);

typedef struct tri_comm_nccl_config {
    tri_device *device;
    tri_comm_use use;
    bool rank_order;
    bool splits;      // every rank has a library that splits communicators
    tri_comm *parent; // a data communicator that is split with `colour`, by all its ranks, in order
    int colour;       // of their ranks; NULL, or of another kind: the ranks get an id of their own
} tri_comm_nccl_config;

// Collective. Takes over `compares`, a communicator of the same ranks in the host's memory, also if
// it fails. *out cannot be split.
tri_status tri_comm_nccl_open(tri_comm *compares, const tri_comm_nccl_config *config,
                              tri_comm **out);
// See tri_comm_data_bytes.
int64_t tri_comm_nccl_bytes(int ranks, tri_comm_use use, int links, int64_t *estimate);
#endif

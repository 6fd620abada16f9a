// A communicator for the memory of GPUs. Data go from GPU to GPU by NCCL, on queues of the GPU that
// only this communicator uses; the host only issues the work. NCCL cannot do some sums as comm.h
// promises: sums in rank order, sums that are added to the old contents of the result, sums of F32
// that travel as half types (F16, BF16), and sums of half types, which NCCL would round at each
// addition. For these, the ranks exchange their terms (what each rank contributes to the sum), and
// our own kernel adds them.
//
// A thread of the communicator issues the operation groups (the operations that one call of `start`
// begins together). Before it issues one, the ranks compare what they call, over a communicator in
// the host's memory. Collectives are compared early, while the GPU is still busy with earlier work.
// A send and its receive are compared only when the data to send are ready. Otherwise NCCL's
// receive would occupy its GPU while the sender still computes.
#ifndef TRIREME_COMM_NCCL_NCCL_H
#define TRIREME_COMM_NCCL_NCCL_H

#include "comm/comm.h"
#include "device/device.h"

// Whether NCCL can use the memory of devices of this kind.
bool tri_comm_nccl_takes(const tri_device_backend *backend);
// Looks for NCCL. TRI_NOT_FOUND: this rank has no usable NCCL, or TRIREME_NCCL=0 forbids it. Sets
// *splits to whether this rank's NCCL can split communicators.
tri_status tri_comm_nccl_find(const tri_device *device, bool *splits);

typedef struct tri_comm_nccl_config {
    tri_device *device;
    tri_comm_use use;
    bool rank_order; // all sums are added in the order of ranks
    bool splits;     // every rank's NCCL can split communicators
    // A communicator for the memory of devices, from which this one is split. All its ranks make
    // the same splits in the same order. NULL: there is none.
    tri_comm *parent;
    // The colour by which the ranks split `parent`. Not used if `parent` is NULL or cannot be split
    // by NCCL: then rank 0 makes a new NCCL id, with which the ranks connect.
    int colour;
} tri_comm_nccl_config;

// Opens the communicator; all its ranks have to call this. Takes over `compares`, a communicator of
// the same ranks in the host's memory, even if it fails. *out cannot be split.
tri_status tri_comm_nccl_open(tri_comm *compares, const tri_comm_nccl_config *config,
                              tri_comm **out);
// Returns how many bytes of the device's memory a communicator of `ranks` ranks allocates itself,
// and adds to *estimate how many NCCL may take for it. `links`: how many links (link.h) it has for
// messages.
int64_t tri_comm_nccl_bytes(int ranks, tri_comm_use use, int links, int64_t *estimate);
#endif

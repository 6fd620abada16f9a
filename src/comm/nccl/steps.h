// The steps that a queue of the GPU does for a group of operations (group.h), as a list that the
// host makes before it issues the first one. A step is a group of NCCL's calls, a kernel (cast,
// sum), or a copy.
#ifndef TRIREME_COMM_NCCL_STEPS_H
#define TRIREME_COMM_NCCL_STEPS_H

#include "comm/comm.h"
#include "device/cuda/runtime.h"

typedef enum nccl_step_kind { NCCL_TRANSFERS, NCCL_CAST, NCCL_SUM, NCCL_COPY } nccl_step_kind;

// One step. Besides `kind`, only the members that belong to this kind are used.
typedef struct nccl_step {
    nccl_step_kind kind;
    // NCCL_TRANSFERS: entries `first` to first + count - 1 of nccl_steps.transfers, which NCCL does
    // as one group.
    int first, count;
    cuda_pointwise cast;
    cuda_ordered_sum sum;
    struct {
        void *to;
        const void *from;
        int64_t bytes;
    } copy;
} nccl_step;

typedef struct nccl_steps {
    nccl_step *steps;
    cuda_transfer *transfers;
    int count, capacity, transfer_count, transfer_capacity;
} nccl_steps;

// How sums are computed that NCCL does not compute as comm.h promises: the ranks exchange their
// terms (what each contributes) through `scratch`, memory of the device, and add them in rank
// order. Sums of half types (F16, BF16), sums that are added to the old contents of the result, and
// sums whose terms travel as a half type are always computed in this way. `rank_order`: all sums of
// F32 and F64 are too.
typedef struct nccl_sums {
    char *scratch;
    int64_t scratch_bytes;
    bool rank_order;
} nccl_sums;

// Adds the steps of a collective to the list.
tri_status nccl_steps_add(nccl_steps *steps, const tri_comm *comm, const tri_comm_op *op,
                          const nccl_sums *sums);
// Adds one step for messages to, or from, rank `peer` of a link's communicator of NCCL (link.h).
// NCCL does them as one group.
tri_status nccl_steps_add_messages(nccl_steps *steps, const tri_comm_op *ops, int count, int peer);
// Adds the steps of a rank's messages to itself: the first SEND goes to the first RECV, and so on.
tri_status nccl_steps_add_copies(nccl_steps *steps, const tri_comm_op *ops, int count);
void nccl_steps_free(nccl_steps *steps);

#endif

// What a queue of the GPU does for one operation, step by step, as a list that the host makes once.
#ifndef TRIREME_COMM_NCCL_STEPS_H
#define TRIREME_COMM_NCCL_STEPS_H

#include "comm/comm.h"
#include "device/cuda/runtime.h"

enum { NCCL_SCRATCH_BYTES = 16 << 20 };

typedef enum nccl_step_kind { NCCL_TRANSFERS, NCCL_CAST, NCCL_SUM } nccl_step_kind;

typedef struct nccl_step {
    nccl_step_kind kind;
    int first, count; // NCCL_TRANSFERS: of nccl_steps.transfers, which NCCL does as one group
    cuda_pointwise cast;
    cuda_ordered_sum sum;
} nccl_step;

typedef struct nccl_steps {
    nccl_step *steps;
    cuda_transfer *transfers;
    int count, capacity, transfer_count, transfer_capacity;
} nccl_steps;

// Adds the steps of a collective to the list. `scratch` is memory of the device of
// NCCL_SCRATCH_BYTES, through which exchanges go.
tri_status nccl_steps_add(nccl_steps *steps, const tri_comm *comm, const tri_comm_op *op,
                          bool rank_order, void *scratch);
void nccl_steps_free(nccl_steps *steps);

#endif

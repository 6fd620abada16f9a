// Parameters of the kernel with which communicators between GPUs add in rank order, and of calls of
// NCCL.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_COMM_H
#define TRIREME_DEVICE_CUDA_PARAMS_COMM_H

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_COMM_KERNEL_LIST(X) X(ordered_sum)

// out[i] = ((term_0[i] + term_1[i]) + term_2[i]) + … for i below `count`, where term_r is what rank
// r contributes. The sum is computed in F32 (in F64 if the terms are F64). With `accumulate`, it
// begins with the old out[i]. The terms of rank r lie at terms + r * stride, counted in elements,
// but those of rank `own` at own_term. Types: F32, F64, F16 or BF16; out_type is term_type or F32.
typedef struct cuda_ordered_sum {
    int64_t count, stride;
    int ranks, own; // number of ranks, and the number of this rank
    bool accumulate;
    tri_dtype term_type, out_type;
    const void *terms, *own_term;
    void *out; // the result; its memory may be that of own_term
} cuda_ordered_sum;

typedef enum cuda_transfer_kind {
    CUDA_ALL_REDUCE,
    CUDA_REDUCE_SCATTER,
    CUDA_ALL_GATHER,
    CUDA_BROADCAST,
    CUDA_SEND,
    CUDA_RECV
} cuda_transfer_kind;

typedef enum cuda_reduction { CUDA_SUM, CUDA_MAX, CUDA_MIN } cuda_reduction;

// One call of NCCL. Reductions take F32, F64, I64, I32, F16 and BF16, the other kinds also U8.
typedef struct cuda_transfer {
    cuda_transfer_kind kind;
    cuda_reduction reduction;
    tri_dtype dtype;
    // Number of elements, as NCCL counts them: those of `send`, but those of `recv` for
    // CUDA_REDUCE_SCATTER and CUDA_RECV.
    int64_t count;
    const void *send;
    void *recv;
    int peer; // the other rank of CUDA_SEND and CUDA_RECV; the root of CUDA_BROADCAST
} cuda_transfer;

#endif

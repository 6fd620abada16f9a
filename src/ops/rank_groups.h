// What ops that communicate know of the ranks that take part.
#ifndef TRIREME_OPS_RANK_GROUPS_H
#define TRIREME_OPS_RANK_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

// Which ranks take part in a collective op.
typedef enum tri_group {
    TRI_GROUP_TENSOR_PARALLEL, // the ranks that divide each layer among them
    TRI_GROUP_REPLICAS,        // the ranks that do the same work for different micro-batches
    TRI_GROUP_COUNT
} tri_group;

// The attributes of all_reduce, all_gather, reduce_scatter, copy_to, split and split_grad.
// `partial` concerns a tensor that every rank has in full (the output of all_gather, the input of
// split). False: every rank also has the tensor's full gradient. True: each rank has one term of
// that gradient, and the terms still have to be summed.
typedef struct tri_collective_attr {
    int64_t group;         // a tri_group
    int64_t slices, index; // number of ranks in the group, and which of them this rank is
    // The axis along which tensors are cut or joined. For collectives all axes before it have size
    // 1, so that slices are contiguous.
    int64_t dim;
    bool maximum; // all_reduce: takes the maximum instead of the sum; has no gradient
    bool partial; // all_gather, split: each rank has only one term of the gradient, see above
} tri_collective_attr;

#endif

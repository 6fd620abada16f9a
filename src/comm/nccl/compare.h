// What the ranks call is compared over an inner communicator before any of it is issued: by all
// ranks of a collective, or by the two ends of a message.
#ifndef TRIREME_COMM_NCCL_COMPARE_H
#define TRIREME_COMM_NCCL_COMPARE_H

#include "comm/nccl/group.h"

// Starts the comparison, and gives it the number group->inner. The first message of a link also
// brings the receiver the link's id, which the sender has made.
tri_status nccl_compare_start(tri_comm *compares, nccl_group *group);
// After its end: TRI_MISMATCH names both calls.
tri_status nccl_compare_end(tri_comm *compares, const tri_comm *comm, const nccl_group *group);

#endif

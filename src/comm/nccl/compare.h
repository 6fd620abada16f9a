// Compares what the ranks call over an inner communicator, before any call is issued: all ranks of
// a collective compare, or the two ends of a message.
#ifndef TRIREME_COMM_NCCL_COMPARE_H
#define TRIREME_COMM_NCCL_COMPARE_H

#include "comm/nccl/group.h"

// Starts the comparison, and stores its ticket in group->inner. With the first message of a link
// the sender also sends the link's id, which it has made.
tri_status nccl_compare_start(tri_comm *compares, nccl_group *group);
// Evaluates a finished comparison. TRI_MISMATCH: the calls disagree; the message names both.
tri_status nccl_compare_end(tri_comm *compares, const tri_comm *comm, const nccl_group *group);

#endif

// Compares what the ranks call over an inner communicator, before any call is issued: all ranks of
// a collective compare, or the two ends of a message.
#ifndef TRIREME_COMM_NCCL_COMPARE_H
#define TRIREME_COMM_NCCL_COMPARE_H

#include "comm/nccl/group.h"

// Starts the comparison, and stores its number in group->inner. The first message of a link also
// brings the receiver the link's id, which the sender has made.
tri_status nccl_compare_start(tri_comm *compares, nccl_group *group);
// Evaluates a finished comparison. TRI_MISMATCH: the calls disagree; the message names both.
tri_status nccl_compare_end(tri_comm *compares, const tri_comm *comm, const nccl_group *group);

#endif

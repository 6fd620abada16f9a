// Checks that the ranks' calls of an operation agree, before it is issued to NCCL. For this the
// ranks exchange descriptions of their calls over a second communicator, `compares`, which has the
// same ranks and works in the hosts' memory. In a collective all ranks take part; for a message
// only its sender and its receiver.
#ifndef TRIREME_COMM_NCCL_COMPARE_H
#define TRIREME_COMM_NCCL_COMPARE_H

#include "comm/nccl/group.h"

// Starts to compare what the ranks call in this group of operations, and stores the comparison's
// ticket in group->inner. The exchange also carries the ids of new links (link.h): a link has a
// communicator of NCCL, whose id the sender of a message makes and the receiver needs.
tri_status nccl_compare_start(tri_comm *compares, nccl_group *group);
// Ends a comparison: waits until the calls are exchanged, and checks that they agree. TRI_MISMATCH:
// two ranks' calls disagree; the message names both calls.
tri_status nccl_compare_end(tri_comm *compares, const tri_comm *comm, const nccl_group *group);

#endif

// Collective operations of a save and of a verification. A communicator that is NULL or has one
// rank needs no messages: each call returns at once.
#ifndef TRIREME_CHECKPOINT_AGREE_H
#define TRIREME_CHECKPOINT_AGREE_H

#include "comm/comm.h"

static inline int checkpoint_rank(const tri_comm *comm) { return comm ? comm->rank : 0; }
static inline int checkpoint_ranks(const tri_comm *comm) { return comm ? comm->size : 1; }

// Collective. Returns TRI_OK if every rank passes TRI_OK; else every rank gets the status and
// message of the lowest rank that failed.
tri_status checkpoint_agree(tri_comm *comm, tri_status own_status);
// Collective: copies rank 0's bytes to all ranks.
tri_status checkpoint_broadcast(tri_comm *comm, void *data, int64_t size_bytes);
// Collective: replaces each of `count` words by its sum over all ranks. So a word that only one
// rank sets, and that is zero on the others, reaches all of them.
tri_status checkpoint_sum(tri_comm *comm, void *words, int64_t count);

#endif

// Collective operations of a save and of a verification, so that all ranks of a run make the same
// decisions. A communicator that is NULL or has one rank needs no messages: each call returns at
// once.
#ifndef TRIREME_CHECKPOINT_AGREE_H
#define TRIREME_CHECKPOINT_AGREE_H

#include "comm/comm.h"

static inline int checkpoint_rank(const tri_comm *comm) { return comm ? comm->rank : 0; }
static inline int checkpoint_ranks(const tri_comm *comm) { return comm ? comm->size : 1; }

// Makes ranks agree on a status. Collective. Returns TRI_OK if every rank passes TRI_OK; else every
// rank gets the status and message of the lowest rank that failed.
tri_status checkpoint_agree(tri_comm *comm, tri_status own_status);
// Copies rank 0's bytes to all ranks. Collective.
tri_status checkpoint_broadcast(tri_comm *comm, void *data, int64_t size_bytes);
// Replaces each of `count` 32-bit words by its sum over all ranks. Collective. To send a word to
// all ranks, one rank sets it and the others pass zero; hashes are exchanged in this way.
tri_status checkpoint_sum(tri_comm *comm, void *words, int64_t count);
// Replaces each of `count` numbers by the largest of all ranks. Collective.
tri_status checkpoint_largest(tri_comm *comm, int64_t *words, int64_t count);

#endif

// Small agreements of all ranks around a save. A communicator that is NULL or of one rank is
// nothing to talk to.
#ifndef TRIREME_CHECKPOINT_AGREE_H
#define TRIREME_CHECKPOINT_AGREE_H

#include "comm/comm.h"

static inline int checkpoint_rank(const tri_comm *comm) { return comm ? comm->rank : 0; }
static inline int checkpoint_ranks(const tri_comm *comm) { return comm ? comm->size : 1; }

// Collective: TRI_OK if every rank comes with TRI_OK, else on every rank the status and message of
// the lowest rank that failed.
tri_status checkpoint_agree(tri_comm *comm, tri_status mine);
// Collective: rank 0's bytes to all.
tri_status checkpoint_share(tri_comm *comm, void *data, int64_t size_bytes);
// Collective: adds words of all ranks. Each is zero on all ranks but one, so this gathers them.
tri_status checkpoint_gather(tri_comm *comm, void *words, int64_t count);

#endif

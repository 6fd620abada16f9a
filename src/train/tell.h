// How a rank that cannot go on tells the others, and what they make of it.
#ifndef TRIREME_TRAIN_TELL_H
#define TRIREME_TRAIN_TELL_H

#include "comm/comm.h"
#include "rendezvous/rendezvous.h"

// Ends the communicator for all ranks, with the error message and the name of this rank, which
// keeps its message. Returns the status: TRI_REFUSED if it is a consequence of another rank's bad
// input. Nothing is told if the others end in the same step for the same reason.
tri_status tri_tell_failure(tri_comm *comm, const tri_identity *identity, tri_status status);
// Collective. Fails on all ranks if one of them failed, when all know of it. A rank that failed
// itself keeps its own status and message; TRI_REFUSED: another rank has bad input.
tri_status tri_tell_and_agree(tri_comm *comm, tri_status own, const char *what);

#endif

// How a rank that cannot continue tells the others, and what status they get.
#ifndef TRIREME_TRAIN_TELL_H
#define TRIREME_TRAIN_TELL_H

#include "comm/comm.h"
#include "rendezvous/rendezvous.h"

// Ends the communicator for all ranks. The others get this rank's error message, which names the
// rank that failed: "rank 2 (host b): …". This rank's own error message stays as it was. Returns
// `status`, or TRI_REFUSED if the failure follows from another rank's bad input. Nothing is sent if
// all ranks end in the same step anyway: TRI_OK, TRI_STOPPED and TRI_NOT_FINITE.
tri_status tri_tell_failure(tri_comm *comm, const tri_identity *identity, tri_status status);
// Makes all ranks fail if one of them failed. Collective. A rank that failed itself keeps its own
// status and message. TRI_REFUSED: another rank has bad input.
tri_status tri_tell_and_agree(tri_comm *comm, tri_status own, const char *what);

#endif

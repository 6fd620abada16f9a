// Communicators between processes of any hosts. A transport (UCX, MPI) carries their messages.
#ifndef TRIREME_COMM_MESSAGE_MESSAGE_H
#define TRIREME_COMM_MESSAGE_MESSAGE_H

#include "comm/comm.h"
#include "comm/meeting.h"
#include "comm/message/transport.h"

typedef struct tri_message_config {
    int timeout_ms; // of an operation that does not advance; 0: TRI_DEFAULT_TIMEOUT_MS
    // `job_ranks` and `group` have the meaning that they have in tri_shm_config. They are set if
    // only some of the job's ranks open the communicator, or if it lies beside a control
    // communicator.
    const int *job_ranks;
    const char *group;
    tri_comm *control;
    tri_ledger *ledger; // records the operations; NULL: the control communicator's, or its own
    // Called once this rank's end of the transport is open, before any other rank is waited for. If
    // it fails, so does the open. NULL: nothing is called.
    tri_status (*opened)(void *context);
    // Called once this rank has exchanged messages with those that it speaks to first, before it
    // waits for all others. If it fails, so does the open. NULL: nothing is called.
    tri_status (*reached)(void *context);
    // Called if the open fails, before the other ranks see that this one closes its end, so that
    // they can be told why; returns the status, or that of a failure which is the cause. NULL:
    // nothing is called.
    tri_status (*failed)(void *context, tri_status status);
    void *context; // of all three
} tri_message_config;

// Opens the communicator. Collective over ranks 0 … size-1. `meeting` is used only during the call,
// and not at all where the transport needs no addresses. `config` may be NULL. TRI_TIMEOUT,
// TRI_NETWORK: a rank did not join.
tri_status tri_comm_message_open(const tri_transport *transport, int rank, int size,
                                 const tri_comm_meeting *meeting, const tri_message_config *config,
                                 tri_comm **out);
// Bytes of memory of its own that a rank of a communicator of so many ranks touches, for plans.
int64_t tri_comm_message_scratch_bytes(int size);

#endif

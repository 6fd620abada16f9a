// Opens communicators between processes of any hosts. A transport (UCX, MPI) carries their
// messages.
#ifndef TRIREME_COMM_MESSAGE_MESSAGE_H
#define TRIREME_COMM_MESSAGE_MESSAGE_H

#include "comm/comm.h"
#include "comm/meeting.h"
#include "comm/message/transport.h"

typedef struct tri_message_config {
    int timeout_ms; // time limit of an operation that makes no progress; 0: TRI_DEFAULT_TIMEOUT_MS
    // job_ranks[r]: the number of rank r in the job, which messages about failures name. NULL: the
    // number is r.
    const int *job_ranks;
    // The name of the group of ranks that open the communicator; no other group of the job has this
    // name. It is part of the keys under which the ranks exchange their addresses through the
    // functions of `meeting`. NULL: the keys have a number instead, which counts the calls of
    // tri_comm_message_open in this process; all ranks of the job must then open the same
    // communicators in the same order.
    const char *group;
    // The control communicator, over all ranks of the job, from which this rank learns what the
    // other ranks do. It must outlive the opened communicator. NULL: there is none.
    tri_comm *control;
    // The ledger (the record of this rank's latest actions) in which the operations are recorded,
    // so that other ranks can see what this one does. NULL: the ledger of the control communicator
    // or, if there is none, a new one.
    tri_ledger *ledger;
    // Called once this rank has opened the transport. It returns when all ranks have done so; after
    // that, ranks have to connect within a short time. If the call fails, opening the communicator
    // fails too. NULL: nothing is called.
    tri_status (*opened)(void *context);
    // Called once this rank has the addresses of all ranks. It gets a few of them through `meeting`
    // (none if the transport needs no addresses), and then those of all other ranks over the
    // transport. So by then the transport has carried messages to and from this rank. After the
    // call, the ranks wait for each other over the transport (a barrier). If the call fails,
    // opening the communicator fails too. NULL: nothing is called.
    tri_status (*reached)(void *context);
    // Called if an address does not arrive or cannot be sent over the transport, so that this rank
    // can tell the other ranks why before they notice that it closes its connections. Returns the
    // given status, or the status of another rank's failure if that is the cause. NULL: nothing is
    // called.
    tri_status (*failed)(void *context, tri_status status);
    void *context; // argument of `opened`, `reached` and `failed`
} tri_message_config;

// Opens the communicator. Collective over ranks 0 … size-1. `meeting`: functions by which the ranks
// exchange their addresses. They are used only during the call, and not at all if the transport
// needs no addresses. `config` may be NULL. TRI_TIMEOUT, TRI_NETWORK: a rank did not join.
tri_status tri_comm_message_open(const tri_transport *transport, int rank, int size,
                                 const tri_comm_meeting *meeting, const tri_message_config *config,
                                 tri_comm **out);
// How many bytes of its own memory a rank uses in a communicator of `size` ranks, for plans.
int64_t tri_comm_message_scratch_bytes(int size);

#endif

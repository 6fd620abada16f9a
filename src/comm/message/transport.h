// The interface between comm/message and a transport, which carries its messages between ranks: a
// table of functions that a module (comm/ucx, comm/mpi) or a test supplies. A transport only moves
// bytes; it does not know to which collective or other operation of a communicator they belong. It
// calls no function of the program, so that a module needs none of the program's symbols.
//
// A message is sent to a rank with a tag, and received from a rank with a tag. Messages of one
// sender with one tag arrive in the order in which they were sent. A message that arrives before
// its receive is kept until then.
//
// All calls come from one thread at a time, but not always from the same one.
#ifndef TRIREME_COMM_MESSAGE_TRANSPORT_H
#define TRIREME_COMM_MESSAGE_TRANSPORT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_TRANSPORT_ABI = 1, // has to be raised with every change of this header
    TRI_TRANSPORT_WHY_BYTES = 512,
    TRI_TRANSPORT_MAX_TAG = 32767, // every MPI allows tags up to this one
};
#define TRI_TRANSPORT_INTERFACE "transport"

typedef enum tri_transport_state {
    TRI_REQUEST_NONE,    // the request is not in use
    TRI_REQUEST_PENDING, // under way: the memory belongs to the transport
    TRI_REQUEST_DONE,
    TRI_REQUEST_TOO_LARGE, // the message is larger than the memory that was given for it
    TRI_REQUEST_LOST,      // the other rank can no longer be reached
    TRI_REQUEST_ENDED,     // ended by `stop`
} tri_transport_state;

// A send or receive that is under way. It belongs to the caller, who must not move it in memory
// until it is complete. The transport changes it only inside its own calls, so that no lock is
// needed.
typedef struct tri_transport_request {
    tri_transport_state state;
    int peer;
    size_t bytes; // for a send: bytes to send; for a receive: bytes that have arrived
    // Only the transport uses the members below.
    struct tri_transport_end *end;
    void *handle;
    uint64_t number;
} tri_transport_request;

typedef struct tri_transport_end tri_transport_end; // this process's end of an open transport

typedef struct tri_transport_job {
    int rank, size;
} tri_transport_job;

typedef struct tri_transport {
    const char *name;
    size_t most_bytes; // the largest size of one message
    // Opens this rank's end. If it fails, it writes the reason to why[TRI_TRANSPORT_WHY_BYTES].
    tri_status (*open)(const tri_transport_job *job, tri_transport_end **out, char *why);
    // Gets the address at which other ranks reach this one, as bytes that only the transport
    // understands. *size 0: no address is needed, because ranks reach each other by their numbers.
    const void *(*address)(tri_transport_end *end, size_t *size);
    // Tells the transport at which address it reaches a rank, before anything is sent to that rank.
    // The address is copied. May be NULL if addresses are empty.
    tri_status (*know)(tri_transport_end *end, int peer, const void *address, size_t size,
                       char *why);
    // Start to send a message to a rank, or to receive one from it. `request` tells how far the
    // transport has got with it.
    void (*send)(tri_transport_end *end, int peer, uint32_t tag, const void *data, size_t size,
                 tri_transport_request *request);
    void (*recv)(tri_transport_end *end, int peer, uint32_t tag, void *memory, size_t size,
                 tri_transport_request *request);
    // Receives the next message with this tag, whichever rank sends it: for notices, because nobody
    // knows which rank will fail or leave first.
    void (*recv_any)(tri_transport_end *end, uint32_t tag, void *memory, size_t size,
                     tri_transport_request *request);
    // Advances whatever can advance; never waits. True if a request has ended.
    bool (*progress)(tri_transport_end *end);
    // A descriptor that becomes readable when there may be something to do, so that a thread can
    // sleep until then; -1: there is none.
    int (*event_fd)(tri_transport_end *end);
    // Has to be called before a thread sleeps on the descriptor of event_fd. False: there is
    // something to do already, so the thread must not sleep. NULL: no preparation is needed.
    bool (*arm)(tri_transport_end *end);
    // Returns what happened to the rank, such as "died". The result NULL: the rank can probably
    // still be reached.
    const char *(*loss)(tri_transport_end *end, int peer);
    // From now on `loss` reports if rank `peer` is lost, even if nothing is sent to that rank. Some
    // networks need this, because they notice a loss only when they send. NULL: the transport
    // notices every loss without it, or none.
    void (*watch)(tri_transport_end *end, int peer);
    // True if a message to the rank needs no new connection. This is asked before messages that may
    // be left out, because making a connection could block.
    bool (*reaches)(tri_transport_end *end, int peer);
    // Ends all requests. Afterwards none is pending and the transport does not touch their memory,
    // so that it may be freed. After this call only `loss` and `close` may be called.
    void (*stop)(tri_transport_end *end);
    // Closes this rank's end. `is_whole`: all ranks close, and nothing is under way between them,
    // so that connections can end in order.
    void (*close)(tri_transport_end *end, bool is_whole);
} tri_transport;

#endif

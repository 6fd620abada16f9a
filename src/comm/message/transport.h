// What carries messages between ranks for comm/message: a table of functions that a module supplies
// (comm/ucx, comm/mpi), or a test. A transport moves bytes and knows nothing of operations; it
// calls nothing of this program, so that a module needs no symbols of it.
//
// A message goes to a rank with a tag, and is received by the rank and the tag; those of one sender
// with one tag arrive in the order in which they were sent. A message that arrives before its
// receive waits for it.
//
// All calls come from one thread at a time, but not always from the same one.
#ifndef TRIREME_COMM_MESSAGE_TRANSPORT_H
#define TRIREME_COMM_MESSAGE_TRANSPORT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_TRANSPORT_ABI = 1, // raised by every change of this header
    TRI_TRANSPORT_WHY_BYTES = 512,
    TRI_TRANSPORT_MAX_TAG = 32767, // what every MPI has
};
#define TRI_TRANSPORT_INTERFACE "transport"

typedef enum tri_transport_state {
    TRI_REQUEST_NONE,    // nothing was asked for
    TRI_REQUEST_PENDING, // the memory belongs to the transport
    TRI_REQUEST_DONE,
    TRI_REQUEST_TOO_LARGE, // the message is larger than the memory for it
    TRI_REQUEST_LOST,      // the other rank cannot be reached any more
    TRI_REQUEST_ENDED,     // by `stop`
} tri_transport_state;

// A send or receive under way. It is the caller's, who does not move it until it is over. The
// transport changes it inside its own calls only, so that no lock is needed.
typedef struct tri_transport_request {
    tri_transport_state state;
    int peer;
    size_t bytes; // to send; of a receive: what has arrived
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
    size_t most_bytes; // of one message
    // Opens this rank's end. If it fails, it writes the reason to why[TRI_TRANSPORT_WHY_BYTES].
    tri_status (*open)(const tri_transport_job *job, tri_transport_end **out, char *why);
    // Gets the address at which other ranks reach this one, as bytes that only the transport
    // understands. *size 0: no address is needed, because ranks reach each other by their numbers.
    const void *(*address)(tri_transport_end *end, size_t *size);
    // Tells where a rank is reached, before anything is sent to it; the bytes are copied. May be
    // NULL where addresses are empty.
    tri_status (*know)(tri_transport_end *end, int peer, const void *address, size_t size,
                       char *why);
    void (*send)(tri_transport_end *end, int peer, uint32_t tag, const void *data, size_t size,
                 tri_transport_request *request);
    void (*recv)(tri_transport_end *end, int peer, uint32_t tag, void *memory, size_t size,
                 tri_transport_request *request);
    // Receives the next message with the tag from any rank: nobody knows which rank will fail or
    // leave first.
    void (*recv_any)(tri_transport_end *end, uint32_t tag, void *memory, size_t size,
                     tri_transport_request *request);
    // Moves what can be moved; never waits. True if a request ended.
    bool (*progress)(tri_transport_end *end);
    // A descriptor that is readable when there may be something to move, so that a thread can sleep
    // until then; -1: there is none.
    int (*event_fd)(tri_transport_end *end);
    // Prepares a wait for the descriptor: false if there is something to move already. NULL: it
    // needs no preparation.
    bool (*arm)(tri_transport_end *end);
    // What happened to the rank, such as "died"; NULL: it may still be reached.
    const char *(*loss)(tri_transport_end *end, int peer);
    // From now on `loss` tells of the rank although nothing is sent to it: some networks notice a
    // loss only by sending. NULL: it does anyway, or never.
    void (*watch)(tri_transport_end *end, int peer);
    // True if a message to the rank needs no new connection, which could block.
    bool (*reaches)(tri_transport_end *end, int peer);
    // Ends all requests: afterwards none is pending, and no memory of theirs is touched, so that it
    // may be freed. Nothing but `loss` and `close` is called after it.
    void (*stop)(tri_transport_end *end);
    // Closes this rank's end. `is_whole`: all ranks close, and nothing is under way between them,
    // so that connections can end in order.
    void (*close)(tri_transport_end *end, bool is_whole);
} tri_transport;

#endif

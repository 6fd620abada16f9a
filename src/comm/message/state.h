// Communicators over messages, as a backend of the progress base: every operation is made of
// messages between two ranks, which a transport carries. So there is one set of algorithms, with
// sums in rank order, whatever network there is.
//
// A collective begins with a *header* to each rank that it exchanges data with: what this rank
// calls. Small data travel with the header. Ranks compare headers, so that those that disagree are
// named.
//
// All calls of the transport are made by the thread that has the family's *turn*.
//
// The files, each of which calls only those above it:
//   transport     the interface of what carries messages
//   state         what this process keeps of a family and of a communicator
//   turn          calls of the transport, sleeping, and notices between ranks
//   header        the exchange and comparison of headers
//   small         collectives whose data travel with the headers
//   spread        all-gather, all-to-all and broadcast of larger data
//   window        reductions of larger data
//   post          sends and receives
//   communicator  what the progress base needs; creating and closing
//   open          how ranks learn each other's addresses
#ifndef TRIREME_COMM_MESSAGE_STATE_H
#define TRIREME_COMM_MESSAGE_STATE_H

#include "base/limits.h"
#include "comm/message/transport.h"
#include "comm/op.h"
#include "comm/progress/futex.h"
#include "comm/progress/state.h"

#include <pthread.h>

// What a message is for: with the number of its communicator it makes the tag, by which the
// transport tells messages apart.
typedef enum message_class {
    MESSAGE_NOTICE, // to the family; number 0
    MESSAGE_HEADER,
    MESSAGE_DATA,
    MESSAGE_RESULT,  // of a reduction, or of a broadcast's second half
    MESSAGE_POSTED,  // the header of a send
    MESSAGE_PAYLOAD, // of a send
    MESSAGE_GOODBYE, // before a family ends; number 0
    MESSAGE_ADDRESS, // while a family opens; number 0
    MESSAGE_CLASSES,
} message_class;

enum {
    MESSAGE_MAX_GROUPS = TRI_TRANSPORT_MAX_TAG / MESSAGE_CLASSES,
    MESSAGE_DEPTH = 4, // windows of a reduction under way at one time
};

typedef struct message_header {
    tri_comm_call call;
    uint64_t sequence;
} message_header;

typedef enum message_notice_kind {
    MESSAGE_FAILED,
    MESSAGE_KNOWN, // the answer to it
    MESSAGE_LEFT,
} message_notice_kind;

// A notice: what one rank tells the family outside of operations, so that ranks that wait for it
// learn of a failure or that it has left.
typedef struct message_notice {
    int32_t kind, rank;
    int32_t status;  // of a failure
    uint32_t number; // of the communicator that the rank has left
    char text[TRI_MESSAGE_MAX_BYTES];
} message_notice;

// A notice on its way to `count` ranks. It keeps the memory until the transport has sent all
// copies.
typedef struct message_sending {
    struct message_sending *next;
    message_notice notice;
    int count;
    tri_transport_request requests[];
} message_sending;

// What this rank knows of another rank of the family.
typedef struct message_member {
    int job_rank;
    char host[64];
    bool must_answer; // it was told of a failure
    int64_t lost_ns;  // when the transport was first seen not to reach it; 0: it does
} message_member;

typedef struct message_departure { // a rank that has left a communicator
    uint32_t number;
    int rank; // of the family
} message_departure;

typedef struct message_family {
    progress_family base;
    const tri_transport *transport;
    tri_transport_end *end;
    int rank;                // ours in the family
    message_member *members; // by rank
    pthread_mutex_t turn;
    // Everything below is used only by the thread that has the turn.
    uint32_t next_number; // of the next communicator that a split makes
    message_notice heard; // the one that arrives next
    tri_transport_request hearing;
    message_sending *sending;
    message_departure *departures;
    int departure_count, departure_capacity;
    struct message_comm *closed; // communicators that are closed, but not their memory
    bool stopped;                // the transport has ended all requests
    bool has_told;               // the others, of a failure
    // What threads need to sleep until something arrives.
    progress_bell bell;
    pthread_mutex_t waiting; // held by the thread that waits for the transport's descriptor
    _Atomic bool waits;
    int wake_fd;
    _Atomic int looks;      // since a request ended, by threads that have no descriptor to wait for
    _Atomic bool must_tell; // a failure that the other ranks do not know yet
    _Atomic bool was_told;  // the failure is from another rank
} message_family;

typedef struct message_comm message_comm;

// An algorithm for collectives. Which one is fastest depends on the kind and size of the operation.
typedef struct message_algorithm {
    // Posts the messages that need not wait for others.
    void (*begin)(message_comm *comm, progress_item *item);
    // Does one bounded step: *advanced tells if it did anything. True at the end.
    bool (*advance)(message_comm *comm, progress_item *item, bool *advanced);
    bool sends_at_once; // once its sends are done, it only waits
} message_algorithm;

// This rank's messages with another rank in the collective at the head of the queue.
typedef struct message_peer {
    tri_transport_request header_in, header_out;
    tri_transport_request data_in[MESSAGE_DEPTH], data_out[MESSAGE_DEPTH];
    tri_transport_request result_in[MESSAGE_DEPTH], result_out[MESSAGE_DEPTH];
    bool needs_header;
    // How much was asked for, and how much is done. Each algorithm counts in its own measure:
    // windows or bytes.
    int64_t data_sent, data_received, results_sent, results_asked, results_taken;
} message_peer;

typedef struct message_current {
    const message_algorithm *algorithm; // NULL: the operation has not begun
    int headers;                        // still to come
    int round;
    int64_t window, windows, posted, reduced; // elements of one, how many, and how far they are
} message_current;

struct message_comm {
    progress_comm base;
    uint32_t number;
    int *member;                    // member[r]: the rank in the family that is our rank r
    size_t eager_bytes;             // of one rank: so much travels with the header
    char *headers_in, *headers_out; // a header with its data for each rank
    message_peer *peers;
    const void **terms; // size + 1 addresses, for comm_reduce
    char *scratch;
    size_t scratch_bytes;
    message_current current;
    message_comm *closed_before;
};

static inline message_comm *message_of(tri_comm *comm) { return (message_comm *)comm; }
static inline message_family *message_family_of(const message_comm *comm) {
    return (message_family *)comm->base.family;
}
static inline int message_size(const message_comm *comm) { return comm->base.head.size; }
static inline int message_rank(const message_comm *comm) { return comm->base.head.rank; }
static inline size_t message_width(const tri_comm_op *op) { return tri_dtype_bytes(op->dtype); }
static inline bool message_is_over(const tri_transport_request *request) {
    return request->state == TRI_REQUEST_NONE || request->state == TRI_REQUEST_DONE;
}

#endif

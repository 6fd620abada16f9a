// Communicators over messages, as a backend of the progress base (comm/progress: the queue and the
// thread that many kinds of communicators have in common). Every operation consists of messages
// between two ranks, which a transport carries. So there is one set of algorithms, with sums in
// rank order, for every network.
//
// A collective begins with a *header* to each rank with which this rank exchanges data: it tells
// which operation this rank calls. Small data travel with the header. Ranks compare headers, so
// that error messages can name the ranks that disagree.
//
// A *family* is all communicators that were split from one. All calls of the transport are made by
// the thread that has the family's *turn*.
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

// The purpose of a message. Together with the number of the communicator it makes the tag, by which
// the transport tells messages apart. Messages that belong to no communicator, but to the family as
// a whole, have the number 0.
typedef enum message_class {
    MESSAGE_NOTICE,  // a notice (message_notice); belongs to the family
    MESSAGE_HEADER,  // the header of a collective
    MESSAGE_DATA,    // the data of a collective
    MESSAGE_RESULT,  // sums, or in a broadcast the slices that ranks pass on to each other
    MESSAGE_POSTED,  // the header of a send
    MESSAGE_PAYLOAD, // the data of a send
    MESSAGE_GOODBYE, // sent when all communicators are closed; belongs to the family
    MESSAGE_ADDRESS, // sent while the first communicator opens; belongs to the family
    MESSAGE_CLASSES,
} message_class;

enum {
    MESSAGE_MAX_COMMS = TRI_TRANSPORT_MAX_TAG / MESSAGE_CLASSES,
    // How many windows of a reduction (ranges of its elements) are in flight at the same time.
    MESSAGE_DEPTH = 4,
};

typedef struct message_header {
    tri_comm_call call;
    uint64_t sequence;
} message_header;

typedef enum message_notice_kind {
    MESSAGE_FAILED,
    MESSAGE_KNOWN, // the answer to a notice of a failure
    MESSAGE_LEFT,
} message_notice_kind;

// A notice, by which a rank tells other ranks of its family that something failed, or that it
// leaves a communicator. It belongs to no operation. Ranks that wait for the sender thus learn that
// they wait in vain.
typedef struct message_notice {
    int32_t kind, rank;
    int32_t status;  // the status of the failure
    uint32_t number; // number of the communicator that the rank leaves
    char text[TRI_MESSAGE_MAX_BYTES];
} message_notice;

// A notice on its way to `count` ranks. It is freed once the transport has sent it to all of them.
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
    bool must_answer; // true: this rank told the member of a failure, and has no answer yet
    // When the transport first found that it cannot reach the member, by tri_os.monotonic_ns; 0: it
    // has not found that.
    int64_t lost_ns;
} message_member;

// A rank that has left a communicator.
typedef struct message_departure {
    uint32_t number; // number of the communicator
    int rank;        // the rank's number among all ranks of the family
} message_departure;

typedef struct message_family {
    progress_family base;
    const tri_transport *transport;
    tri_transport_end *end;
    int rank;                // this rank's number in the family
    message_member *members; // members[r]: what this process knows about rank r
    pthread_mutex_t turn;
    // Only the thread that has the turn, the right to call the transport, uses the members below.
    uint32_t next_number; // number of the next communicator that a split makes
    message_notice heard; // memory for the next notice to arrive
    tri_transport_request hearing;
    message_sending *sending;
    message_departure *departures;
    int departure_count, departure_capacity;
    struct message_comm *closed; // communicators that are closed, but whose memory is still in use
    bool stopped;                // true: the transport was told to end all requests
    bool has_told;               // true: this rank has told the other ranks of a failure
    // With these members threads sleep until something arrives. One thread waits for the
    // transport's descriptor: it holds `waiting`, sets `waits` meanwhile, and is woken by the
    // eventfd wake_fd. All others sleep on the bell, a word of memory that is changed to wake them.
    progress_bell bell;
    pthread_mutex_t waiting;
    _Atomic bool waits;
    int wake_fd;
    // How often threads have called the transport in vain since it last moved something. If the
    // transport has no descriptor to sleep on, they sleep longer the higher this number is.
    _Atomic int idle_polls;
    _Atomic bool must_tell; // true: this rank has to tell the other ranks of a failure
    _Atomic bool was_told;  // true: another rank told this rank of the failure
} message_family;

typedef struct message_comm message_comm;

// An algorithm for collectives. Which one is fastest depends on the kind and size of the operation.
typedef struct message_algorithm {
    // Posts those messages of the operation that need not wait for other messages.
    void (*begin)(message_comm *comm, progress_item *item);
    // Does one bounded step; sets *advanced if it did anything. True after the last step.
    bool (*advance)(message_comm *comm, progress_item *item, bool *advanced);
    bool sends_at_once; // true: `begin` starts all sends, and then the rank only has to receive
} message_algorithm;

// The messages between this rank and another one, in the collective at the head of the queue.
typedef struct message_peer {
    tri_transport_request header_in, header_out;
    tri_transport_request data_in[MESSAGE_DEPTH], data_out[MESSAGE_DEPTH];
    tri_transport_request result_in[MESSAGE_DEPTH], result_out[MESSAGE_DEPTH];
    bool needs_header; // true: the collective waits for the other rank's header
    // How far the messages with the other rank have got. In message_spread the counters are bytes
    // whose send or receive has started: of the data, and in a broadcast of the results, the slices
    // that ranks pass on. message_window uses only results_asked and results_taken, and counts
    // windows (ranges of the elements that are summed): for how many of them this rank has started
    // to receive the other rank's sums, and of how many it has received and used them.
    int64_t data_sent, data_received, results_sent, results_asked, results_taken;
} message_peer;

typedef struct message_current {
    const message_algorithm *algorithm; // NULL: the operation has not begun yet
    int headers;                        // number of headers that have not arrived yet
    // small.c. Of `gather`: the number of the current exchange, from 0. Of `tree`: 1 once this rank
    // has sent the data on.
    int exchange;
    // A sum is computed in windows (ranges of its elements), one after the other (window.c).
    // window: how many elements a window has; windows: how many windows there are; posted: for how
    // many of them the messages with the terms (what each rank adds to the sum) were started;
    // reduced: for how many of them the terms were added.
    int64_t window, windows, posted, reduced;
} message_current;

struct message_comm {
    progress_comm base;
    uint32_t number;                // part of the tags of this communicator's messages
    int *member;                    // member[r]: index of rank r in message_family.members
    size_t eager_bytes;             // up to this size one rank's data travel with the header
    char *headers_in, *headers_out; // memory of a header with its data, for each rank
    message_peer *peers;
    const void **terms; // [size + 1]: recv, then the data of each rank, as comm_reduce takes them
    char *scratch;
    size_t scratch_bytes;
    message_current current;
    message_comm *closed_before; // the next communicator of the list message_family.closed
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

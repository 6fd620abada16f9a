// Sends, receives and compares the headers that ranks exchange when a collective begins. A header
// tells which operation a rank has called, so that calls can be compared, and carries the data
// itself if they are small (at most message_comm.eager_bytes bytes).
#ifndef TRIREME_COMM_MESSAGE_HEADER_H
#define TRIREME_COMM_MESSAGE_HEADER_H

#include "comm/message/state.h"

static inline size_t message_slot_bytes(const message_comm *comm) {
    return sizeof(message_header) + comm->eager_bytes;
}
// The memory of the header that arrives from rank r, and of the header that is sent to rank r. A
// header that goes to all ranks lies where that for rank 0 lies.
static inline message_header *message_header_in(const message_comm *comm, int r) {
    return (message_header *)(void *)(comm->headers_in + (size_t)r * message_slot_bytes(comm));
}
static inline message_header *message_header_out(const message_comm *comm, int r) {
    return (message_header *)(void *)(comm->headers_out + (size_t)r * message_slot_bytes(comm));
}
static inline char *message_payload(message_header *header) { return (char *)(header + 1); }

// Start a send to the communicator's rank r, or a receive from it. The message's tag is made from
// the communicator's number and the class of the message, so that messages of different
// communicators or classes are never confused.
void message_send(message_comm *comm, message_class class, int r, const void *data, size_t size,
                  tri_transport_request *request);
void message_recv(message_comm *comm, message_class class, int r, void *memory, size_t size,
                  tri_transport_request *request);

void message_header_write(const progress_item *item, message_header *out);
// Starts the receive of rank r's next header, unless that has been started already, and makes the
// current collective wait until this header has arrived and was compared with this rank's call.
// Sends nothing.
void message_header_ask(message_comm *comm, int r);
// Exchanges headers without data with all other ranks, so that they can be compared.
void message_headers_exchange(message_comm *comm, const progress_item *item);
// Compares the headers that have arrived; sets *advanced if there was one. True when all headers
// for which message_header_ask was called have arrived. If ranks disagree, the family (all
// communicators split from one) fails, because their data would be mixed up.
bool message_headers_take(message_comm *comm, const progress_item *item, bool *advanced);
// Compares one header. False: rank r calls something else, and the family (all communicators split
// from one) fails.
bool message_header_agrees(message_comm *comm, const progress_item *item, int r,
                           const message_header *theirs);
// Makes the family (all communicators split from one) fail because rank r's message is longer than
// any message of this operation, so it must belong to another operation. Returns false.
bool message_report_length(message_comm *comm, const progress_item *item, int r);
// True when all headers of this rank have been sent, so that their memory may be used again. It
// never becomes true if a rank to which a header goes is lost.
bool message_headers_sent(const message_comm *comm);

// The function collective_of of progress_backend: true if rank r has begun the communicator's next
// collective, which this rank has not begun. Then writes that collective into `out`, which has
// `size` bytes, as "KIND 'label'".
bool message_collective_of(const progress_comm *comm, int r, char *out, size_t size);

#endif

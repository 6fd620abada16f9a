// Carries out collectives without sums (all-gather, all-to-all, broadcast) whose data are too long
// to travel in the same message as the operation's header.
#ifndef TRIREME_COMM_MESSAGE_SPREAD_H
#define TRIREME_COMM_MESSAGE_SPREAD_H

#include "comm/message/state.h"

extern const message_algorithm message_spread;

// Send or receive a range of bytes in several messages, none longer than the transport allows. The
// caller repeats the call until it returns true: then all `size` bytes are done. `*at`, 0 at first,
// is the offset at which the next message begins. Sets *advanced if a message began or ended.
bool message_send_range(message_comm *comm, message_class class, int r, const void *data,
                        size_t size, int64_t *at, tri_transport_request *request, bool *advanced);
bool message_recv_range(message_comm *comm, message_class class, int r, void *memory, size_t size,
                        int64_t *at, tri_transport_request *request, bool *advanced);

#endif

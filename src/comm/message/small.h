// Carries out collectives of little data. A rank sends its data in the same message as the header
// that announces the operation (header.h), so that no further messages follow.
#ifndef TRIREME_COMM_MESSAGE_SMALL_H
#define TRIREME_COMM_MESSAGE_SMALL_H

#include "comm/message/state.h"

extern const message_algorithm message_alone;    // a communicator of one rank: sends no messages
extern const message_algorithm message_exchange; // every rank sends to every other rank
// The result is that of message_exchange, but each rank sends only log2(size) messages.
extern const message_algorithm message_gather;
extern const message_algorithm message_tree; // broadcast: ranks pass the data on along a tree

// Whether the data of the operation are small enough to travel in the same messages as the headers:
// in message_exchange and message_tree (message_fits_exchange), or in message_gather
// (message_fits_gather). message_gather cannot do operations for which `send` holds other data for
// each rank.
bool message_fits_exchange(const message_comm *comm, const tri_comm_op *op);
bool message_fits_gather(const message_comm *comm, const tri_comm_op *op);

#endif

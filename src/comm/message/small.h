// Collectives whose data travel with the headers.
#ifndef TRIREME_COMM_MESSAGE_SMALL_H
#define TRIREME_COMM_MESSAGE_SMALL_H

#include "comm/message/state.h"

extern const message_algorithm message_alone;    // a communicator of one rank: sends no messages
extern const message_algorithm message_exchange; // every rank sends to every other rank
// The result is that of message_exchange, but each rank sends only log2(size) messages.
extern const message_algorithm message_gather;
extern const message_algorithm message_tree; // broadcast: ranks pass the data on along a tree

// Whether the data are small enough to travel with the headers of this algorithm.
bool message_fits_exchange(const message_comm *comm, const tri_comm_op *op);
bool message_fits_gather(const message_comm *comm, const tri_comm_op *op);

#endif

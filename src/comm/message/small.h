// Collectives whose data travel with the headers.
#ifndef TRIREME_COMM_MESSAGE_SMALL_H
#define TRIREME_COMM_MESSAGE_SMALL_H

#include "comm/message/state.h"

extern const message_algorithm message_alone;    // of one rank: no message at all
extern const message_algorithm message_exchange; // every rank sends to every rank
extern const message_algorithm message_gather;   // the same in log2 of the ranks' number messages
extern const message_algorithm message_tree;     // broadcast: from rank to rank

// Whether the data fit into the headers, where the algorithm sends them.
bool message_fits_exchange(const message_comm *comm, const tri_comm_op *op);
bool message_fits_gather(const message_comm *comm, const tri_comm_op *op);

#endif

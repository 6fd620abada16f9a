// Communicators over messages, as a backend of the progress base (comm/progress). The base has a
// queue of operations and a thread, and asks this backend for one step of an operation at a time.
#ifndef TRIREME_COMM_MESSAGE_COMMUNICATOR_H
#define TRIREME_COMM_MESSAGE_COMMUNICATOR_H

#include "comm/message/state.h"

extern const progress_backend message_progress_backend;

// Makes a communicator of the family (all communicators split from one). `number` tells its
// messages apart from those of the family's other communicators. member[r]: the number that the
// communicator's rank r has in the family.
tri_status message_comm_create(message_family *family, uint32_t number, const int *member, int rank,
                               int size, message_comm **out);

#endif

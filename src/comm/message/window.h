// Collectives with sums (all-reduce, reduce-scatter) of more data than fits behind a header.
#ifndef TRIREME_COMM_MESSAGE_WINDOW_H
#define TRIREME_COMM_MESSAGE_WINDOW_H

#include "comm/message/state.h"

extern const message_algorithm message_window;

size_t message_scratch_bytes(int size); // of a communicator of so many ranks

#endif

// Collectives with sums (all-reduce, reduce-scatter) for more data than travel with a header.
#ifndef TRIREME_COMM_MESSAGE_WINDOW_H
#define TRIREME_COMM_MESSAGE_WINDOW_H

#include "comm/message/state.h"

extern const message_algorithm message_window;

// How many bytes of scratch memory a communicator of `size` ranks needs.
size_t message_scratch_bytes(int size);

#endif

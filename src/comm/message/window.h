// The algorithm for all-reduces and reduce-scatters whose data are too large to travel with the
// headers by which ranks tell each other what they call (small.h has the algorithms for small
// data).
#ifndef TRIREME_COMM_MESSAGE_WINDOW_H
#define TRIREME_COMM_MESSAGE_WINDOW_H

#include "comm/message/state.h"

extern const message_algorithm message_window;

// How many bytes of scratch memory a communicator of `size` ranks needs.
size_t message_scratch_bytes(int size);

#endif

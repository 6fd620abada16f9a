// The function with which a blocked rank finds out whether ranks for which it waits are lost, and
// what the others do, so that it does not wait for ever.
#ifndef TRIREME_COMM_PROGRESS_WATCH_H
#define TRIREME_COMM_PROGRESS_WATCH_H

#include "comm/progress/state.h"

// Fails the communicator if a rank for which it waits is lost, or if nothing has advanced for too
// long. The caller waits for an operation that does not advance, and has set `executing`: it is the
// thread that may advance operations (queue.h). Does nothing if it last checked a short time ago,
// because checking costs time.
void progress_watch(progress_comm *comm);

#endif

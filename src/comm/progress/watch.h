// Which ranks are lost and what the others do, seen by a rank that waits for them.
#ifndef TRIREME_COMM_PROGRESS_WATCH_H
#define TRIREME_COMM_PROGRESS_WATCH_H

#include "comm/progress/state.h"

// For a rank that is blocked and has set `executing`: fails the communicator if a rank that it
// waits for is lost, or nothing has advanced for too long. Does nothing if it looked lately.
void progress_watch(progress_comm *comm);

#endif

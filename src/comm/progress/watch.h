// A rank that is blocked calls this to find which of the ranks that it waits for are lost, and what
// the others do, so that it does not wait for ever.
#ifndef TRIREME_COMM_PROGRESS_WATCH_H
#define TRIREME_COMM_PROGRESS_WATCH_H

#include "comm/progress/state.h"

// Fails the communicator if a rank that it waits for is lost, or nothing has advanced for too long,
// so that no rank waits for ever. For a rank that is blocked and has set `executing`. Does nothing
// if it looked lately, because looking costs time.
void progress_watch(progress_comm *comm);

#endif

// The actions of all ranks and lanes on one clock, as a file for chrome://tracing and Perfetto.
//
// Format: "Trace Event Format" of Chromium, a JSON object with traceEvents; a rank is a process, a
// lane a thread, an action a complete event ("X") whose times are microseconds since the first one.
// What overlaps in a lane without nesting (messages that overtake each other) goes to further rows.
#ifndef TRIREME_OBSERVE_TRACE_H
#define TRIREME_OBSERVE_TRACE_H

#include "comm/comm.h"

typedef struct tri_trace tri_trace;

// From now on this rank's actions are kept, the latest TRI_MAX_TRACE_EVENTS of them. Rank 0 opens
// the file. Not collective: the caller has the ranks agree on the status. TRI_BAD_INPUT: the file
// cannot be written.
tri_status tri_trace_open(tri_comm *comm, const char *path, tri_trace **out);
// Writes the file and says so; a failure is a warning. With `gather` collective: the actions of all
// ranks; else, when the communicator is of no use any more, those of rank 0 alone. NULL is allowed.
void tri_trace_finish(tri_trace *trace, bool gather);

#endif

// Traces: the actions of all ranks and their lanes (computation, each communicator, …) on one
// clock, as a file for chrome://tracing and Perfetto.
//
// Format: "Trace Event Format" of Chromium, a JSON object with traceEvents. A rank is a process, a
// lane a thread, and an action a complete event ("X") whose times are microseconds since the first
// event. Actions of a lane that overlap without being nested (messages that overtake each other)
// are shown in additional rows.
#ifndef TRIREME_OBSERVE_TRACE_H
#define TRIREME_OBSERVE_TRACE_H

#include "comm/comm.h"

typedef struct tri_trace tri_trace;

// Starts to record this rank's actions, the latest TRI_MAX_TRACE_EVENTS of them. Rank 0 opens the
// file. Not collective: the caller makes the ranks agree on the status. TRI_BAD_INPUT: the file
// cannot be written.
tri_status tri_trace_open(tri_comm *comm, const char *path, tri_trace **out);
// Writes the file, logs its name, and destroys the trace; a failure is only a warning. With
// `gather`, the call is collective, and the file has the actions of all ranks. Without
// `gather`, for example after the communicator has failed, the file has only those of rank 0.
// `trace` NULL is allowed.
void tri_trace_finish(tri_trace *trace, bool gather);

#endif

// Watches the workers of one attempt until all have ended: their exits, output, signals and time
// limits.
#ifndef TRIREME_LAUNCH_WATCH_H
#define TRIREME_LAUNCH_WATCH_H

#include "launch/nodes.h"
#include "launch/worker.h"

typedef struct launch_watch {
    const launch_options *options;
    launch_worker *workers;
    int count;
    launch_console *consoles; // LAUNCH_STREAMS of them
    int signal_fd;            // of SIGCHLD, SIGUSR1, SIGUSR2 and the signals to handle
    // The first signal that asked the run to end, or that was passed on to a worker which had no
    // handler for it; 0: none.
    int signal;
    launch_nodes *nodes; // NULL: the run has only this node
    nodes_message last;  // the latest END or AGAIN of the serving agent; kind 0: none has come
} launch_watch;

// Runs until every worker has ended and its output was written. If one fails, a signal comes or the
// serving agent says so, the others get SIGTERM (or that signal), some time to end, and then
// SIGKILL, so that no attempt hangs. How each ended is in workers[]; their processes are not
// reaped, so that their numbers cannot be reused.
void launch_watch_run(launch_watch *watch);

#endif

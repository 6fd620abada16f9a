// Watches the workers (the ranks' processes) of one attempt, that is, of one start of all workers,
// until all have ended: their exits, output, signals and time limits.
#ifndef TRIREME_LAUNCH_WATCH_H
#define TRIREME_LAUNCH_WATCH_H

#include "launch/nodes.h"
#include "launch/worker.h"

typedef struct launch_watch {
    const launch_options *options;
    launch_worker *workers;
    int count;
    launch_console *consoles; // the launcher's standard output and standard error
    int signal_fd; // receives SIGCHLD, the signals that are only passed on, and those that end the
                   // run
    // The signal that ends the run; 0: none. Either the launcher got it, perhaps before it started
    // the workers, and passes it on as a request to end. Or it is a signal that the launcher passed
    // on for other purposes, and that ended a worker because the worker has no handler for it.
    int signal;
    launch_nodes *nodes; // NULL: the run has only this node
    // The latest message END or AGAIN (nodes_message.h), by which the launcher that decides for all
    // nodes ends the attempt; kind 0: none has arrived.
    nodes_message last;
} launch_watch;

// Runs until every worker has ended and its output was written. If a worker fails, a signal arrives
// or the launcher that decides for all nodes (the serving agent) demands it, the workers that still
// run get SIGTERM (or that signal), some time to end, and then SIGKILL, so that no attempt hangs.
// workers[] tells how each worker has ended. The processes are not reaped, so that the system does
// not give their numbers to other processes.
void launch_watch_run(launch_watch *watch);

#endif

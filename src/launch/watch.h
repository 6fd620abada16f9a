// The loop over the workers of one attempt: ends, output, signals, time limits.
#ifndef TRIREME_LAUNCH_WATCH_H
#define TRIREME_LAUNCH_WATCH_H

#include "launch/worker.h"

typedef struct launch_watch {
    const launch_options *options;
    launch_worker *workers;
    int count;
    launch_console *consoles; // LAUNCH_STREAMS of them
    int signal_fd;            // of SIGCHLD, SIGUSR1, SIGUSR2 and the signals to handle
    int signal;               // the first that asked for an end; 0: none. Stays over attempts
} launch_watch;

// Returns when every worker has ended and its output was written: by themselves, or because one
// failed or a signal came: then the others are told (by SIGTERM, or the signal), have some time,
// and are killed. Their exit is in workers[]; they are not reaped.
void launch_watch_run(launch_watch *watch);

#endif

// One worker: its process, its output, its end.
#ifndef TRIREME_LAUNCH_WORKER_H
#define TRIREME_LAUNCH_WORKER_H

#include "launch/bind.h"
#include "launch/streams.h"

#include <sys/types.h>

enum { LAUNCH_STREAMS = 2 };

typedef struct launch_worker {
    int local_rank, rank;
    char folder[3072], error_file[3200];
    launch_stream streams[LAUNCH_STREAMS]; // stdout, stderr
    pid_t pid;                             // 0: not started, or gone
    bool own_group;                        // it leads a process group of its number
    bool ended;                            // its process still waits to be reaped
    bool asked_to_end; // it was alive when the launcher began to stop the workers
    bool was_stopped;  // and stood still when another one failed: the others had waited for it
    int exit_code;     // of one that ended by itself
    int signal;        // that ended it; 0: none
    int place;         // among those that ended: 1, 2, …
    int64_t ended_ns;  // CLOCK_REALTIME
} launch_worker;

typedef struct launch_worker_start {
    const char *path;
    char **argv, **environment;
    launch_cpus cpus;
    sigset_t mask;           // as it was when the launcher was started
    const sigset_t *handled; // set back to their default
    int stdin_fd;            // -1: inherited
} launch_worker_start;

// Starts the process; TRI_NOT_FOUND or TRI_IO with the reason if it cannot become the program.
tri_status launch_worker_spawn(launch_worker *worker, const launch_worker_start *start);
// Notices its end and how it ended, without reaping it: its number, and its group's, stay taken.
// True if it ended just now.
bool launch_worker_check(launch_worker *worker);
// Whether its process stands still, stopped by a signal.
bool launch_worker_is_stopped(const launch_worker *worker);
void launch_worker_signal(const launch_worker *worker, int number);
// Kills what its group still has, then reaps it. Its pid becomes 0.
void launch_worker_bury(launch_worker *worker);

#endif

// One worker: its process, its output, and how it ended.
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
    pid_t pid;                             // 0: not started, or reaped
    bool own_group;                        // it leads a process group, whose number is its pid
    bool ended;                            // it has ended, but is not yet reaped
    bool lost;          // it was killed, but did not end in time: it is left behind
    bool asked_to_end;  // it was alive when the launcher began to stop the workers
    bool was_suspended; // it was suspended by a signal at that time, so that the others waited
    int exit_code;      // 0 if a signal ended it
    int signal;         // the signal that ended it; 0: none
    int end_order;      // 1 for the first worker to end, then 2, …
    int64_t ended_ns;   // CLOCK_REALTIME
} launch_worker;

typedef struct launch_worker_start {
    const char *path;
    char **argv, **environment;
    launch_cpus cpus;
    sigset_t mask;           // the worker's signal mask: that of the launcher's start
    const sigset_t *handled; // signals whose default handling is restored
    int stdin_fd;            // -1: inherited
} launch_worker_start;

// Starts the process and returns once the program runs in it. TRI_NOT_FOUND, TRI_BAD_INPUT or
// TRI_IO with the reason if it cannot be started.
tri_status launch_worker_spawn(launch_worker *worker, const launch_worker_start *start);
// Records whether and how the worker ended. It is not reaped, so that no other process can get its
// pid or group number. True if it has ended since the last call.
bool launch_worker_check(launch_worker *worker);
// Whether a signal (SIGSTOP, SIGTSTP) has suspended the worker's process, so that others may have
// waited for it.
bool launch_worker_is_suspended(const launch_worker *worker);
// Sends a signal to the worker, and if it leads a process group, to the processes that it started.
void launch_worker_signal(const launch_worker *worker, int number);
// Kills the processes that are left in the worker's group, then reaps the worker, whose pid becomes
// 0. Does not wait for a lost worker, which did not end in time.
void launch_worker_reap(launch_worker *worker);

#endif

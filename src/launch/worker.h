// One worker (the launcher's view of one rank): its process, its output, and how it ended.
#ifndef TRIREME_LAUNCH_WORKER_H
#define TRIREME_LAUNCH_WORKER_H

#include "launch/bind.h"
#include "launch/guardian.h"
#include "launch/streams.h"

#include <sys/types.h>

enum { LAUNCH_STREAMS = 2 };

typedef struct launch_worker {
    int local_rank, rank;
    char folder[3072], error_file[3200];
    launch_stream streams[LAUNCH_STREAMS]; // stdout, stderr
    pid_t pid;                             // 0: not started, or already reaped
    bool own_group; // the worker is the leader of a process group, whose number is its pid
    bool ended;     // the worker has ended, but is not reaped yet
    // The worker was killed, but did not end in time, so the launcher no longer waits for it.
    bool lost;
    bool asked_to_end;  // the worker was running when the launcher began to stop the workers
    bool was_suspended; // a signal had suspended it at that time, so other workers waited for it
    int exit_code;      // 0 if a signal ended it
    int signal;         // the signal that ended it; 0: none did
    int end_order;      // 1 for the first worker to end, then 2, …
    int64_t ended_ns;   // when the worker ended, by CLOCK_REALTIME
} launch_worker;

typedef struct launch_worker_start {
    const char *path;
    char **argv, **environment;
    launch_cpus cpus;
    sigset_t mask; // the worker's signal mask, which is the launcher's mask from before the run
    const sigset_t *handled;         // signals that get their default handling in the worker
    int stdin_fd;                    // -1: standard input is inherited
    const launch_guardian *guardian; // is told the worker's process group, if it has its own
} launch_worker_start;

// Starts the process and returns once the program runs in it. TRI_NOT_FOUND, TRI_BAD_INPUT or
// TRI_IO: it cannot be started; the message has the reason.
tri_status launch_worker_spawn(launch_worker *worker, const launch_worker_start *start);
// Records whether and how the worker has ended. The process is not reaped, so that no other process
// can get its pid or group number. True if the worker has ended since the last call.
bool launch_worker_check(launch_worker *worker);
// Whether a signal (SIGSTOP, SIGTSTP) has suspended the worker's process, so that other workers may
// be waiting for it.
bool launch_worker_is_suspended(const launch_worker *worker);
// Sends a signal to the worker and, if it leads a process group, to the processes that it has
// started.
void launch_worker_signal(const launch_worker *worker, int number);
// Kills the processes that remain in the worker's group, then reaps the worker and sets its pid to
// 0. It does not wait for a lost worker, which did not end in time.
void launch_worker_reap(launch_worker *worker);

#endif

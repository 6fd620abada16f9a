// Why a run failed: the workers' ends, their error files, and which of them was the cause.
#ifndef TRIREME_LAUNCH_FAILURE_H
#define TRIREME_LAUNCH_FAILURE_H

#include "launch/worker.h"

#include "base/arena.h"

// What a worker wrote into its error file, torchrun's format: {"message": {"message": "Type: text",
// "extraInfo": {"timestamp": "seconds"}, "errorCode": n}}, or {"message": "text"}.
typedef struct launch_error {
    const char *message; // NULL: there is none
    double seconds;      // since 1970; 0: not told
    int code;            // 0: not told
    bool is_said;        // the worker has written the message to its standard error too
} launch_error;

// TRI_BAD_INPUT: not of that format, or larger than TRI_MAX_ERROR_FILE_BYTES.
tri_status launch_error_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                              launch_error *out);

// True if the worker failed: neither 0 nor 75 (stopped with a checkpoint), by itself.
bool launch_worker_failed(const launch_worker *worker);

// The worker whose failure was the cause; NULL: none failed. See launch_failure_report.
const launch_worker *launch_failure_cause(tri_arena *arena, const launch_worker *workers,
                                          int count);

// One report on standard error: what failed, the cause last. The cause is the failure with the
// earliest time stamp, to the second as error files have it; within one second those that were told
// to end come last, a crash by a signal before an error, then what ended first. Before all of these
// comes a worker that stood still, stopped by a signal, when the first of the others failed: they
// had waited for it. A sentence is printed once: not again for another worker, nor when the worker
// has said it on a console that shows it. Returns the cause; NULL: no worker failed.
const launch_worker *launch_failure_report(tri_arena *arena, const launch_worker *workers,
                                           int count, const char *host, int attempt, int attempts);

#endif

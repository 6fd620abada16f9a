// Finds why a run failed: how the workers ended, what they wrote into their error files, and which
// of them was the cause. Mostly one rank fails and all others follow, so the cause has to be told
// from its consequences.
#ifndef TRIREME_LAUNCH_FAILURE_H
#define TRIREME_LAUNCH_FAILURE_H

#include "launch/worker.h"

#include "base/arena.h"

// What a worker wrote into its error file, torchrun's format: {"message": {"message": "Type: text",
// "extraInfo": {"timestamp": "seconds"}, "errorCode": n}}, or {"message": "text"}.
typedef struct launch_error {
    const char *message; // NULL: there is no error file
    double seconds;      // since 1970; 0: unknown
    int code;            // 0: unknown
    bool is_printed;     // the worker has also written the message to its standard error
} launch_error;

// Reads an error file's `text`; `file` is its name for messages. TRI_BAD_INPUT: not of that format.
tri_status launch_error_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                              launch_error *out);

// What decides which of several failures, on one node or on many, was the cause.
enum {
    LAUNCH_SUSPENDED = 1, // by a signal when another worker failed: the others were waiting for it
    LAUNCH_CONSEQUENCE = 2, // it only reports another rank's failure (TRI_PEER_LOST, TRI_REFUSED)
    LAUNCH_ASKED = 4,       // the launcher had begun to stop it
    LAUNCH_CRASHED = 8,     // ended by a signal
    LAUNCH_BAD_INPUT = 16,  // a restart would fail in the same way
    LAUNCH_TOLD = 32,       // a worker of the node has printed the message on the console
};
typedef struct launch_cause {
    double seconds; // since 1970: the error file's time stamp, else when the process ended
    int32_t flags, end_order;
} launch_cause;
// Whether failure `a` is more likely the cause than `b`. launch_failure_report tells in which
// order.
bool launch_cause_comes_before(const launch_cause *a, const launch_cause *b);

// True if the worker has ended, by a signal or with an exit code other than 0 and 75 (stopped with
// a checkpoint, which is no failure).
bool launch_worker_failed(const launch_worker *worker);

// The worker whose failure was the cause, as in launch_failure_report; NULL: none failed.
const launch_worker *launch_failure_cause(tri_arena *arena, const launch_worker *workers,
                                          int count);

// Prints one report on standard error: what failed, the cause last. The cause is, in this order:
// - a worker that was suspended by a signal when another one failed, because the others were
//   waiting for it;
// - a failure other than the report of another rank's (TRI_PEER_LOST, TRI_REFUSED);
// - the failure with the earliest time stamp, in whole seconds as error files have it;
// - within one second, a worker that failed before the launcher began to stop the others;
// - then a crash by a signal before an error; then the worker that ended first.
// A text is printed once: not again for another worker, nor if a worker already printed it on the
// console. Bad input (exit code 2) that a worker printed there needs no report. Returns the cause;
// NULL: no worker failed.
const launch_worker *launch_failure_report(tri_arena *arena, const launch_worker *workers,
                                           int count, const char *host, int attempt, int attempts);

// Finds the cause of this node's failures, for a report that another node prints: what decides, and
// its text. Returns how many workers failed; if 0, the rest is not set.
int launch_failure_describe(tri_arena *arena, const launch_worker *workers, int count,
                            const char *host, launch_cause *cause, char *text, size_t size);

#endif

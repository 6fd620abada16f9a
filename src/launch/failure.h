// Finds why a run failed, from how the workers (the ranks' processes) ended and what they wrote
// into their error files. Usually one rank fails first and all other ranks fail in consequence, so
// the cause has to be distinguished from its consequences.
#ifndef TRIREME_LAUNCH_FAILURE_H
#define TRIREME_LAUNCH_FAILURE_H

#include "launch/worker.h"

#include "base/arena.h"

// The contents of a worker's error file, in torchrun's format: {"message": {"message": "Type:
// text", "extraInfo": {"timestamp": "seconds"}, "errorCode": n}}, or {"message": "text"}.
typedef struct launch_error {
    const char *message; // NULL: there is no error file
    double seconds;      // since 1970; 0: not known
    int code;            // the worker's error code; 0: not known
    bool is_printed;     // the worker has also written the message to its standard error
} launch_error;

// Parses the `text` of an error file; `file` is the file's name for messages. TRI_BAD_INPUT: the
// text does not have the format above.
tri_status launch_error_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                              launch_error *out);

// Facts about a failure: bits of launch_cause.flags. The first four help to decide which of several
// failures, on one node or on many, was the cause. The last two decide whether the workers are
// started again, and whether a report is printed.
enum {
    // A signal had suspended the worker when another one failed, so the other workers were waiting
    // for it.
    LAUNCH_SUSPENDED = 1,
    // The worker only reports another rank's failure (TRI_PEER_LOST, TRI_REFUSED).
    LAUNCH_CONSEQUENCE = 2,
    LAUNCH_ASKED = 4, // the launcher had already begun to stop the worker
    // A signal other than SIGABRT ended the worker, or a whole node was lost. (A program raises
    // SIGABRT itself, after it has found an error.)
    LAUNCH_CRASHED = 8,
    LAUNCH_BAD_INPUT = 16, // the worker had bad input, so a restart would fail in the same way
    LAUNCH_TOLD = 32,      // a worker of the same node has already printed why the input is bad
};
typedef struct launch_cause {
    // Seconds since 1970: the error file's time stamp or, without one, the time when the process
    // ended.
    double seconds;
    // flags: those of the bits above (LAUNCH_…) that are true of the failure. end_order: 1 for the
    // first worker of its node that ended.
    int32_t flags, end_order;
} launch_cause;
// Whether failure `a` is more likely the cause than `b`, by the order that launch_failure_report
// describes.
bool launch_cause_comes_before(const launch_cause *a, const launch_cause *b);

// True if the worker has ended by a signal, or with an exit code other than 0 and 75. (75 means:
// stopped with a checkpoint, which is not a failure.)
bool launch_worker_failed(const launch_worker *worker);

// Finds the worker whose failure was the cause, as in launch_failure_report; NULL: none failed.
const launch_worker *launch_failure_cause(tri_arena *arena, const launch_worker *workers,
                                          int count);

// Prints one report on standard error: what failed, the cause last. `attempt`: which start of the
// workers this was, from 1; `attempts`: how many starts are allowed. Of two failures, the first of
// these rules that tells them apart decides which one is more likely the cause:
// 1. A worker that a signal had suspended when another one failed: the other workers were waiting
//    for it, so their failures followed from this.
// 2. A failure that is not the report of another rank's failure (TRI_PEER_LOST, TRI_REFUSED).
// 3. The earlier time stamp, in whole seconds, because error files have no finer ones.
// 4. A worker that failed before the launcher began to stop the other workers.
// 5. A crash (LAUNCH_CRASHED).
// 6. The worker that ended first.
// Each text is printed once: not again for another worker, and not if a worker has already printed
// it on the console. Bad input (exit code 2) that a worker has printed there needs no report.
// Returns the cause; NULL: no worker failed.
const launch_worker *launch_failure_report(tri_arena *arena, const launch_worker *workers,
                                           int count, const char *host, int attempt, int attempts);

// Finds the cause of this node's failures, so that another node can report it: writes the facts to
// *cause, and to `text` the part of the report that describes it. Returns how many workers failed;
// if 0, *cause and `text` are not set.
int launch_failure_describe(tri_arena *arena, const launch_worker *workers, int count,
                            const char *host, launch_cause *cause, char *text, size_t size);

#endif

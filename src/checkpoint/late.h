// Waits for files that this host sees later than another: on a file system of several hosts, a file
// that one host has written may be missing or too short on another for some seconds, and would be
// reported as damaged.
#ifndef TRIREME_CHECKPOINT_LATE_H
#define TRIREME_CHECKPOINT_LATE_H

#include "checkpoint/manifest.h"
#include "comm/comm.h"

#include <limits.h>

enum {
    CHECKPOINT_LATE_MS = 10000,          // for all files of one search, or of one save
    CHECKPOINT_LATE_FIRST_PAUSE_MS = 10, // between two looks; doubles
    CHECKPOINT_LATE_LONGEST_PAUSE_MS = 500,
};

// How long this rank still waits for files that a network file system shows late, for all files
// together. It begins as CHECKPOINT_PATIENT.
typedef struct checkpoint_patience {
    int64_t left_ns;
    bool is_said; // the line that it waits; one is enough
} checkpoint_patience;
#define CHECKPOINT_PATIENT                                                                         \
    (checkpoint_patience) { .left_ns = CHECKPOINT_LATE_MS * INT64_C(1000000) }

// Which files of a checkpoint are seen, and how long they are, so that all ranks know what to wait
// for.
typedef struct checkpoint_sight {
    char path[PATH_MAX];                     // of the step's folder; empty: there is none
    int64_t bytes[CHECKPOINT_MAX_FILES + 1]; // of state.json and the files; -1: it is not there
} checkpoint_sight;

// Fills in `bytes` with what this host sees.
void checkpoint_look(checkpoint_sight *sight);
// Waits until this host sees the first `size_bytes` bytes of the file, which another rank sees, or
// until the patience ends. It reports no failure: opening the file does that afterwards.
void checkpoint_await_file(checkpoint_patience *patience, const char *path, int64_t size_bytes);
// Collective. Waits for all files of the checkpoint that any rank sees; `sight->path` is the same
// on all ranks.
tri_status checkpoint_await(tri_comm *comm, checkpoint_patience *patience, checkpoint_sight *sight);
// Collective. Waits in the same way for one file.
tri_status checkpoint_await_common(tri_comm *comm, checkpoint_patience *patience, const char *path);

#endif

// Waits for files that this host sees later than another host. On a network file system, a file
// that one host has written may be missing or too short on another for some seconds. Without the
// wait it would be reported as damaged.
#ifndef TRIREME_CHECKPOINT_LATE_H
#define TRIREME_CHECKPOINT_LATE_H

#include "checkpoint/manifest.h"
#include "comm/comm.h"

#include <limits.h>
#include <stdatomic.h>

enum {
    // How long a rank waits at most, in total, for the files of one operation, such as a save or a
    // search for a checkpoint.
    CHECKPOINT_LATE_MS = 10000,
    // First pause between two looks; each further pause is twice as long, up to the longest.
    CHECKPOINT_LATE_FIRST_PAUSE_MS = 10,
    CHECKPOINT_LATE_LONGEST_PAUSE_MS = 500,
};

// How much time this rank has left to wait for files that a network file system does not show yet.
// Waiting for one file leaves less time for those that follow. Begins as CHECKPOINT_PATIENT.
typedef struct checkpoint_patience {
    int64_t left_ns;
    bool has_warned; // this rank has warned that it waits; one warning is enough
    // Nobody needs the files any longer, so that waiting ends at the next look; may be NULL.
    const atomic_bool *is_cancelled;
} checkpoint_patience;
#define CHECKPOINT_PATIENT                                                                         \
    (checkpoint_patience) { .left_ns = CHECKPOINT_LATE_MS * INT64_C(1000000) }

// Which files of a checkpoint a host sees, and how long they are, so that all ranks know for which
// files to wait.
typedef struct checkpoint_seen_files {
    char path[PATH_MAX]; // the checkpoint's folder; empty: there is no checkpoint
    // Sizes in bytes of state.json and of the checkpoint's other files; -1: the file is not there.
    int64_t bytes[CHECKPOINT_MAX_FILES + 1];
} checkpoint_seen_files;

// Sets seen->bytes to the sizes of the checkpoint's files as this host sees them.
void checkpoint_look(checkpoint_seen_files *seen);
// Waits until this host sees the first `size_bytes` bytes of a file that another rank sees, or
// until the time in `patience` has run out or it is cancelled. It reports no failure, because
// opening the file afterwards will.
void checkpoint_await_file(checkpoint_patience *patience, const char *path, int64_t size_bytes);
// Waits until this host sees every file of the checkpoint `seen->path` that at least one rank
// sees, or until the time in `patience` has run out. Collective; all ranks pass the same path.
tri_status checkpoint_await(tri_comm *comm, checkpoint_patience *patience,
                            checkpoint_seen_files *seen);
// Waits in the same way for a single file, if at least one rank sees it. Collective.
tri_status checkpoint_await_common(tri_comm *comm, checkpoint_patience *patience, const char *path);

#endif

// Records the calls with which a program changes files, in the order in which they happen: those of
// all threads, and of ranks that are forked meanwhile.
#ifndef TESTS_SUPPORT_CRASH_LOG_H
#define TESTS_SUPPORT_CRASH_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum { CRASH_PATH_BYTES = 160 };

typedef enum crash_kind {
    CRASH_CREATE,   // makes a new, empty file
    CRASH_WRITE,    // writes `size` bytes of `data` at `offset`
    CRASH_SIZE,     // sets the file's size
    CRASH_SYNC,     // fsync of a file or folder
    CRASH_RENAME,   // renames `path` to `other`, which is replaced if it exists
    CRASH_EXCHANGE, // exchanges the names `path` and `other`
    CRASH_SYMLINK,  // makes `path` a symbolic link to `other`
    CRASH_MKDIR,
    CRASH_REMOVE, // unlink or rmdir
    CRASH_MARK,   // no call: the test notes a number here (crash_log_mark), such as a step
} crash_kind;

typedef struct crash_call {
    crash_kind kind;
    int writer;                  // pid of the process that made the call
    char path[CRASH_PATH_BYTES]; // relative to the root of the log
    // The second path of a rename or exchange, relative to the root; for CRASH_SYMLINK the target
    // of the symbolic link, exactly as the program passed it.
    char other[CRASH_PATH_BYTES];
    int64_t offset, size, mark;
    const char *data;
} crash_call;

typedef struct crash_log {
    crash_call *calls;
    int count;
    char *data; // the bytes that all calls wrote
} crash_log;

// From here on, records every call that changes something below `root`. Nothing is really synced.
// With `no_exchange` the file system cannot exchange two names.
void crash_log_begin(const char *root, bool no_exchange);
void crash_log_mark(int64_t mark);
// Ends the recording. *out: the recorded calls, which the caller frees with crash_log_free.
void crash_log_end(crash_log *out);
void crash_log_free(crash_log *log);

#endif

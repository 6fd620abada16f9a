// What a program asks of the file system, written down as it happens: by any thread and by ranks
// that are forked while it is written.
#ifndef TESTS_SUPPORT_CRASH_LOG_H
#define TESTS_SUPPORT_CRASH_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum { CRASH_PATH_BYTES = 160 };

typedef enum crash_kind {
    CRASH_CREATE,   // a new, empty file
    CRASH_WRITE,    // size bytes of data at offset
    CRASH_SIZE,     // the file gets this size
    CRASH_SYNC,     // fsync of a file or folder
    CRASH_RENAME,   // path to other, which is replaced if it exists
    CRASH_EXCHANGE, // path and other
    CRASH_SYMLINK,  // path leads to other
    CRASH_MKDIR,
    CRASH_REMOVE, // unlink or rmdir
    CRASH_MARK,   // by the test: a number that holds from here on
} crash_kind;

typedef struct crash_call {
    crash_kind kind;
    int writer;                   // the process
    char path[CRASH_PATH_BYTES];  // below the root
    char other[CRASH_PATH_BYTES]; // below the root; of a link as it was given
    int64_t offset, size, mark;
    const char *data;
} crash_call;

typedef struct crash_log {
    crash_call *calls;
    int count;
    char *data; // what all calls wrote
} crash_log;

// From here on, records every call that changes something below `root`. Nothing is really synced.
// With `no_exchange` the file system cannot exchange two names.
void crash_log_begin(const char *root, bool no_exchange);
void crash_log_mark(int64_t mark);
// *out: the recorded calls, which the caller frees.
void crash_log_end(crash_log *out);
void crash_log_free(crash_log *log);

#endif

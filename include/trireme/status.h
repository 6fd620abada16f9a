// Status codes, and the message that goes with the last failure of a thread.
#ifndef TRIREME_STATUS_H
#define TRIREME_STATUS_H

#include <trireme/api.h>

TRI_API_BEGIN

// X(code, exit code of the program, meaning). Each kind of failure has a code of its own, so that a
// caller can tell from the code what to do, and a script from the exit code.
#define TRI_STATUS_LIST(X)                                                                         \
    X(TRI_OK, 0, "done")                                                                           \
    X(TRI_BAD_INPUT, 2, "bad usage, recipe or input")                                              \
    X(TRI_CORRUPT, 2, "damaged data")                                                              \
    X(TRI_NOT_FOUND, 2, "not found")                                                               \
    X(TRI_UNSUPPORTED, 2, "not supported")                                                         \
    X(TRI_REFUSED, 2, "another rank has bad input")                                                \
    X(TRI_IO, 1, "input/output error")                                                             \
    X(TRI_NO_SPACE, 1, "no space left")                                                            \
    X(TRI_NO_MEMORY, 1, "out of memory")                                                           \
    X(TRI_NETWORK, 1, "network error")                                                             \
    X(TRI_TIMEOUT, 1, "timed out")                                                                 \
    X(TRI_PEER_LOST, 1, "a peer rank was lost")                                                    \
    X(TRI_MISMATCH, 1, "ranks disagree")                                                           \
    X(TRI_NOT_FINITE, 1, "a value is not finite")                                                  \
    X(TRI_STOPPED, 75, "stopped early with a checkpoint")                                          \
    X(TRI_INTERNAL, 1, "internal error")

typedef enum tri_status {
#define X(code, exit_code, text) code,
    TRI_STATUS_LIST(X)
#undef X
        TRI_STATUS_COUNT
} tri_status;

// The code's name ("TRI_IO"); never NULL.
const char *tri_status_name(tri_status status);
// What the code means in words; never NULL.
const char *tri_status_text(tri_status status);
// The exit code a program ends with for this status.
int tri_status_exit_code(tri_status status);

// The message of the calling thread's last failure: one line, no line feed; "" when there was none.
// Valid until this thread's next failure.
const char *tri_error_message(void);

TRI_API_END

#endif

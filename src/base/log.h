// Messages for people, on standard error. Results are written to standard output instead, so that
// they can be piped.
#ifndef TRIREME_BASE_LOG_H
#define TRIREME_BASE_LOG_H

#include <stdbool.h>

typedef enum tri_log_level {
    TRI_LOG_ERROR,
    TRI_LOG_WARNING,
    TRI_LOG_INFO,
    TRI_LOG_DEBUG,
    TRI_LOG_TRACE,
} tri_log_level;

// Prints one line ("trireme: " and the text) if `level` is not above the level in TRIREME_DEBUG (0
// or unset: info, 1: debug, 2: trace). Thread-safe; the line is written by one write().
void tri_log_line(tri_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Logs, at level debug, that the process has reached this stage of its start, with the time of
// CLOCK_MONOTONIC, which all processes of a host share. bench/startup reads these lines.
void tri_log_stage(const char *stage);

// Sets a function that wipes the progress line before a message is printed; else the message would
// be appended to that line. NULL: there is no progress line.
void tri_log_set_status_line(void (*wipe)(void *context), void *context);

// Sets a function that gets the text of each warning that is printed, on the thread that prints it.
// It must not print a message itself. NULL: nobody listens.
void tri_log_set_listener(void (*hear)(void *context, const char *text), void *context);

// True if standard error is a terminal and, for tri_log_has_colour, NO_COLOR is not set.
bool tri_log_is_terminal(void);
bool tri_log_has_colour(void);

#endif

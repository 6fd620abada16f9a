// How functions of this program fail: TRI_FAIL where the failure is found, TRI_TRY in all callers.
#ifndef TRIREME_BASE_STATUS_H
#define TRIREME_BASE_STATUS_H

#include <trireme/status.h>

enum { TRI_MESSAGE_MAX_BYTES = 1024 };

// Stores the calling thread's error message and returns `status`; file and line are shown only at
// log level debug. The message names what failed (file, key, parameter, rank) and what to do; it
// has no line feed.
// TRI_FAIL contains `status` twice, so that the compiler knows that its value is not TRI_OK.
#define TRI_FAIL(status, ...) (tri_status_fail((status), __FILE__, __LINE__, __VA_ARGS__), (status))
tri_status tri_status_fail(tri_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Puts the formatted text and ": " before the calling thread's error message, and returns `status`
// unchanged, for a caller that knows more than the function that failed: which file, which rank.
tri_status tri_status_context(tri_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Returns from the calling function if `expression` is not TRI_OK. At log level trace it logs each
// place through which a failure passes, like a stack trace.
#define TRI_TRY(expression)                                                                        \
    do {                                                                                           \
        tri_status tri_try_status_ = (expression);                                                 \
        if (tri_try_status_ != TRI_OK) {                                                           \
            tri_status_hop(tri_try_status_, __FILE__, __LINE__);                                   \
            return tri_try_status_;                                                                \
        }                                                                                          \
    } while (0)
void tri_status_hop(tri_status status, const char *file, int line);

// Checks a condition that only a bug can make false. (Failures in operation return a status
// instead.) Prints file and line and aborts, also in release builds, because continuing would
// compute wrong results.
#define TRI_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : tri_assert_failed(#condition, __FILE__, __LINE__))
__attribute__((noreturn)) void tri_assert_failed(const char *condition, const char *file, int line);

#endif

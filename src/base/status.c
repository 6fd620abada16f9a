// The table of statuses, and the error message of each thread.
#include "base/status.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[TRI_MESSAGE_MAX_BYTES];

static const struct {
    const char *name;
    int exit_code;
    const char *text;
} statuses[TRI_STATUS_COUNT] = {
#define X(code, exit, words) [code] = {#code, exit, words},
    TRI_STATUS_LIST(X)
#undef X
};

static bool known(tri_status status) { return (unsigned)status < TRI_STATUS_COUNT; }

const char *tri_status_name(tri_status status) {
    return known(status) ? statuses[status].name : "unknown status";
}

const char *tri_status_text(tri_status status) {
    return known(status) ? statuses[status].text : "unknown status";
}

int tri_status_exit_code(tri_status status) {
    return known(status) ? statuses[status].exit_code : 1;
}

const char *tri_error_message(void) { return message; }

// Makes the text one line, because texts from files and other processes may contain control
// characters.
static void one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = ' ';
}

tri_status tri_status_fail(tri_status status, const char *file, int line, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    one_line(text);
    memcpy(message, text, sizeof message);
    tri_log_line(TRI_LOG_DEBUG, "%s at %s:%d: %s", tri_status_name(status), file, line, message);
    return status;
}

tri_status tri_status_context(tri_status status, const char *format, ...) {
    char text[2 * TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(text, TRI_MESSAGE_MAX_BYTES, format, arguments);
    va_end(arguments);
    if (used < 0) return status;
    if (used >= TRI_MESSAGE_MAX_BYTES) used = TRI_MESSAGE_MAX_BYTES - 1;
    snprintf(text + used, sizeof text - (size_t)used, ": %s", message);
    text[TRI_MESSAGE_MAX_BYTES - 1] = 0;
    one_line(text);
    memcpy(message, text, sizeof message);
    return status;
}

void tri_status_hop(tri_status status, const char *file, int line) {
    tri_log_line(TRI_LOG_TRACE, "%s passes %s:%d", tri_status_name(status), file, line);
}

void tri_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "trireme: bug: %s does not hold at %s:%d\n", condition, file, line);
    abort();
}

// Messages on standard error. Each is one line, written by one write(), so that lines of several
// ranks are not mixed.
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*wipe_line)(void *context);
static void *wipe_context;
static void (*hear_warning)(void *context, const char *text);
static void *hear_context;

static tri_log_level current_level(void) {
    static int level = -1;
    if (level < 0) {
        const char *text = getenv("TRIREME_DEBUG");
        int asked = text ? atoi(text) : 0;
        // tri_main refuses what is no level, in one line.
        level = TRI_LOG_INFO + (asked < 0 || asked > 2 ? 0 : asked);
    }
    return (tri_log_level)level;
}

bool tri_log_is_terminal(void) { return isatty(STDERR_FILENO) == 1; }

bool tri_log_has_colour(void) {
    const char *no_colour = getenv("NO_COLOR");
    return (!no_colour || !*no_colour) && tri_log_is_terminal();
}

void tri_log_set_status_line(void (*wipe)(void *context), void *context) {
    pthread_mutex_lock(&lock);
    wipe_line = wipe;
    wipe_context = context;
    pthread_mutex_unlock(&lock);
}

void tri_log_set_listener(void (*hear)(void *context, const char *text), void *context) {
    pthread_mutex_lock(&lock);
    hear_warning = hear;
    hear_context = context;
    pthread_mutex_unlock(&lock);
}

void tri_log_stage(const char *stage) {
    struct timespec now;
    if (current_level() < TRI_LOG_DEBUG) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    tri_log_line(TRI_LOG_DEBUG, "stage '%s' at %.6f s", stage,
                 (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
}

void tri_log_line(tri_log_level level, const char *format, ...) {
    if (level > current_level()) return;
    int saved_errno = errno;
    char line[4096];
    int used =
        snprintf(line, sizeof line, "trireme: %s", level == TRI_LOG_WARNING ? "warning: " : "");
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof line - 2) length = sizeof line - 2;
    pthread_mutex_lock(&lock);
    line[length] = 0;
    if (hear_warning && level == TRI_LOG_WARNING) hear_warning(hear_context, line + used);
    line[length++] = '\n';
    if (wipe_line) wipe_line(wipe_context);
    if (write(STDERR_FILENO, line, length) <
        0) { /* there is nothing else to which the failure could be reported */
    }
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
}

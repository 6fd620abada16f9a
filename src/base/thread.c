// Starts threads with all signals blocked, so that signals reach the threads of the program that
// uses the library, and in the C locale. Makes condition variables that use the monotonic clock,
// because the real-time clock may be set.
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

locale_t tri_thread_use_c_locale(void) {
    // The C library makes this locale without memory and never frees it.
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

typedef struct thread_start {
    void *(*body)(void *context);
    void *context;
} thread_start;

static void *run_thread(void *context) {
    thread_start start = *(const thread_start *)context;
    free(context);
    tri_thread_use_c_locale();
    return start.body(start.context);
}

int tri_thread_start(pthread_t *thread, void *(*body)(void *context), void *context) {
    thread_start *start = malloc(sizeof *start);
    if (!start) return ENOMEM;
    *start = (thread_start){body, context};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run_thread, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) free(start);
    return error;
}

tri_status tri_thread_demand(pthread_t *thread, void *(*body)(void *context), void *context,
                             const char *whose) {
    int error = tri_thread_start(thread, body, context);
    if (!error) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY,
                    "cannot start a thread of %s (%s): raise the limits of memory (ulimit -v) and "
                    "of processes (ulimit -u)",
                    whose, strerror(error));
}

void tri_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec tri_condition_deadline(int64_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000L;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return until;
}

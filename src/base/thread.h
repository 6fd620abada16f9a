// Starts threads of the library, and makes conditions that wait on the monotonic clock.
#ifndef TRIREME_BASE_THREAD_H
#define TRIREME_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

// pthread_create with all signals blocked in the new thread, so that the program's own threads
// handle them. Returns pthread_create's error; 0: the thread was started.
int tri_thread_start(pthread_t *thread, void *(*body)(void *context), void *context);
// Starts a thread as tri_thread_start does, and fails if there is none. TRI_NO_MEMORY names for
// whom (`whose`) there is no thread.
tri_status tri_thread_demand(pthread_t *thread, void *(*body)(void *context), void *context,
                             const char *whose);

// Makes a condition whose timed waits take times of the monotonic clock: the real-time clock may be
// set while they wait.
void tri_condition_init(pthread_cond_t *condition);
// The time so many milliseconds from now, for a timed wait on such a condition.
struct timespec tri_condition_deadline(int64_t ms);

#endif

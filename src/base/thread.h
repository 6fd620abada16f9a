// Starts the library's threads, and makes condition variables that use the monotonic clock.
#ifndef TRIREME_BASE_THREAD_H
#define TRIREME_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

// Calls pthread_create with all signals blocked in the new thread, so that signals reach the
// threads of the program that uses the library. Returns pthread_create's error; 0: the thread was
// started.
int tri_thread_start(pthread_t *thread, void *(*body)(void *context), void *context);
// As tri_thread_start, but returns a status. TRI_NO_MEMORY: no thread could be started; the message
// names the thread's purpose, `whose`.
tri_status tri_thread_demand(pthread_t *thread, void *(*body)(void *context), void *context,
                             const char *whose);

// Makes a condition variable whose timed waits use the monotonic clock, because the real-time clock
// may be set during a wait.
void tri_condition_init(pthread_cond_t *condition);
// Returns the time `ms` milliseconds from now, for a timed wait on a condition variable that
// tri_condition_init has made.
struct timespec tri_condition_deadline(int64_t ms);

#endif

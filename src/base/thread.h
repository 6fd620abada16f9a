// Starts the library's threads, and makes condition variables that use the monotonic clock.
#ifndef TRIREME_BASE_THREAD_H
#define TRIREME_BASE_THREAD_H

#include "base/status.h"

#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

// From now on the calling thread reads and writes in the C locale, so that numbers have a decimal
// point whatever locale the program sets, before or later (setlocale). Returns the thread's locale
// so far, for uselocale.
locale_t tri_thread_use_c_locale(void);

// Calls pthread_create with all signals blocked in the new thread, so that signals reach the
// threads of the program that uses the library. The thread uses the C locale. Returns the error of
// pthread_create or ENOMEM; 0: the thread was started.
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

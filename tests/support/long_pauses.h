// Makes threads that look whether messages have arrived sleep longer between two looks. A test with
// many ranks on few cores that holds actions up would otherwise do little else than wake them.
#ifndef TESTS_SUPPORT_LONG_PAUSES_H
#define TESTS_SUPPORT_LONG_PAUSES_H

#include "base/os.h"

static void (*long_pauses_sleep)(int64_t duration_ns);

static inline void long_pauses_sleep_longer(int64_t duration_ns) {
    const int64_t least_ns = 200000;
    long_pauses_sleep(duration_ns > least_ns ? duration_ns : least_ns);
}

// To be called once in a program, before it starts threads and ranks.
static inline void long_pauses_begin(void) {
    long_pauses_sleep = tri_os.sleep_ns;
    tri_os.sleep_ns = long_pauses_sleep_longer;
}

#endif

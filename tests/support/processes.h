// Processes that a test has started: whether they live, and waits for what they do.
#ifndef TESTS_SUPPORT_PROCESSES_H
#define TESTS_SUPPORT_PROCESSES_H

#include "base/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROCESSES_SOON_S = 60 }; // whatever a busy machine needs for what is waited for

static inline bool processes_live(long pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    fclose(file);
    return state != 'Z' && state != 'X';
}

// Waits until `count` pids, one per line, are in the file `folder`/pids.
static inline void processes_read_pids(const char *folder, long *pids, int count) {
    char path[128];
    snprintf(path, sizeof path, "%s/pids", folder);
    memset(pids, 0, (size_t)count * sizeof *pids);
    double end = tri_os_seconds() + PROCESSES_SOON_S;
    for (; tri_os_seconds() < end; usleep(10000)) {
        FILE *file = fopen(path, "r");
        int found = 0;
        while (file && found < count && fscanf(file, "%ld\n", &pids[found]) == 1) found++;
        if (file) fclose(file);
        if (found == count) return;
    }
    fail_msg("%d processes did not start", count);
}

// Waits until all of the processes have ended.
static inline void processes_end(const long *pids, int count) {
    double end = tri_os_seconds() + PROCESSES_SOON_S;
    for (int i = 0; i < count; i++) {
        while (processes_live(pids[i]) && tri_os_seconds() < end) usleep(5000);
        if (processes_live(pids[i])) fail_msg("process %ld still lives", pids[i]);
    }
}

#endif

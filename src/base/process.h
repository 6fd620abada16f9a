// Identifies processes, also those of other hosts, in files and messages. A pid alone is not
// enough, because the system gives it to another process later.
#ifndef TRIREME_BASE_PROCESS_H
#define TRIREME_BASE_PROCESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_PROCESS_TEXT_BYTES = 768 };

typedef struct tri_process {
    char host[256]; // name of the host, for messages
    char boot[64];  // id of the boot of the host; no two hosts or boots have the same id
    int64_t pid_namespace, pid;
    int64_t started; // when the process started, in clock ticks since the boot
} tri_process;

typedef enum tri_life {
    TRI_LIFE_GONE, // the process was on this host and has ended, is ending, or waits to be reaped
    TRI_LIFE_ALIVE,
    // The process is on another host or in another PID namespace. Here its pid may mean another
    // process.
    TRI_LIFE_UNKNOWN,
} tri_life;

// Gets the time when the process started, in clock ticks since the boot, which distinguishes it
// from a later process with the same pid. 0: there is no such process here, or it is ending.
uint64_t tri_process_start_time(int64_t pid);
void tri_process_self(tri_process *out);
tri_life tri_process_life(const tri_process *process);
// True if the process is on this host, in any PID namespace.
bool tri_process_is_here(const tri_process *process);

// Write a process as one line of JSON, and read it back. False: the text does not have this form.
void tri_process_write(const tri_process *process, char text[TRI_PROCESS_TEXT_BYTES]);
bool tri_process_read(const char *text, size_t size, tri_process *out);

#endif

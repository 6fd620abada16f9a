// Identifies processes, also those of other hosts, in files and messages. A pid alone is not
// enough: the system gives it to another process later.
#ifndef TRIREME_BASE_PROCESS_H
#define TRIREME_BASE_PROCESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_PROCESS_TEXT_BYTES = 768 };

typedef struct tri_process {
    char host[256]; // for messages
    char boot[64];  // the machine's boot id, which differs between machines
    int64_t pid_namespace, pid;
    int64_t started; // clock ticks since the boot
} tri_process;

typedef enum tri_life {
    TRI_LIFE_GONE, // it was on this machine and has ended, is ending, or waits to be reaped
    TRI_LIFE_ALIVE,
    TRI_LIFE_UNKNOWN, // of another machine or PID namespace, where its pid means another process
} tri_life;

// When the process started, in clock ticks since the boot, which tells it from a later one with the
// same pid; 0: there is no such process here, or it is ending.
uint64_t tri_process_start_time(int64_t pid);
void tri_process_self(tri_process *out);
tri_life tri_process_life(const tri_process *process);
bool tri_process_is_here(const tri_process *process); // on this machine, in any PID namespace

// Writes a process as one line of JSON, and reads it back; false: the text is not of that form.
void tri_process_write(const tri_process *process, char text[TRI_PROCESS_TEXT_BYTES]);
bool tri_process_read(const char *text, size_t size, tri_process *out);

#endif

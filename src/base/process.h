// Processes by more than their number, which another process takes over: also those of another
// host, as a file or a message names them.
#ifndef TRIREME_BASE_PROCESS_H
#define TRIREME_BASE_PROCESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_PROCESS_TEXT_BYTES = 768 };

typedef struct tri_process {
    char host[256]; // for messages
    char boot[64];  // of the machine, since it was started: tells machines apart
    int64_t pid_namespace, pid;
    int64_t started; // clock ticks since the boot
} tri_process;

typedef enum tri_life {
    TRI_LIFE_GONE, // a process of this machine that has ended, ends, or waits to be reaped
    TRI_LIFE_ALIVE,
    TRI_LIFE_UNKNOWN, // of another machine or PID namespace: its number says nothing here
} tri_life;

// In clock ticks since the boot; 0: there is no such process here, or it ends.
uint64_t tri_process_start_time(int64_t pid);
void tri_process_self(tri_process *out);
tri_life tri_process_life(const tri_process *process);
bool tri_process_is_here(const tri_process *process); // on this machine, in any PID namespace

// One line of JSON, and back; false: it is none.
void tri_process_write(const tri_process *process, char text[TRI_PROCESS_TEXT_BYTES]);
bool tri_process_read(const char *text, size_t size, tri_process *out);

#endif

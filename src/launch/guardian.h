// A small process that outlives the launcher by a moment: when the launcher is killed, it kills the
// workers' process groups, whatever the workers have started included. (The workers themselves also
// ask the kernel to end with their parent.)
#ifndef TRIREME_LAUNCH_GUARDIAN_H
#define TRIREME_LAUNCH_GUARDIAN_H

#include "base/status.h"

#include <sys/types.h>

typedef struct launch_guardian {
    pid_t pid;
    int line; // its standard input: groups to watch over; its end is the launcher's
} launch_guardian;

tri_status launch_guardian_start(launch_guardian *out);
void launch_guardian_add(launch_guardian *guardian, pid_t group);
void launch_guardian_forget(launch_guardian *guardian, pid_t group);
// Nothing is killed any more; waits for the process's end.
void launch_guardian_stop(launch_guardian *guardian);

#endif

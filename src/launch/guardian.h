// The guardian: a small process that kills the workers' process groups when the launcher is killed,
// so that the workers' own children (data loaders, for example) end too. The workers themselves do
// not need it, because they ask the kernel to end them with their parent.
#ifndef TRIREME_LAUNCH_GUARDIAN_H
#define TRIREME_LAUNCH_GUARDIAN_H

#include "base/status.h"

#include <sys/types.h>

typedef struct launch_guardian {
    pid_t pid;
    int pipe; // leads to the guardian's standard input; carries which groups to add and remove
} launch_guardian;

tri_status launch_guardian_start(launch_guardian *out);
// Safe between fork and exec, like tri_os.write.
void launch_guardian_add(const launch_guardian *guardian, pid_t group);
void launch_guardian_remove(const launch_guardian *guardian, pid_t group);
// Ends the guardian without killing the workers, and waits for the guardian's process.
void launch_guardian_stop(launch_guardian *guardian);

#endif

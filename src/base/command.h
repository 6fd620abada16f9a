// Runs another program and gets what it prints. For example, `squeue` tells how much time a job of
// Slurm has left.
#ifndef TRIREME_BASE_COMMAND_H
#define TRIREME_BASE_COMMAND_H

#include "base/status.h"

#include <stddef.h>

// Runs argv[0], found in PATH, without standard input, and waits until it ends. `out` gets what it
// printed on standard output: up to size - 1 bytes, followed by a 0 byte; the rest is dropped.
// TRI_NOT_FOUND: there is no such program. TRI_TIMEOUT: it was killed after timeout_ms. TRI_IO: it
// could not be started, a signal ended it, or its exit code was not 0; in the last case the message
// has the first line of its error output.
tri_status tri_command_run(char *const argv[], int timeout_ms, char *out, size_t size);

#endif

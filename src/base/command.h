// Runs another program and gets what it prints. For example, `squeue` tells how much time a job of
// Slurm has left.
#ifndef TRIREME_BASE_COMMAND_H
#define TRIREME_BASE_COMMAND_H

#include "base/status.h"

#include <stddef.h>

// Runs argv[0], found in PATH, without standard input, and waits until it ends. `out` gets what it
// printed on standard output: up to size - 1 bytes, followed by a 0 byte; the rest is dropped.
// Signals by which a job is asked to end do not end it. TRI_NOT_FOUND: there is no such program.
// TRI_TIMEOUT: it was killed, after timeout_ms or by someone else, so whether it has done its work
// is not known. TRI_IO: it could not be started, or its exit code was not 0; then the message has
// the first line of its error output.
tri_status tri_command_run(char *const argv[], int timeout_ms, char *out, size_t size);

#endif

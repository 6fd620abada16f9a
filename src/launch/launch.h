// `trireme run`: starts the ranks of one node as torchrun does, watches them, and starts them again
// after a failure.
#ifndef TRIREME_LAUNCH_LAUNCH_H
#define TRIREME_LAUNCH_LAUNCH_H

#include <stdbool.h>

// Runs the command. argv[0] is the command's name ("run"), then come torchrun's flags, PROGRAM and
// its arguments. Returns the exit code:
//   0      all workers succeeded
//   1      a worker failed
//   2      bad usage, or the first failure had exit code 2
//   75     workers stopped with a checkpoint
//   128+n  signal n ended the run. SIGUSR1, SIGUSR2 and SIGXCPU are only passed on to the workers;
//          they end the run only if a worker has no handler for them.
// While this function runs, it owns the process's signals and all of its children. The signals
// stay blocked when it returns, because the process is then about to end.
int tri_launch_main(int argc, char **argv);

#endif

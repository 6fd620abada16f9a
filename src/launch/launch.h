// `trireme run`: starts the ranks of one node as torchrun does, watches them, and starts them again
// after a failure.
#ifndef TRIREME_LAUNCH_LAUNCH_H
#define TRIREME_LAUNCH_LAUNCH_H

#include <stdbool.h>

// Runs the command. argv[0] is the command's name ("run"), then come torchrun's flags, PROGRAM and
// its arguments. Returns the exit code: 0: all workers succeeded; 1: a worker failed (2 if the
// first failure had exit code 2); 2: bad usage; 75: workers stopped with a checkpoint; 128+n:
// signal n ended the run. The last one also holds for a signal that was only passed on, if a worker
// had no handler for it yet. While this function runs, it owns the process: its signals (those that
// end a run stay blocked, since the process is about to end) and all of its children.
int tri_launch_main(int argc, char **argv);

#endif

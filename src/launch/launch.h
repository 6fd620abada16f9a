// `trireme run`: starts the ranks of one node as torchrun does, watches and restarts them.
#ifndef TRIREME_LAUNCH_LAUNCH_H
#define TRIREME_LAUNCH_LAUNCH_H

#include <stdbool.h>

// argv[0] is the command's name ("run"), then torchrun's flags, PROGRAM and its arguments. Returns
// the exit code: 0: all workers succeeded; 1: a worker failed (2 if the first failure was exit code
// 2); 2: bad usage; 75: workers stopped with a checkpoint; 128+n: signal n ended the run, also one
// that was only passed on, if a worker had no handler for it yet. Owns the process while it runs:
// its signals (restored at the end) and all of its children.
int tri_launch_main(int argc, char **argv);

// Enumerates the flags, for manuals and completion; false: there is no flag `index`. `values` is
// NULL for switches.
typedef struct tri_launch_flag {
    const char *name, *values, *help;
    char letter; // 0: none
} tri_launch_flag;
bool tri_launch_flag_at(int index, tri_launch_flag *out);

#define TRI_LAUNCH_EXAMPLES                                                                        \
    "trireme run --standalone --nproc-per-node 2 trireme train recipes/mnist-cnn.yaml\n"           \
    "trireme run --standalone --nproc-per-node 4 --tee 3 --log-dir logs train.py --epochs 3\n"

#endif

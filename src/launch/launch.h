// `trireme run`: starts the ranks of one node as torchrun does, watches them, starts them again.
#ifndef TRIREME_LAUNCH_LAUNCH_H
#define TRIREME_LAUNCH_LAUNCH_H

// argv[0] is the command's name ("run"), then torchrun's flags, PROGRAM and its arguments. Returns
// the exit code: 0 all workers did well; 1 one failed (2 if the first to fail ended with 2); 2 bad
// usage; 75 workers stopped with a checkpoint; 128+n signal n ended the run. Owns the process while
// it runs: its signals (given back at the end) and all of its children.
int tri_launch_main(int argc, char **argv);

#endif

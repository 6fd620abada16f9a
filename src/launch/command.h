// The program that the workers (the ranks' processes) run, and its arguments. They are found once,
// before anything is started, so that a mistake is reported at once.
#ifndef TRIREME_LAUNCH_COMMAND_H
#define TRIREME_LAUNCH_COMMAND_H

#include "launch/members.h"

typedef struct launch_command {
    const char *path; // path of the executable
    // The program's name and its arguments, in which ${local_rank} is not replaced yet
    // (launch_command_arguments does that); NULL at the end.
    const char **argv;
    int argc;
} launch_command;

// Finds the PROGRAM of `trireme run [FLAG …] PROGRAM [ARG …]`, on PATH if its name has no slash.
// "train.py --epochs 3" becomes "python3 -u train.py --epochs 3". If there is no `trireme` on PATH,
// that name means the running binary. TRI_NOT_FOUND: there is no such program. TRI_BAD_INPUT: it is
// not executable.
tri_status launch_command_find(tri_arena *arena, const launch_options *options,
                               launch_command *out);

// Make one worker's arguments and its environment: the variables of this process and those of
// torchrun, which PyTorch and this program read. Both arrays end with NULL and live in `arena`.
char **launch_command_arguments(tri_arena *arena, const launch_command *command, int local_rank);
char **launch_command_environment(tri_arena *arena, const launch_options *options,
                                  const launch_members *members, int local_rank,
                                  const char *error_file);

#endif

// The program and arguments that the workers run: found once, before anything is started, so that a
// mistake shows at once.
#ifndef TRIREME_LAUNCH_COMMAND_H
#define TRIREME_LAUNCH_COMMAND_H

#include "launch/members.h"

typedef struct launch_command {
    const char *path;  // of the executable
    const char **argv; // may still contain ${local_rank}; NULL at the end
    int argc;
} launch_command;

// Finds PROGRAM (on PATH if its name has no slash) and the arguments before the user's own. If
// there is no `trireme` on PATH, that name stands for the running binary. TRI_NOT_FOUND: there is
// no such program; TRI_BAD_INPUT: it is not executable.
tri_status launch_command_find(tri_arena *arena, const launch_options *options,
                               launch_command *out);

// One worker's arguments, and its environment: this process's own plus torchrun's variables, which
// PyTorch and this program read. Both end with NULL and live in `arena`.
char **launch_command_arguments(tri_arena *arena, const launch_command *command, int local_rank);
char **launch_command_environment(tri_arena *arena, const launch_options *options,
                                  const launch_members *members, int local_rank,
                                  const char *error_file);

#endif

// PROGRAM as the workers will run it: found once, before anything is started.
#ifndef TRIREME_LAUNCH_COMMAND_H
#define TRIREME_LAUNCH_COMMAND_H

#include "launch/members.h"

typedef struct launch_command {
    const char *path;  // of the executable
    const char **argv; // ${local_rank} still in it; NULL at the end
    int argc;
} launch_command;

// TRI_NOT_FOUND, TRI_BAD_INPUT: what is missing, by name. A program named trireme that is not on
// PATH is the running binary.
tri_status launch_command_find(tri_arena *arena, const launch_options *options,
                               launch_command *out);

// For one worker: its arguments, and its environment from this process's own and torchrun's
// variables.
char **launch_command_arguments(tri_arena *arena, const launch_command *command, int local_rank);
char **launch_command_environment(tri_arena *arena, const launch_options *options,
                                  const launch_members *members, int attempt, int local_rank,
                                  const char *error_file);

#endif

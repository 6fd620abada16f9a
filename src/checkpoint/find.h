// What a path that a person gave stands for.
#ifndef TRIREME_CHECKPOINT_FIND_H
#define TRIREME_CHECKPOINT_FIND_H

#include "checkpoint/folder.h"

typedef enum checkpoint_kind {
    CHECKPOINT_IS_STEP,   // a step's folder
    CHECKPOINT_IS_FOLDER, // some other folder
    CHECKPOINT_IS_FILE,
} checkpoint_kind;

// Follows links, and takes a run directory or its folder of checkpoints as its newest checkpoint.
// *out lies in `arena`. TRI_NOT_FOUND, TRI_IO.
tri_status checkpoint_resolve(tri_arena *arena, const char *path, checkpoint_kind *kind,
                              const char **out);
// The same where only a checkpoint will do; TRI_BAD_INPUT if it is a file.
tri_status checkpoint_step_folder(tri_arena *arena, const char *path, const char **out);
// The folder of checkpoints if `path` is a run directory or that folder itself; else NULL.
const char *checkpoint_home_of(tri_arena *arena, const char *path);
bool checkpoint_has(const char *folder, const char *name);

#endif

// Finds what a path given by the user means: a checkpoint, a run folder or a file.
#ifndef TRIREME_CHECKPOINT_FIND_H
#define TRIREME_CHECKPOINT_FIND_H

#include "checkpoint/folder.h"

typedef enum checkpoint_kind {
    CHECKPOINT_IS_STEP,   // a checkpoint: the folder of one step
    CHECKPOINT_IS_FOLDER, // a folder without checkpoints
    CHECKPOINT_IS_FILE,
} checkpoint_kind;

// Finds what `path` is, after following symbolic links, and sets *out (in `arena`) to the real
// path. A run folder, or its folder `checkpoints`, stands for its newest checkpoint: *out is then
// that checkpoint's path. TRI_NOT_FOUND, TRI_IO.
tri_status checkpoint_resolve(tri_arena *arena, const char *path, checkpoint_kind *kind,
                              const char **out);
// Refuses a path that is a file where a checkpoint, a folder, has to be; a pointer of Git LFS as
// such.
tri_status checkpoint_refuse_file(const char *path);
// As checkpoint_resolve, but accepts only a checkpoint; TRI_BAD_INPUT for a file.
tri_status checkpoint_step_folder(tri_arena *arena, const char *path, const char **out);
// Sets *out to the folder `checkpoints` if `path` is a run folder or that folder itself; else to
// NULL.
tri_status checkpoint_home_of(tri_arena *arena, const char *path, const char **out);
// Whether FOLDER/NAME exists, as tri_os_exists.
tri_status checkpoint_has(tri_arena *arena, const char *folder, const char *name, bool *out);

#endif

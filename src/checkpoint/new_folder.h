// A folder that is written under a temporary name beside its own, and gets its name when it is
// complete and synced. So nobody ever sees a half-written one, whatever ends the process.
#ifndef TRIREME_CHECKPOINT_NEW_FOLDER_H
#define TRIREME_CHECKPOINT_NEW_FOLDER_H

#include "base/arena.h"
#include "base/status.h"

typedef struct checkpoint_new_folder {
    const char *path;
    const char *temporary; // where its files are written
} checkpoint_new_folder;

// Begins a folder, and removes what killed processes have left of one with this name. Texts lie in
// `arena`. TRI_BAD_INPUT: there is something at `path`, and it is no empty folder.
tri_status checkpoint_new_folder_begin(tri_arena *arena, const char *path,
                                       checkpoint_new_folder *out);
// Ends it. `written`: the result of writing its files, each of which is synced. If it is TRI_OK,
// the folder gets its name, else it is removed. Returns the first failure.
tri_status checkpoint_new_folder_end(tri_arena *arena, const checkpoint_new_folder *folder,
                                     tri_status written);

#endif

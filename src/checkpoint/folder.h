// RUN/checkpoints: lists its steps, and adds, links and removes checkpoints so that a crash at any
// moment never leaves an incomplete folder under the name of a step.
#ifndef TRIREME_CHECKPOINT_FOLDER_H
#define TRIREME_CHECKPOINT_FOLDER_H

#include "checkpoint/manifest.h"

typedef struct checkpoint_step {
    int64_t step;        // by the folder's name
    const char *path;    // RUN/checkpoints/step-…
    tri_status readable; // TRI_OK, or why its state.json cannot be read
    const char *why;     // the message of that error; else ""
    checkpoint_manifest manifest;
} checkpoint_step;

typedef struct checkpoint_steps {
    checkpoint_step *items;
    int count;
} checkpoint_steps;

// Make the names "RUN/checkpoints" and "step-00000938".
const char *checkpoint_home(tri_arena *arena, const char *run_dir);
const char *checkpoint_step_name(tri_arena *arena, int64_t step);
// True if the last component of `path` is the name of a step's folder.
bool checkpoint_is_step_name(const char *path, int64_t *step);
// Gets the last component of a path.
const char *checkpoint_base_name(const char *path);
// Makes a hidden name that no other process uses: HOME/.KIND-NAME-PID-TIME. What has such a name is
// not complete, and is never taken for a checkpoint.
const char *checkpoint_hidden(tri_arena *arena, const char *home, const char *kind,
                              const char *name);

// Lists the steps of `home` with their manifests. First the unreadable ones, by falling step, then
// the others, by falling commit, so that whatever may be the newest comes first. A missing folder
// has no steps.
tri_status checkpoint_scan(tri_arena *arena, const char *home, checkpoint_steps *out);
// The readable step with the best value of that monitor; of equals, the earlier commit, so that the
// link `best` does not move without need. NULL: none has a value.
const checkpoint_step *checkpoint_best(const checkpoint_steps *steps,
                                       const tri_checkpoint_monitor *monitor);

// Renames the complete, synced folder `hidden` to HOME/NAME: this one rename makes the checkpoint
// exist. A folder that had this name before is at `hidden` afterwards.
tri_status checkpoint_commit(tri_arena *arena, const char *home, const char *hidden,
                             const char *name);
// Creates or replaces the symbolic link HOME/LINK → target in one atomic step, so that a reader
// always finds a checkpoint behind it.
tri_status checkpoint_link(tri_arena *arena, const char *home, const char *link,
                           const char *target);
// Whether the link HOME/LINK leads to the step at `path`.
bool checkpoint_links_to(tri_arena *arena, const char *home, const char *link, const char *path);
// Sets the links "last" and "best" to where a save would have set them that was killed between its
// commit and its links.
tri_status checkpoint_repair_links(tri_arena *arena, const char *home,
                                   const checkpoint_steps *steps);
// Removes all checkpoints but the newest, its TRI_CHECKPOINT_SPARES predecessors, the best `top_k`
// by `monitor`, and unreadable ones, which a later version may have written. `steps` as scanned.
// `top_k` -1 removes nothing.
tri_status checkpoint_retain(tri_arena *arena, const char *home, const checkpoint_steps *steps,
                             const tri_checkpoint_monitor *monitor, int64_t top_k);

#endif

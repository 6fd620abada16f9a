// The folder RUN/checkpoints, whose path is called `home` or HOME here. A "step" is the folder of
// one checkpoint in it, such as step-00000938. Lists the steps, adds and removes checkpoints, and
// sets the symbolic links "last" and "best" to two of them, in such a way that a crash at any
// moment never leaves an incomplete folder under the name of a step.
#ifndef TRIREME_CHECKPOINT_FOLDER_H
#define TRIREME_CHECKPOINT_FOLDER_H

#include "checkpoint/manifest.h"

typedef struct checkpoint_step {
    int64_t step;        // number of the step, read from the folder's name
    const char *path;    // RUN/checkpoints/step-…
    bool is_old;         // it cannot be read, but is not the newest
    tri_status readable; // TRI_OK, or why the checkpoint's state.json cannot be read
    const char *why;     // the message of that status; "" if it is TRI_OK
    checkpoint_manifest manifest;
} checkpoint_step;

typedef struct checkpoint_steps {
    checkpoint_step *items;
    int count;
} checkpoint_steps;

// Make the names "RUN/checkpoints" and "step-00000938".
const char *checkpoint_home(tri_arena *arena, const char *run_dir);
const char *checkpoint_step_name(tri_arena *arena, int64_t step);
// True if the last component of `path` is the name of a step's folder; *step is then its number.
bool checkpoint_is_step_name(const char *path, int64_t *step);
// Gets the last component of a path.
const char *checkpoint_base_name(const char *path);
// Makes a hidden name that no other process uses: HOME/.KIND-NAME-PID-TIME. A folder with such a
// name is not complete, and never counts as a checkpoint.
const char *checkpoint_hidden(tri_arena *arena, const char *home, const char *kind,
                              const char *name);

// Lists the steps of `home` with their manifests (the contents of state.json). Steps that cannot be
// read and may be the newest come first; of these, the largest step number comes first. Then come
// those that can be read, in reverse order of their commits, the newest first, and behind them
// those that cannot and are old. A missing folder has no steps.
tri_status checkpoint_scan(tri_arena *arena, const char *home, checkpoint_steps *out);
// Finds the readable step with the best value of the metric `monitor`. Of equal values it takes the
// earlier commit, so that the symbolic link `best` does not change needlessly. NULL: no step has a
// value of that metric.
const checkpoint_step *checkpoint_best(const checkpoint_steps *steps,
                                       const tri_checkpoint_monitor *monitor);

// Renames the complete, synced folder `hidden` to HOME/NAME. The checkpoint exists from this one
// rename on. If there was a folder HOME/NAME before, it has the name `hidden` afterwards.
tri_status checkpoint_commit(tri_arena *arena, const char *home, const char *hidden,
                             const char *name);
// Creates or replaces the symbolic link HOME/LINK → target in one atomic step, so that a reader
// always finds a checkpoint behind it. A folder of that name is replaced if it is a copy of a
// checkpoint of the run, as copying programs that follow links make it; TRI_BAD_INPUT: it is not.
tri_status checkpoint_link(tri_arena *arena, const char *home, const char *link,
                           const char *target);
// Whether the symbolic link HOME/LINK leads to the step at `path`.
bool checkpoint_links_to(tri_arena *arena, const char *home, const char *link, const char *path);
// Corrects the symbolic links "last" and "best". They are wrong if a save was killed after its
// commit but before it had set them.
tri_status checkpoint_repair_links(tri_arena *arena, const char *home,
                                   const checkpoint_steps *steps);
// Removes checkpoints. It keeps the newest, its TRI_CHECKPOINT_SPARES predecessors, the best
// `top_k` by `monitor`, those to which a link leads, and those that cannot be read, because a later
// version may have written them. `steps` is sorted as checkpoint_scan does it. With `top_k` -1 it
// removes nothing.
tri_status checkpoint_retain(tri_arena *arena, const char *home, const checkpoint_steps *steps,
                             const tri_checkpoint_monitor *monitor, int64_t top_k);
// Whether a new checkpoint with the monitored value would be among the `top_k` best. False if
// top_k is -1, because then nothing is ranked.
bool checkpoint_ranks_among(const checkpoint_steps *steps, const tri_checkpoint_monitor *monitor,
                            int64_t top_k);
// After a checkpoint is new or has a new value: points the symbolic link "best" at the best one,
// unless top_k is 0, and then removes old ones, also if the link could not be set. In this order
// the link never points at a checkpoint that was removed.
tri_status checkpoint_settle(tri_arena *arena, const char *home,
                             const tri_checkpoint_monitor *monitor, int64_t top_k);

#endif

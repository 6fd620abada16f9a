// RUN/checkpoints: which steps are there, the links to them, and how folders appear and vanish
// without ever looking whole when they are not.
#ifndef TRIREME_CHECKPOINT_FOLDER_H
#define TRIREME_CHECKPOINT_FOLDER_H

#include "checkpoint/manifest.h"

typedef struct checkpoint_step {
    int64_t step;     // by its name
    const char *path; // RUN/checkpoints/step-…
    tri_status readable;
    const char *why; // not readable; else ""
    checkpoint_manifest manifest;
} checkpoint_step;

typedef struct checkpoint_steps {
    checkpoint_step *items;
    int count;
} checkpoint_steps;

// "RUN/checkpoints" and "step-00000938".
const char *checkpoint_home(tri_arena *arena, const char *run_dir);
const char *checkpoint_step_name(tri_arena *arena, int64_t step);
// True if the last part of `path` is the name of a step's folder.
bool checkpoint_is_step_name(const char *path, int64_t *step);
// The last part of a path.
const char *checkpoint_base_name(const char *path);
// A hidden name that no other process uses: HOME/.KIND-WHAT-PID-TIME.
const char *checkpoint_hidden(tri_arena *arena, const char *home, const char *kind,
                              const char *what);

// The steps of `home` with what their state.json says: unreadable ones first, by falling step, then
// by falling commit. No such folder: none.
tri_status checkpoint_scan(tri_arena *arena, const char *home, checkpoint_steps *out);
// The readable one with the best value of that monitor, the earlier commit of equals; NULL: none.
const checkpoint_step *checkpoint_best(const checkpoint_steps *steps,
                                       const tri_checkpoint_monitor *monitor);

// Moves a complete, synced folder to its final name. One that was there is at `hidden` afterwards.
tri_status checkpoint_commit(tri_arena *arena, const char *home, const char *hidden,
                             const char *name);
// HOME/LINK → target, atomically.
tri_status checkpoint_link(tri_arena *arena, const char *home, const char *link,
                           const char *target);
// Removes what is neither the newest, nor one of its spares, nor one of the best `top_k` of
// `monitor`, nor unreadable (it may be of a later version). `steps` as scanned.
tri_status checkpoint_retain(tri_arena *arena, const char *home, const checkpoint_steps *steps,
                             const tri_checkpoint_monitor *monitor, int64_t top_k);

#endif

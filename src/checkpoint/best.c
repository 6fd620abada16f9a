// Which checkpoints of a run are the best: ranks one by an evaluation that was made after it was
// saved, and tells whether new weights would be among the best. Read next: folder.c.
#include "base/log.h"
#include "base/os.h"
#include "checkpoint/folder.h"

#include <stdio.h>

static tri_status amend(tri_arena *arena, const char *home, int64_t step, const tri_tree *training,
                        const tri_checkpoint_monitor *monitor, int64_t save_top_k) {
    checkpoint_manifest manifest;
    const char *folder = tri_arena_printf(arena, "%s/%s", home, checkpoint_step_name(arena, step));
    if (checkpoint_manifest_read(arena, folder, &manifest) != TRI_OK)
        return TRI_FAIL(TRI_NOT_FOUND, "%s: cannot be read", folder);
    manifest.info.training = training;
    manifest.info.monitor = *monitor;
    char *text;
    size_t size;
    TRI_TRY(checkpoint_manifest_text(arena, &manifest, &text, &size));
    const char *path = tri_arena_printf(arena, "%s/%s", folder, CHECKPOINT_STATE_FILE);
    TRI_TRY(tri_os_replace_file(path, text, size));
    if (checkpoint_settle(arena, home, monitor, save_top_k) != TRI_OK)
        tri_log_line(TRI_LOG_WARNING, "checkpoint of step %lld has its evaluation, but: %s",
                     (long long)step, tri_error_message());
    return TRI_OK;
}

tri_status tri_checkpoint_amend(const char *run_dir, int64_t step, const tri_tree *training,
                                const tri_checkpoint_monitor *monitor, int64_t save_top_k) {
    tri_arena *arena = tri_arena_create(NULL, "checkpoint amend");
    tri_status status =
        amend(arena, checkpoint_home(arena, run_dir), step, training, monitor, save_top_k);
    tri_arena_destroy(arena);
    return status;
}

bool tri_checkpoint_ranks(const char *run_dir, const tri_checkpoint_monitor *monitor,
                          int64_t save_top_k) {
    tri_arena *arena = tri_arena_create(NULL, "checkpoint ranks");
    checkpoint_steps steps;
    bool ranks = checkpoint_scan(arena, checkpoint_home(arena, run_dir), &steps) == TRI_OK &&
                 checkpoint_ranks_among(&steps, monitor, save_top_k);
    tri_arena_destroy(arena);
    return ranks;
}

bool tri_checkpoint_find_best(const char *run_dir, const tri_checkpoint_monitor *monitor,
                              tri_best_checkpoint *out) {
    tri_arena *arena = tri_arena_create(NULL, "best checkpoint");
    const char *home = checkpoint_home(arena, run_dir);
    checkpoint_steps steps;
    const checkpoint_step *best = NULL;
    if (checkpoint_scan(arena, home, &steps) == TRI_OK) best = checkpoint_best(&steps, monitor);
    if (best) {
        bool is_linked = checkpoint_links_to(arena, home, "best", best->path);
        *out = (tri_best_checkpoint){best->step, best->manifest.info.monitor.value, ""};
        snprintf(out->name, sizeof out->name, "%s",
                 is_linked ? "best" : checkpoint_base_name(best->path));
    }
    tri_arena_destroy(arena);
    return best != NULL;
}

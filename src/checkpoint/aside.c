// Puts checkpoints aside that a resume leaves: a run that goes on from an earlier checkpoint than
// its newest begins another history, in which what came after that checkpoint did not happen. Read
// next: folder.c.
#include "base/os.h"
#include "checkpoint/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Whether both paths lead to the same folder.
static bool is_same(const char *a, const char *b) {
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return realpath(a, real_a) && realpath(b, real_b) && strcmp(real_a, real_b) == 0;
}

// Whether a checkpoint comes after `base`, from which the run goes on. NULL: the run goes on from a
// checkpoint of another folder, so that none of this one belongs to its history.
static bool comes_after(const checkpoint_step *step, const checkpoint_step *base) {
    if (!base) return true;
    if (step->readable != TRI_OK) return step->step > base->step;
    return step->manifest.info.commit > base->manifest.info.commit;
}

// Makes a new folder HOME/abandoned-N.
static tri_status make_folder(tri_arena *arena, const char *home, const char **out) {
    for (int i = 1;; i++) {
        *out = tri_arena_printf(arena, "%s/abandoned-%d", home, i);
        if (tri_os.mkdir(*out, 0777) == 0) return TRI_OK;
        if (errno != EEXIST) return tri_os_fail("create the folder", *out);
    }
}

// Removes a link that leads nowhere, because no checkpoint is left to which it could lead.
static tri_status drop_dangling(tri_arena *arena, const char *home, const char *link) {
    const char *path = tri_arena_printf(arena, "%s/%s", home, link);
    struct stat info;
    if (lstat(path, &info) < 0 || !S_ISLNK(info.st_mode) || stat(path, &info) == 0) return TRI_OK;
    return tri_os.unlink(path) < 0 ? tri_os_fail("remove", path) : TRI_OK;
}

static tri_status settle_links(tri_arena *arena, const char *home, const checkpoint_step *newest) {
    checkpoint_steps steps;
    if (newest) TRI_TRY(checkpoint_link(arena, home, "last", checkpoint_base_name(newest->path)));
    TRI_TRY(checkpoint_scan(arena, home, &steps));
    TRI_TRY(checkpoint_repair_links(arena, home, &steps));
    TRI_TRY(drop_dangling(arena, home, "last"));
    TRI_TRY(drop_dangling(arena, home, "best"));
    return tri_os_sync_folder(home);
}

static tri_status put_aside(tri_arena *arena, const char *home, const char *resumed,
                            const char **where, int *count) {
    checkpoint_steps steps;
    const checkpoint_step *base = NULL;
    TRI_TRY(checkpoint_scan(arena, home, &steps));
    for (int i = 0; i < steps.count; i++)
        if (is_same(steps.items[i].path, resumed)) base = &steps.items[i];
    // The newest is moved first: if a crash interrupts this, those that are left are the beginning
    // of one history.
    for (int i = 0; i < steps.count; i++) {
        const checkpoint_step *step = &steps.items[i];
        if (!comes_after(step, base)) continue;
        if (!*where) TRI_TRY(make_folder(arena, home, where));
        const char *name = checkpoint_base_name(step->path);
        if (tri_os.rename(step->path, tri_arena_printf(arena, "%s/%s", *where, name)) < 0)
            return tri_os_fail("rename", step->path);
        ++*count;
    }
    if (!*where) return TRI_OK;
    TRI_TRY(tri_os_sync_folder(*where));
    return settle_links(arena, home, base);
}

tri_status tri_checkpoint_put_aside(tri_arena *arena, const char *run_dir, const char *resumed,
                                    const char **where, int *count) {
    *where = NULL;
    *count = 0;
    return put_aside(arena, checkpoint_home(arena, run_dir), resumed, where, count);
}

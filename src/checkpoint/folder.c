// The folder RUN/checkpoints, whose path is called `home` here: names, lists and sorts checkpoints,
// commits them, sets the symbolic links "last" and "best" to two of them, and removes old ones. A
// "step" is the folder of one checkpoint, such as step-00000938. Read next, for resuming: load.c.
#include "checkpoint/folder.h"

#include "base/limits.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP_DIGITS = 8 };
static const char STEP[] = "step-", REPLACED[] = ".old-";
static const char LINK[] = ".link-";
// How the names begin that checkpoint_hidden makes.
static const char *const HIDDEN[] = {".tmp-", ".del-", LINK, REPLACED};

const char *checkpoint_home(tri_arena *arena, const char *run_dir) {
    return tri_arena_printf(arena, "%s/checkpoints", run_dir);
}

const char *checkpoint_step_name(tri_arena *arena, int64_t step) {
    return tri_arena_printf(arena, "%s%0*lld", STEP, STEP_DIGITS, (long long)step);
}

const char *checkpoint_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool checkpoint_is_step_name(const char *path, int64_t *step) {
    const char *name = checkpoint_base_name(path);
    if (strncmp(name, STEP, sizeof STEP - 1) != 0) return false;
    const char *digits = name + sizeof STEP - 1;
    size_t count = strspn(digits, "0123456789");
    if (count < STEP_DIGITS || count > 18 || digits[count]) return false;
    *step = strtoll(digits, NULL, 10);
    return true;
}

const char *checkpoint_hidden(tri_arena *arena, const char *home, const char *kind,
                              const char *name) {
    return tri_arena_printf(arena, "%s/.%s-%s-%ld-%llx", home, kind, name, (long)getpid(),
                            (unsigned long long)tri_os.realtime_ns());
}

// Where a checkpoint is sorted: one that cannot be read, and may be the newest, must be reported
// before an older one is used.
static int group_of(const checkpoint_step *step) {
    if (step->readable == TRI_OK) return 1;
    return step->is_old ? 2 : 0;
}

// Sorts checkpoints, the newest first.
static int compare_steps(const void *a, const void *b) {
    const checkpoint_step *x = a, *y = b;
    bool x_reads = x->readable == TRI_OK, y_reads = y->readable == TRI_OK;
    if (group_of(x) != group_of(y)) return group_of(x) - group_of(y);
    int64_t x_key = x_reads ? x->manifest.info.commit : x->step;
    int64_t y_key = y_reads ? y->manifest.info.commit : y->step;
    if (x_key != y_key) return x_key > y_key ? -1 : 1;
    return x->step > y->step ? -1 : x->step < y->step;
}

static void read_step(tri_arena *arena, checkpoint_step *step) {
    step->readable = checkpoint_manifest_read(arena, step->path, &step->manifest);
    step->why = "";
    if (step->readable == TRI_OK && step->manifest.info.step != step->step)
        step->readable = TRI_FAIL(TRI_CORRUPT, "%s: holds step %lld by its state.json", step->path,
                                  (long long)step->manifest.info.step);
    if (step->readable != TRI_OK) step->why = tri_arena_strdup(arena, tri_error_message());
}

// Marks checkpoints that cannot be read and are surely not the newest: their steps come before that
// of the newest of the others, to which "last" leads.
static void mark_old(tri_arena *arena, const char *home, checkpoint_steps *steps) {
    const checkpoint_step *newest = NULL;
    for (int i = 0; i < steps->count; i++) {
        const checkpoint_step *step = &steps->items[i];
        if (step->readable != TRI_OK) continue;
        if (!newest || step->manifest.info.commit > newest->manifest.info.commit) newest = step;
    }
    if (!newest || !checkpoint_links_to(arena, home, "last", newest->path)) return;
    for (int i = 0; i < steps->count; i++)
        steps->items[i].is_old =
            steps->items[i].readable != TRI_OK && steps->items[i].step < newest->step;
}

// Reports why the folder cannot be opened. A missing one has no checkpoints; a link to a missing
// one is reported, because its disk may not be mounted.
static tri_status fail_to_scan(const char *home) {
    struct stat info;
    if (errno != ENOENT && errno != ENOTDIR) return tri_os_fail("open", home);
    if (lstat(home, &info) < 0 || !S_ISLNK(info.st_mode)) return TRI_OK;
    errno = ENOENT;
    return tri_os_fail("open", home);
}

tri_status checkpoint_scan(tri_arena *arena, const char *home, checkpoint_steps *out) {
    *out = (checkpoint_steps){0};
    DIR *folder = opendir(home);
    if (!folder) return fail_to_scan(home);
    int capacity = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int64_t step;
        struct stat info;
        if (!checkpoint_is_step_name(entry->d_name, &step)) continue;
        const char *path = tri_arena_printf(arena, "%s/%s", home, entry->d_name);
        // A step may be a symbolic link to a folder on another disk. A link to nothing counts as a
        // step that cannot be read, so that it is reported: its disk may not be mounted.
        if (lstat(path, &info) < 0 || !(S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode))) continue;
        TRI_PUSH(arena, out->items, out->count, capacity) =
            (checkpoint_step){.step = step, .path = path};
    }
    closedir(folder);
    int listed = out->count;
    out->count = 0;
    for (int i = 0; i < listed; i++) {
        checkpoint_step *step = &out->items[out->count];
        bool is_there = true;
        *step = out->items[i];
        read_step(arena, step);
        // The run may have removed the step meanwhile, because it keeps only some.
        if (step->readable != TRI_OK) TRI_TRY(tri_os_exists(step->path, &is_there));
        out->count += is_there;
    }
    mark_old(arena, home, out);
    if (out->count) qsort(out->items, (size_t)out->count, sizeof *out->items, compare_steps);
    return TRI_OK;
}

// Whether a step has a value that can be compared with those of `monitor`.
static bool has_value(const checkpoint_step *step, const tri_checkpoint_monitor *monitor) {
    const tri_checkpoint_monitor *own = &step->manifest.info.monitor;
    if (step->readable != TRI_OK || !own->is_known || !monitor->name) return false;
    bool is_of_others =
        own->samples && monitor->samples && strcmp(own->samples, monitor->samples) != 0;
    return strcmp(own->name, monitor->name) == 0 && !is_of_others;
}

// Whether step `a` is better than step `b`, by the value of the monitored metric at each step. Of
// equal values, the one that was committed first is better. A step whose value is known is better
// than one whose value is not. Of two steps without a value, the newer one is better.
static bool is_better(const checkpoint_step *a, const checkpoint_step *b,
                      const tri_checkpoint_monitor *monitor) {
    bool a_has = has_value(a, monitor), b_has = has_value(b, monitor);
    if (a_has != b_has) return a_has;
    if (!a_has) return a->manifest.info.commit > b->manifest.info.commit;
    double x = a->manifest.info.monitor.value, y = b->manifest.info.monitor.value;
    if (x != y) return monitor->larger_is_better ? x > y : x < y;
    return a->manifest.info.commit < b->manifest.info.commit;
}

const checkpoint_step *checkpoint_best(const checkpoint_steps *steps,
                                       const tri_checkpoint_monitor *monitor) {
    const checkpoint_step *best = NULL;
    for (int i = 0; i < steps->count; i++) {
        const checkpoint_step *step = &steps->items[i];
        if (has_value(step, monitor) && (!best || is_better(step, best, monitor))) best = step;
    }
    return best;
}

tri_status checkpoint_commit(tri_arena *arena, const char *home, const char *hidden,
                             const char *name) {
    const char *path = tri_arena_printf(arena, "%s/%s", home, name);
    struct stat info;
    if (lstat(path, &info) < 0) // this is usual: the step is new
        return tri_os.rename(hidden, path) < 0 ? tri_os_fail("rename", hidden) : TRI_OK;
    // The step exists already: exchanges its folder and `hidden` atomically. If the file system
    // cannot do that, renames the old folder first, to a name from which tri_checkpoint_clean
    // restores it after a crash.
    if (tri_os.renameat2(AT_FDCWD, hidden, AT_FDCWD, path, RENAME_EXCHANGE) == 0) return TRI_OK;
    const char *aside = checkpoint_hidden(arena, home, "old", name);
    if (tri_os.rename(path, aside) < 0) return tri_os_fail("rename", path);
    if (tri_os.rename(hidden, path) < 0) {
        tri_status status = tri_os_fail("rename", hidden);
        tri_os.rename(aside, path);
        return status;
    }
    tri_os.rename(aside, hidden); // if this fails, tri_checkpoint_clean removes the folder `aside`
    return TRI_OK;
}

// Moves a folder that has the name of a link aside, if it is plainly the copy of a checkpoint of
// the run, which a program that followed the link has made: its state.json, which has the hashes of
// all its files, is that of the checkpoint. Else tells what to do.
static tri_status replace_copy(tri_arena *arena, const char *home, const char *path) {
    checkpoint_manifest manifest;
    char *copied = NULL, *original = NULL;
    size_t sizes[2] = {0};
    if (checkpoint_manifest_read(arena, path, &manifest) == TRI_OK) {
        const char *step = checkpoint_step_name(arena, manifest.info.step);
        const char *a = tri_arena_printf(arena, "%s/%s", path, CHECKPOINT_STATE_FILE);
        const char *b = tri_arena_printf(arena, "%s/%s/%s", home, step, CHECKPOINT_STATE_FILE);
        (void)tri_os_read_file(a, TRI_MAX_CHECKPOINT_STATE, &copied, &sizes[0]);
        (void)tri_os_read_file(b, TRI_MAX_CHECKPOINT_STATE, &original, &sizes[1]);
    }
    bool is_copy =
        copied && original && sizes[0] == sizes[1] && !memcmp(copied, original, sizes[0]);
    free(copied);
    free(original);
    if (!is_copy)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: is a folder, where the run keeps a link to one of its checkpoints: "
                        "move it elsewhere",
                        path);
    const char *aside = checkpoint_hidden(arena, home, "del", checkpoint_base_name(path));
    if (tri_os.rename(path, aside) < 0) return tri_os_fail("rename", path);
    TRI_TRY(tri_os_sync_folder(home));
    return tri_os_remove_tree(aside);
}

tri_status checkpoint_link(tri_arena *arena, const char *home, const char *link,
                           const char *target) {
    const char *path = tri_arena_printf(arena, "%s/%s", home, link);
    const char *beside = checkpoint_hidden(arena, home, "link", link);
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) TRI_TRY(replace_copy(arena, home, path));
    if (tri_os.symlink(target, beside) < 0) return tri_os_fail("create the link", path);
    if (tri_os.rename(beside, path) == 0) return TRI_OK;
    tri_status status = tri_os_fail("replace the link", path);
    tri_os.unlink(beside);
    return status;
}

bool checkpoint_links_to(tri_arena *arena, const char *home, const char *link, const char *path) {
    char target[PATH_MAX];
    ssize_t size = readlink(tri_arena_printf(arena, "%s/%s", home, link), target, sizeof target);
    const char *name = checkpoint_base_name(path);
    return size > 0 && (size_t)size == strlen(name) && memcmp(target, name, (size_t)size) == 0;
}

tri_status checkpoint_repair_links(tri_arena *arena, const char *home,
                                   const checkpoint_steps *steps) {
    // If the newest step cannot be read, the symbolic links "last" and "best" stay as they are: a
    // later version of trireme may have written the step and set the links.
    if (steps->count == 0 || steps->items[0].readable != TRI_OK) return TRI_OK;
    const checkpoint_step *last = &steps->items[0];
    if (!checkpoint_links_to(arena, home, "last", last->path))
        TRI_TRY(checkpoint_link(arena, home, "last", checkpoint_base_name(last->path)));
    const checkpoint_step *best = checkpoint_best(steps, &last->manifest.info.monitor);
    struct stat info; // a run with checkpoint.save_top_k=0 has no link `best`
    bool has_link = lstat(tri_arena_printf(arena, "%s/best", home), &info) == 0;
    if (!best || !has_link || checkpoint_links_to(arena, home, "best", best->path)) return TRI_OK;
    return checkpoint_link(arena, home, "best", checkpoint_base_name(best->path));
}

// Renames a checkpoint to a hidden name. Its files may be removed only after the folder `home` is
// synced. Otherwise a crash could leave an incomplete folder under the old name.
static tri_status hide(tri_arena *arena, const char *home, const char *path, const char **hidden) {
    *hidden = checkpoint_hidden(arena, home, "del", checkpoint_base_name(path));
    return tri_os.rename(path, *hidden) < 0 ? tri_os_fail("rename", path) : TRI_OK;
}

static bool is_in_top_k(const checkpoint_steps *steps, int i, const tri_checkpoint_monitor *monitor,
                        int64_t top_k) {
    int64_t better = 0;
    for (int j = 0; j < steps->count; j++)
        better += steps->items[j].readable == TRI_OK && j != i &&
                  is_better(&steps->items[j], &steps->items[i], monitor);
    return better < top_k;
}

tri_status checkpoint_retain(tri_arena *arena, const char *home, const checkpoint_steps *steps,
                             const tri_checkpoint_monitor *monitor, int64_t top_k) {
    int newer = 0; // how many readable steps come before the i-th
    tri_status first = TRI_OK;
    const char **hidden = TRI_NEW_ARRAY(arena, const char *, steps->count);
    int count = 0;
    for (int i = 0; i < steps->count && top_k >= 0; i++) {
        const checkpoint_step *step = &steps->items[i];
        if (step->readable != TRI_OK || newer++ <= TRI_CHECKPOINT_SPARES) continue;
        // A link that could not be set may still lead to an older one.
        if (is_in_top_k(steps, i, monitor, top_k) ||
            checkpoint_links_to(arena, home, "last", step->path) ||
            (top_k > 0 && checkpoint_links_to(arena, home, "best", step->path)))
            continue;
        tri_status status = hide(arena, home, step->path, &hidden[count]);
        count += status == TRI_OK;
        if (first == TRI_OK) first = status;
    }
    if (count > 0) TRI_TRY(tri_os_sync_folder(home));
    for (int i = 0; i < count; i++) {
        tri_status status = tri_os_remove_tree(hidden[i]);
        if (first == TRI_OK) first = status;
    }
    return first;
}

bool checkpoint_ranks_among(const checkpoint_steps *steps, const tri_checkpoint_monitor *monitor,
                            int64_t top_k) {
    // The new checkpoint would be the latest of all, so that earlier ones with the same value are
    // better.
    checkpoint_step new = {.readable = TRI_OK};
    new.manifest.info.monitor = *monitor;
    new.manifest.info.commit = INT64_MAX;
    int64_t better = 0;
    for (int i = 0; i < steps->count; i++)
        better += steps->items[i].readable == TRI_OK && is_better(&steps->items[i], &new, monitor);
    return has_value(&new, monitor) && better < top_k;
}

tri_status checkpoint_settle(tri_arena *arena, const char *home,
                             const tri_checkpoint_monitor *monitor, int64_t top_k) {
    checkpoint_steps steps;
    TRI_TRY(checkpoint_scan(arena, home, &steps));
    const checkpoint_step *best = checkpoint_best(&steps, monitor);
    tri_status linked = TRI_OK;
    if (best && top_k != 0)
        linked = checkpoint_link(arena, home, "best", checkpoint_base_name(best->path));
    // Of two failures, the first is reported.
    const char *why = linked == TRI_OK ? "" : tri_arena_strdup(arena, tri_error_message());
    tri_status status = tri_os_sync_folder(home);
    if (status == TRI_OK) status = checkpoint_retain(arena, home, &steps, monitor, top_k);
    return linked == TRI_OK ? status : TRI_FAIL(linked, "%s", why);
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Handles ".old-step-00000012-PID-TIME", a step that a killed save was replacing: renames it back
// to "step-00000012", or removes it if that name exists.
static tri_status restore(tri_arena *arena, const char *home, const char *name) {
    const char *path = tri_arena_printf(arena, "%s/%s", home, name);
    char *step_name = tri_arena_strdup(arena, name + sizeof REPLACED - 1);
    char *end = strchr(step_name, '-');
    end = end ? strchr(end + 1, '-') : NULL;
    if (end) *end = 0;
    const char *original = tri_arena_printf(arena, "%s/%s", home, step_name);
    int64_t step;
    struct stat info;
    bool is_missing =
        checkpoint_is_step_name(original, &step) && lstat(original, &info) < 0 && errno == ENOENT;
    if (!is_missing) return tri_os_remove_tree(path);
    return tri_os.rename(path, original) < 0 ? tri_os_fail("rename", path) : TRI_OK;
}

static bool is_left_over(const char *name) {
    bool found = false;
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        found = found || starts_with(name, HIDDEN[i]);
    return found;
}

static tri_status clean_entry(tri_arena *arena, const char *home, const char *name) {
    if (starts_with(name, REPLACED)) return restore(arena, home, name);
    const char *path = tri_arena_printf(arena, "%s/%s", home, name);
    if (!starts_with(name, LINK)) return tri_os_remove_tree(path);
    return tri_os.unlink(path) < 0 ? tri_os_fail("remove", path) : TRI_OK;
}

tri_status tri_checkpoint_clean(const char *run_dir) {
    tri_arena *arena = tri_arena_create(NULL, "checkpoint clean");
    const char *home = checkpoint_home(arena, run_dir);
    DIR *folder = opendir(home);
    tri_status status = TRI_OK;
    if (!folder && errno != ENOENT && errno != ENOTDIR) status = tri_os_fail("open", home);
    const char **names = NULL; // the names are listed before any entry of the folder changes
    int count = 0, capacity = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (is_left_over(entry->d_name))
            TRI_PUSH(arena, names, count, capacity) = tri_arena_strdup(arena, entry->d_name);
    if (folder) closedir(folder);
    // A killed process may have renamed checkpoints, in order to remove them, without syncing this
    // folder. It is synced now, before the renamed folders are removed, because a crash could
    // otherwise leave an incomplete checkpoint under its old name.
    if (count > 0) status = tri_os_sync_folder(home);
    for (int i = 0; i < count && status == TRI_OK; i++) status = clean_entry(arena, home, names[i]);
    tri_arena_destroy(arena);
    return status;
}

// Reads a run folder: metrics.jsonl, the recipe, the checkpoints, and whether a process holds it.
#include "views/run.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/process.h"
#include "checkpoint/find.h"
#include "checkpoint/options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { PART_BYTES = 4 << 20 };

const char *views_status_name(views_status status) {
    static const char *const names[] = {"running", "completed", "stopped", "failed"};
    return names[status];
}

bool views_status_find(const char *name, views_status *out) {
    for (int i = 0; i <= VIEWS_FAILED; i++) {
        if (strcmp(name, views_status_name(i)) != 0) continue;
        *out = (views_status)i;
        return true;
    }
    return false;
}

const views_curve *views_curve_find(const views_run *run, const char *name) {
    int at = tri_index_find(&run->index, name, strlen(name));
    return at == TRI_NOT_IN_INDEX ? NULL : &run->curves[at];
}

const views_event *views_event_last(const views_run *run, const char *kind) {
    for (int i = run->event_count - 1; i >= 0; i--)
        if (!strcmp(run->events[i].kind, kind)) return &run->events[i];
    return NULL;
}

bool views_curve_is_shown(const views_curve *curve) {
    return strcmp(curve->key, "epoch") != 0 && strcmp(curve->key, "samples") != 0;
}

// 1: a higher value is better, -1: a lower one, 0: neither.
static int direction_of(const char *key) {
    static const char *const rates[] = {"samples_per_s", "mfu", "mbu"};
    tri_monitor_mode mode;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!strcmp(key, rates[i])) return 1;
    if (!tri_monitor_mode_known(key, &mode)) return 0;
    return mode == TRI_MONITOR_MAX ? 1 : -1;
}

const views_point *views_curve_best(const views_curve *curve) {
    const views_point *best = NULL;
    int direction = direction_of(curve->key);
    for (int i = 0; direction != 0 && i < curve->count; i++) {
        const views_point *p = &curve->points[i];
        if (isfinite(p->value) && (!best || direction * (p->value - best->value) > 0)) best = p;
    }
    return best;
}

static int64_t seconds_since(struct timespec time) {
    return tri_os.realtime_ns() / 1000000000 - (int64_t)time.tv_sec;
}

// Whether a living process holds the folder, by the record in its file .lock. A process that cannot
// be looked up from here, such as one of another host, touches the file while it lives.
static bool is_held(tri_arena *arena, const char *folder) {
    char text[TRI_PROCESS_TEXT_BYTES];
    tri_process holder;
    struct stat info;
    int fd = tri_os.open(tri_arena_printf(arena, "%s/.lock", folder),
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t size = tri_os_pread_most(fd, text, sizeof text, 0);
    bool is_read = size > 0 && fstat(fd, &info) == 0;
    tri_os.close(fd);
    if (!is_read || !tri_process_read(text, (size_t)size, &holder)) return false;
    tri_life life = tri_process_life(&holder);
    if (life != TRI_LIFE_UNKNOWN) return life == TRI_LIFE_ALIVE;
    return seconds_since(info.st_mtim) * 1000 < TRI_LOCK_WATCH_MS;
}

static int compare_checkpoints(const void *a, const void *b) {
    const views_checkpoint *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

static void find_checkpoints(views_run *run) {
    const char *home = checkpoint_home(run->state, run->folder);
    views_checkpoint *found = NULL;
    int count = 0, capacity = 0;
    DIR *folder = opendir(home);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        views_checkpoint c;
        if (!checkpoint_is_step_name(entry->d_name, &c.step)) continue;
        c.name = tri_arena_strdup(run->state, entry->d_name);
        const char *path = tri_arena_printf(run->state, "%s/%s", home, c.name);
        c.is_best = checkpoint_links_to(run->state, home, "best", path);
        c.is_last = checkpoint_links_to(run->state, home, "last", path);
        TRI_PUSH(run->state, found, count, capacity) = c;
    }
    if (folder) closedir(folder);
    if (count > 0) qsort(found, (size_t)count, sizeof *found, compare_checkpoints);
    run->checkpoints = found;
    run->checkpoint_count = count;
}

static void find_status(views_run *run) {
    const views_event *end = run->has_ended ? views_event_last(run, "end") : NULL;
    const tri_tree *status = end ? tri_tree_get(end->line, "status") : NULL;
    const tri_tree *reason = end ? tri_tree_get(end->line, "reason") : NULL;
    run->reason = reason && reason->text ? reason->text : NULL;
    run->status = VIEWS_FAILED;
    if (is_held(run->state, run->folder))
        run->status = VIEWS_RUNNING;
    else if (!end)
        run->reason = "its process ended without a word: it was killed, or its machine failed";
    if (run->status == VIEWS_FAILED && status && status->text)
        (void)views_status_find(status->text, &run->status);
}

static void read_recipe(views_run *run) {
    tri_tree *recipe;
    const char *path = tri_arena_printf(run->state, "%s/recipe.yaml", run->folder);
    run->recipe = NULL;
    run->no_recipe = NULL;
    if (tri_yaml_read_file(run->state, path, &recipe) == TRI_OK)
        run->recipe = recipe;
    else
        run->no_recipe = tri_arena_strdup(run->state, tri_error_message());
    const tri_tree *name = tri_tree_get(run->recipe, "name");
    run->name = name && name->text ? name->text : checkpoint_base_name(run->folder);
}

// Reads the lines that follow what was read before. A line that does not fit into a part is read
// again with a larger one.
static tri_status read_lines(views_run *run, int fd, const char *path) {
    size_t part = PART_BYTES, taken;
    char *text = NULL;
    tri_status status = TRI_OK;
    while (status == TRI_OK) {
        char *more = realloc(text, part);
        if (!more) {
            status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", path);
            break;
        }
        text = more;
        ssize_t size = tri_os_pread_most(fd, text, part, run->read_bytes);
        if (size < 0) status = tri_os_fail("read", path);
        if (size <= 0) break;
        status = views_run_take(run, text, (size_t)size, &taken);
        run->read_bytes += (int64_t)taken;
        if (taken == 0 && (size_t)size < part) break; // the last line, which is not complete
        if (taken == 0) part *= 2;
    }
    free(text);
    return status;
}

views_run *views_run_create(tri_arena *arena, const char *folder) {
    views_run *run = TRI_NEW(arena, views_run);
    run->folder = tri_arena_strdup(arena, folder);
    run->name = checkpoint_base_name(run->folder);
    run->arena = tri_arena_create(arena, "lines of a run");
    run->state = tri_arena_create(arena, "state of a run");
    return run;
}

// Forgets the lines, because the file was replaced.
static void forget_lines(views_run *run) {
    tri_arena_reset(run->arena);
    *run = (views_run){.folder = run->folder, .arena = run->arena, .state = run->state};
}

// Names runs in the folder, because people give the folder of all runs.
static tri_status refuse_folder(tri_arena *arena, const char *path) {
    char inside[256] = "";
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        bool is_run = false;
        size_t used = strlen(inside);
        const char *below = tri_arena_printf(arena, "%s/%s", path, entry->d_name);
        if (*entry->d_name == '.' || used > sizeof inside / 2 ||
            checkpoint_has(arena, below, "metrics.jsonl", &is_run) != TRI_OK || !is_run)
            continue;
        snprintf(inside + used, sizeof inside - used, "%s%s",
                 used ? ", " : "; there are runs in it: ", below);
    }
    if (folder) closedir(folder);
    return TRI_FAIL(TRI_NOT_FOUND, "%s: has no metrics.jsonl, so it is no run of trireme%s", path,
                    inside);
}

tri_status views_run_update(views_run *run, bool *is_changed) {
    struct stat info;
    int fd;
    const char *path = tri_arena_printf(run->state, "%s/metrics.jsonl", run->folder);
    TRI_TRY(tri_os_check_file(path));
    TRI_TRY(tri_os_open_input(path, &fd));
    tri_status status = fstat(fd, &info) == 0 ? TRI_OK : tri_os_fail("read", path);
    if (status == TRI_OK && run->read_bytes > 0 &&
        (info.st_size < run->read_bytes || (int64_t)info.st_ino != run->file_id))
        forget_lines(run);
    run->file_id = (int64_t)info.st_ino;
    int64_t lines = run->line_count;
    views_status before = run->status;
    if (status == TRI_OK) status = read_lines(run, fd, path);
    tri_os.close(fd);
    TRI_TRY(status);
    tri_arena_reset(run->state);
    find_checkpoints(run);
    read_recipe(run);
    find_status(run);
    *is_changed = run->line_count != lines || run->status != before;
    return TRI_OK;
}

tri_status views_run_open(tri_arena *arena, const char *path, views_run **out) {
    bool is_changed, has_metrics = false;
    struct stat info;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    const char *folder = tri_arena_printf(arena, "%.*s", (int)length, path);
    if (stat(folder, &info) != 0) return tri_os_fail("read", folder);
    const char *slash = strrchr(folder, '/');
    if (S_ISREG(info.st_mode) && !strcmp(checkpoint_base_name(folder), "metrics.jsonl"))
        folder = slash ? tri_arena_printf(arena, "%.*s", (int)(slash - folder), folder) : ".";
    else if (!S_ISDIR(info.st_mode))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is no folder of a run", folder);
    TRI_TRY(checkpoint_has(arena, folder, "metrics.jsonl", &has_metrics));
    if (!has_metrics) return refuse_folder(arena, folder);
    *out = views_run_create(arena, folder);
    return views_run_update(*out, &is_changed);
}

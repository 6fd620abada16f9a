// Finds the checkpoint that a path or the option `--resume` means. Read next: folder.c (which steps
// exist).
#include "checkpoint/find.h"

#include "base/log.h"
#include "base/os.h"
#include "checkpoint/agree.h"
#include "checkpoint/late.h"
#include "checkpoint/verify.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tri_status checkpoint_has(tri_arena *arena, const char *folder, const char *name, bool *out) {
    return tri_os_exists(tri_arena_printf(arena, "%s/%s", folder, name), out);
}

tri_status checkpoint_home_of(tri_arena *arena, const char *path, const char **out) {
    bool is_run;
    *out = NULL;
    TRI_TRY(checkpoint_has(arena, path, "checkpoints", &is_run));
    if (is_run)
        *out = checkpoint_home(arena, path);
    else if (strcmp(checkpoint_base_name(path), "checkpoints") == 0)
        *out = path;
    return TRI_OK;
}

tri_status checkpoint_resolve(tri_arena *arena, const char *path, checkpoint_kind *kind,
                              const char **out) {
    char real[PATH_MAX];
    struct stat info;
    if (!realpath(path, real) || stat(real, &info) < 0) return tri_os_fail("open", path);
    *out = tri_arena_strdup(arena, real);
    *kind = CHECKPOINT_IS_FILE;
    if (!S_ISDIR(info.st_mode)) return TRI_OK;
    *kind = CHECKPOINT_IS_STEP;
    int64_t step;
    bool has_state;
    const char *home;
    TRI_TRY(checkpoint_has(arena, real, CHECKPOINT_STATE_FILE, &has_state));
    if (has_state || checkpoint_is_step_name(real, &step)) return TRI_OK;
    *kind = CHECKPOINT_IS_FOLDER;
    TRI_TRY(checkpoint_home_of(arena, *out, &home));
    if (!home) return TRI_OK;
    // The first of `steps` may be one that cannot be read. It is returned too: the caller then
    // reports the failure, and does not silently get an older checkpoint.
    *kind = CHECKPOINT_IS_STEP;
    checkpoint_steps steps;
    TRI_TRY(checkpoint_scan(arena, home, &steps));
    if (steps.count == 0) return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no checkpoint in it", path);
    *out = steps.items[0].path;
    return TRI_OK;
}

tri_status checkpoint_refuse_file(const char *path) {
    int fd;
    TRI_TRY(tri_os_open_input(path, &fd)); // it may be a pointer of Git LFS
    tri_os.close(fd);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: is a file, not a checkpoint; `init` of a recipe reads weights alone",
                    path);
}

tri_status checkpoint_step_folder(tri_arena *arena, const char *path, const char **out) {
    checkpoint_kind kind;
    TRI_TRY(checkpoint_resolve(arena, path, &kind, out));
    if (kind == CHECKPOINT_IS_STEP) return TRI_OK;
    if (kind == CHECKPOINT_IS_FILE) return checkpoint_refuse_file(path);
    return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no checkpoint in it", path);
}

typedef struct candidates { // checkpoints that may be loaded, in the order in which they are tried
    const char **paths;
    int count;
    const char **damages; // why older ones cannot be used
    int damage_count;
} candidates;

static tri_status list_all(tri_arena *arena, const char *run_dir, candidates *out) {
    checkpoint_steps steps;
    tri_status cleaned = tri_checkpoint_clean(run_dir);
    if (cleaned == TRI_BAD_INPUT) return cleaned; // run_dir cannot be a folder
    if (cleaned != TRI_OK) // a warning is enough, because remains of killed saves do no harm
        tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    const char *home = checkpoint_home(arena, run_dir);
    TRI_TRY(checkpoint_scan(arena, home, &steps));
    // A failure is ignored: the folder may be read-only, and resuming does not need the symbolic
    // links "last" and "best".
    (void)checkpoint_repair_links(arena, home, &steps);
    out->paths = TRI_NEW_ARRAY(arena, const char *, steps.count);
    out->damages = TRI_NEW_ARRAY(arena, const char *, steps.count);
    for (int i = 0; i < steps.count; i++) {
        out->paths[out->count++] = steps.items[i].path;
        if (steps.items[i].is_old) out->damages[out->damage_count++] = steps.items[i].why;
    }
    return TRI_OK;
}

// Whether it is a file that a run writes before its recipe: a run that died has left it, or the
// lock is this run's.
static bool is_of_start(const char *name) {
    static const char *const names[] = {".lock", ".start"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]) || tri_os_is_temporary_of(name, names[i])) return true;
    return tri_os_is_temporary_of(name, "recipe.yaml");
}

static tri_status find_never(const char *run_dir) {
    DIR *folder = opendir(run_dir);
    if (!folder) return errno == ENOENT ? TRI_OK : tri_os_fail("open", run_dir);
    bool is_empty = true;
    for (struct dirent *entry; (entry = readdir(folder));)
        is_empty = is_empty && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
                                is_of_start(entry->d_name));
    closedir(folder);
    if (is_empty) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: is not empty: continue with --resume auto, or use another --run-dir",
                    run_dir);
}

static tri_status list(tri_arena *arena, const char *run_dir, const char *resume, candidates *out) {
    if (strcmp(resume, "auto") == 0) return list_all(arena, run_dir, out);
    if (strcmp(resume, "never") == 0) return find_never(run_dir);
    out->paths = TRI_NEW_ARRAY(arena, const char *, 1);
    out->count = 1;
    return checkpoint_step_folder(arena, resume, &out->paths[0]);
}

static void warn_of_old(const candidates *all) {
    for (int i = 0; i < all->damage_count; i++)
        tri_log_line(TRI_LOG_WARNING, "%s; it is older than the one that is used", all->damages[i]);
}

tri_status tri_checkpoint_find_first(tri_arena *arena, const char *run_dir, const char *resume,
                                     const char **out) {
    candidates all = {.count = 0};
    *out = NULL;
    TRI_TRY(list(arena, run_dir, resume, &all));
    if (all.count > 0) *out = all.paths[0];
    warn_of_old(&all);
    return TRI_OK;
}

// Whether the failure means that the checkpoint is damaged, so that an earlier one may be used
// instead. TRI_UNSUPPORTED does not mean that: a checkpoint of a later version must not be skipped
// in favour of an older one.
static bool is_damage(tri_status status) {
    return status == TRI_CORRUPT || status == TRI_IO || status == TRI_NOT_FOUND ||
           status == TRI_BAD_INPUT;
}

// Verifies a checkpoint. Collective: the ranks divide the chunks among them, because one rank alone
// would take long to hash all.
static tri_status verify(tri_arena *arena, tri_comm *comm, const char *path) {
    checkpoint_manifest manifest;
    return checkpoint_agree(comm, checkpoint_verify_chunks(arena, path, checkpoint_rank(comm),
                                                           checkpoint_ranks(comm), &manifest));
}

static tri_status look(const char *path, checkpoint_seen_files *out) {
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: the path is too long", path);
    return TRI_OK;
}

// Finds the checkpoint that was committed last, of those that this rank sees: sets *commit to the
// number of its commit and *step to its step; -1: none. At most 64 ranks look, so that very many
// ranks do not overload the file system; the others get -1.
static void look_for_newest(tri_arena *arena, tri_comm *comm, const char *home, int64_t *commit,
                            int64_t *step) {
    enum { LOOKING = 64 };
    int stride = (checkpoint_ranks(comm) + LOOKING - 1) / LOOKING;
    checkpoint_steps steps;
    *commit = *step = -1;
    if (checkpoint_rank(comm) % stride != 0 || checkpoint_scan(arena, home, &steps) != TRI_OK)
        return;
    for (int i = 0; i < steps.count; i++) {
        const checkpoint_step *s = &steps.items[i];
        if (s->readable != TRI_OK || s->manifest.info.commit <= *commit) continue;
        *commit = s->manifest.info.commit;
        *step = s->step;
    }
}

// Makes rank 0 wait for a new checkpoint that another rank sees and that the file system does not
// show to rank 0 yet. Collective. *newest is that checkpoint's path on rank 0, which tries it
// first; NULL: rank 0 sees the newest checkpoint itself.
static tri_status await_newest(tri_arena *arena, tri_comm *comm, const char *run_dir,
                               checkpoint_patience *patience, const char **newest) {
    const char *home = checkpoint_home(arena, run_dir);
    int64_t own, step, latest;
    *newest = NULL;
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    look_for_newest(arena, comm, home, &own, &step);
    latest = own;
    TRI_TRY(checkpoint_largest(comm, &latest, 1));
    if (own < latest) step = -1;
    TRI_TRY(checkpoint_largest(comm, &step, 1));
    if (checkpoint_rank(comm) != 0 || own >= latest) return TRI_OK;
    *newest = tri_arena_printf(arena, "%s/%s", home, checkpoint_step_name(arena, step));
    checkpoint_await_file(patience, tri_arena_printf(arena, "%s/" CHECKPOINT_STATE_FILE, *newest),
                          1);
    return TRI_OK;
}

// Puts the checkpoint for which rank 0 has waited at the head of the list, unless the list has it
// already. If rank 0 still does not see this checkpoint, verifying it reports what is wrong.
static void put_first(tri_arena *arena, const char *newest, candidates *all) {
    for (int i = 0; i < all->count; i++)
        if (!strcmp(checkpoint_base_name(all->paths[i]), checkpoint_base_name(newest))) return;
    const char **paths = TRI_NEW_ARRAY(arena, const char *, all->count + 1);
    paths[0] = newest;
    if (all->count) memcpy(paths + 1, all->paths, (size_t)all->count * sizeof *paths);
    all->paths = paths;
    all->count++;
}

tri_status tri_checkpoint_find(tri_arena *arena, tri_comm *comm, const char *run_dir,
                               const char *resume, const char **out) {
    candidates all = {.count = 0}; // filled in on rank 0 only
    *out = NULL;
    bool is_rank_0 = checkpoint_rank(comm) == 0;
    checkpoint_patience patience = CHECKPOINT_PATIENT;
    const char *first = NULL, *newest = NULL;
    if (strcmp(resume, "auto") == 0)
        TRI_TRY(await_newest(arena, comm, run_dir, &patience, &newest));
    TRI_TRY(checkpoint_agree(comm, is_rank_0 ? list(arena, run_dir, resume, &all) : TRI_OK));
    if (newest) put_first(arena, newest, &all);
    const char **damages = is_rank_0 ? TRI_NEW_ARRAY(arena, const char *, all.count + 1) : NULL;
    for (int i = 0;; i++) {
        checkpoint_seen_files seen = {.path = ""};
        tri_status status = i < all.count ? look(all.paths[i], &seen) : TRI_OK;
        TRI_TRY(checkpoint_agree(comm, status));
        TRI_TRY(checkpoint_broadcast(comm, &seen, sizeof seen));
        if (!seen.path[0]) break;
        TRI_TRY(checkpoint_await(comm, &patience, &seen));
        status = verify(arena, comm, seen.path);
        if (status == TRI_OK) {
            // Warns only if an intact checkpoint was found. If there is none, the error reports the
            // damage.
            for (int k = 0; is_rank_0 && k < i; k++)
                tri_log_line(TRI_LOG_WARNING, "%s; falling back to the checkpoint before it",
                             damages[k]);
            warn_of_old(&all);
            *out = tri_arena_strdup(arena, seen.path);
            return TRI_OK;
        }
        if (strcmp(resume, "auto") != 0 || !is_damage(status)) return status;
        if (i == 0) first = tri_arena_strdup(arena, tri_error_message());
        if (is_rank_0) damages[i] = tri_arena_strdup(arena, tri_error_message());
    }
    if (!first) return TRI_OK;
    // No rank may end before all have received the last broadcast (an empty path, which says that
    // no candidate is left). If the barrier fails, the damage is still the error to report.
    if (checkpoint_ranks(comm) > 1) (void)tri_comm_barrier(comm, "checkpoint, end of the search");
    return TRI_FAIL(TRI_CORRUPT, "%s; no earlier checkpoint of the run is intact", first);
}

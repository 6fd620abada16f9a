// Called by train.c and resume.c: creates and locks the run folder, writes its recipe.yaml, and
// removes temporary files that killed processes have left.
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "checkpoint/late.h"
#include "train/loop.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool train_folder_has(const train_loop *loop, const char *name) {
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", loop->request->run_dir, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

tri_status train_await_folder(train_loop *loop) {
    char path[PATH_MAX];
    checkpoint_patience patience = CHECKPOINT_PATIENT;
    tri_comm *comm = loop->session->comm;
    bool is_asked = loop->saves && strcmp(loop->resume, "never") != 0 && comm->size > 1;
    if (!is_asked ||
        snprintf(path, sizeof path, "%s/recipe.yaml", loop->request->run_dir) >= (int)sizeof path)
        return TRI_OK; // a path that is too long is rejected later
    return checkpoint_await_common(comm, &patience, path);
}

tri_status train_lock_folder(train_loop *loop) {
    bool held;
    if (loop->session->identity.rank != 0 || loop->lock || !train_folder_has(loop, ""))
        return TRI_OK;
    tri_status status = train_lock_take(loop->request->run_dir, &loop->lock, &held);
    return held ? status : TRI_OK;
}

static tri_status lock_new_folder(train_loop *loop) {
    const char *dir = loop->request->run_dir;
    bool held;
    if (loop->lock) return TRI_OK;
    TRI_TRY(tri_os_make_folders(dir));
    TRI_TRY(train_lock_take(dir, &loop->lock, &held));
    if (!train_folder_has(loop, "recipe.yaml")) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: another process has just started a run there; run the command again to "
                    "resume that run, or choose another --run-dir",
                    dir);
}

// Removes the temporary files of a process that was killed before it could rename them, because
// nobody else would.
static void clean_folder(const char *dir) {
    char path[PATH_MAX];
    DIR *folder = opendir(dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        bool is_ours = tri_os_is_temporary_of(entry->d_name, "recipe.yaml") ||
                       tri_os_is_temporary_of(entry->d_name, ".lock") ||
                       tri_os_is_temporary_of(entry->d_name, ".start") ||
                       tri_os_is_temporary_of(entry->d_name, ".attempts");
        if (is_ours && snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < (int)sizeof path)
            tri_os.unlink(path);
    }
    if (folder) closedir(folder);
}

// Puts the checkpoints aside that come after the one from which the run goes on.
static tri_status leave_other_history(const train_loop *loop) {
    const char *where;
    int count;
    if (!loop->resumed_from) return TRI_OK;
    TRI_TRY(tri_checkpoint_put_aside(loop->arena, loop->request->run_dir, loop->resumed_from,
                                     &where, &count));
    if (count > 0)
        tri_log_line(
            TRI_LOG_INFO,
            "%s: now holds %s that this run leaves by going on from step %lld; they do not "
            "count as its last or best any more",
            where, tri_counted(count, "checkpoint"), (long long)loop->progress.step);
    return TRI_OK;
}

tri_status train_keep_folder(train_loop *loop) {
    const char *dir = loop->request->run_dir;
    if (train_lock_lost_folder(loop->lock)) {
        loop->lost_folder = train_lock_find_folder(loop->lock, loop->arena);
        train_lock_release(loop->lock);
        loop->lock = NULL;
    }
    if (!loop->lost_folder || loop->lock) return TRI_OK;
    loop->resumed_from = NULL; // whatever came after it is not here
    if (train_open_folder(loop) != TRI_OK)
        return TRI_FAIL(TRI_IO,
                        "%s: was removed or renamed while the run went on; what was in it is %s, "
                        "and step %lld cannot be saved: %s",
                        dir, loop->lost_folder, (long long)loop->progress.step,
                        tri_error_message());
    tri_log_line(TRI_LOG_WARNING,
                 "%s: was removed or renamed while the run went on, and is made again for the "
                 "checkpoint of step %lld; what was in it is %s",
                 dir, (long long)loop->progress.step, loop->lost_folder);
    return TRI_OK;
}

tri_status train_check_folder(train_loop *loop) {
    if (!loop->lost_folder && train_lock_lost_folder(loop->lock))
        loop->lost_folder = train_lock_find_folder(loop->lock, loop->arena);
    if (!loop->lost_folder) return TRI_OK;
    return TRI_FAIL(TRI_IO,
                    "%s: was removed or renamed while the run went on; the run is complete at step "
                    "%lld, but what was in the folder, such as metrics.jsonl, is %s",
                    loop->request->run_dir, (long long)loop->progress.step, loop->lost_folder);
}

tri_status train_open_folder(train_loop *loop) {
    const char *dir = loop->request->run_dir;
    char path[PATH_MAX];
    TRI_TRY(lock_new_folder(loop));
    clean_folder(dir);
    // A start that is killed from here on is one that a later one of its job goes on from. But what
    // --resume PATH leaves is put aside before, because the later start would take it for its own.
    bool leaves = loop->resumed_from != NULL;
    if (!leaves) TRI_TRY(train_note_start(loop, ""));
    snprintf(path, sizeof path, "%s/recipe.yaml", dir);
    char *text = tri_recipe_record(loop->arena, loop->recipe, dir);
    TRI_TRY(tri_os_replace_file(path, text, strlen(text)));
    TRI_TRY(tri_checkpoint_clean(dir));
    TRI_TRY(leave_other_history(loop));
    return leaves ? train_note_start(loop, "") : TRI_OK;
}

// Folders that appear complete or not at all. A file in the folder names the process that writes
// it, so that a later one knows what a killed process has left.
#include "checkpoint/new_folder.h"

#include "base/log.h"
#include "base/os.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 8, LONGEST_START_S = 60 };
static const char OWNER[] = ".owner", END[] = ".tmp";

// The folder in which `path` lies, and its name there.
static const char *above(tri_arena *arena, const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash) return ".";
    return slash == path ? "/" : tri_arena_printf(arena, "%.*s", (int)(slash - path), path);
}

static tri_status check_place(tri_arena *arena, const char **path) {
    size_t length = strlen(*path);
    while (length > 1 && (*path)[length - 1] == '/') length--;
    *path = tri_arena_printf(arena, "%.*s", (int)length, *path);
    bool is_there;
    if (length == 0) return TRI_FAIL(TRI_BAD_INPUT, "'' is not the name of a folder");
    TRI_TRY(tri_os_exists(*path, &is_there));
    if (!is_there) return TRI_OK;
    DIR *folder = opendir(*path);
    if (!folder)
        return errno == ENOTDIR ? TRI_FAIL(TRI_BAD_INPUT, "%s: is no folder: name a new one", *path)
                                : tri_os_fail("open", *path);
    bool is_empty = true;
    for (struct dirent *entry; (entry = readdir(folder));)
        is_empty = is_empty && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
    closedir(folder);
    if (!is_empty)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: exists and is not empty: name a new folder", *path);
    char *real = realpath(*path, NULL); // a rename would replace a link, not the folder behind it
    if (!real) return tri_os_fail("open", *path);
    *path = tri_arena_strdup(arena, real);
    free(real);
    return TRI_OK;
}

// Whether the process that makes the folder has ended. One that has not yet written who it is has
// had time for that.
static bool is_left_behind(tri_arena *arena, const char *path) {
    char *text;
    size_t size;
    struct stat info;
    tri_process process;
    if (lstat(path, &info) < 0 || !S_ISDIR(info.st_mode)) return false;
    if (tri_os_read_file(tri_arena_printf(arena, "%s/%s", path, OWNER), TRI_PROCESS_TEXT_BYTES,
                         &text, &size) != TRI_OK)
        return tri_os.realtime_ns() / 1000000000 - info.st_mtime > LONGEST_START_S;
    bool is_gone =
        tri_process_read(text, size, &process) && tri_process_life(&process) == TRI_LIFE_GONE;
    free(text);
    return is_gone;
}

static void remove_left_behind(tri_arena *arena, const char *path) {
    const char *name, *where = above(arena, path, &name);
    DIR *folder = opendir(where);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!tri_os_is_temporary_of(entry->d_name, name)) continue;
        const char *old = tri_arena_printf(arena, "%s/%s", where, entry->d_name);
        if (is_left_behind(arena, old) && tri_os_remove_tree(old) != TRI_OK)
            tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    }
    if (folder) closedir(folder);
}

static const char *owner_file(tri_arena *arena, const checkpoint_new_folder *folder) {
    return tri_arena_printf(arena, "%s/%s", folder->temporary, OWNER);
}

tri_status checkpoint_new_folder_begin(tri_arena *arena, const char *path,
                                       checkpoint_new_folder *out) {
    char text[TRI_PROCESS_TEXT_BYTES];
    tri_process self;
    *out = (checkpoint_new_folder){.path = path};
    TRI_TRY(check_place(arena, &out->path));
    remove_left_behind(arena, out->path);
    for (int i = 0; i < TRIES; i++) {
        out->temporary = tri_arena_printf(arena, "%s.%016llx%s", out->path,
                                          (unsigned long long)tri_os_random(), END);
        if (tri_os.mkdir(out->temporary, 0777) == 0) {
            tri_process_self(&self);
            tri_process_write(&self, text);
            tri_status status = tri_os_replace_fleeting(owner_file(arena, out), text, strlen(text));
            return status == TRI_OK ? status : checkpoint_new_folder_end(arena, out, status);
        }
        if (errno != EEXIST) break;
    }
    return tri_os_fail("create", out->path);
}

static tri_status put_in_place(tri_arena *arena, const checkpoint_new_folder *folder) {
    const char *owner = owner_file(arena, folder), *name;
    if (tri_os.unlink(owner) < 0) return tri_os_fail("remove", owner);
    TRI_TRY(tri_os_sync_folder(folder->temporary));
    if (tri_os.rename(folder->temporary, folder->path) < 0) {
        if (errno == ENOTEMPTY || errno == EEXIST)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: exists and is not empty: name a new folder",
                            folder->path);
        return tri_os_fail("rename a folder to", folder->path);
    }
    return tri_os_sync_folder(above(arena, folder->path, &name));
}

tri_status checkpoint_new_folder_end(tri_arena *arena, const checkpoint_new_folder *folder,
                                     tri_status written) {
    if (written == TRI_OK) written = put_in_place(arena, folder);
    if (written == TRI_OK) return TRI_OK;
    const char *message = tri_arena_strdup(arena, tri_error_message());
    struct stat info;
    if (lstat(folder->temporary, &info) == 0 && tri_os_remove_tree(folder->temporary) != TRI_OK)
        tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    return TRI_FAIL(written, "%s", message);
}

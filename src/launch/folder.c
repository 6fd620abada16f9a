// Creates the folder of a run's log and error files, and removes temporary folders that killed
// launchers have left.
#include "launch/folder.h"

#include "base/log.h"
#include "base/os.h"
#include "base/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wants_log_files(const launch_options *o) {
    return o->redirects.of_all || o->redirects.per_rank || o->tee.of_all || o->tee.per_rank;
}

static const char *temporary_folder(void) {
    const char *path = getenv("TMPDIR");
    return path && *path ? path : "/tmp";
}

static const char PREFIX[] = "trireme-run-", OWNER[] = ".owner";

// Whether `path` is the temporary folder of a launcher of this user that no longer runs. The file
// .owner in the folder names the launcher's process. A folder without this file is left alone,
// because its launcher may be about to write it.
static bool is_left_behind(const char *path) {
    char owner[PATH_MAX], *text;
    size_t size;
    struct stat info;
    tri_process process;
    if (lstat(path, &info) < 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        snprintf(owner, sizeof owner, "%s/%s", path, OWNER) >= (int)sizeof owner ||
        tri_os_read_file(owner, TRI_PROCESS_TEXT_BYTES, &text, &size) != TRI_OK)
        return false;
    bool is_gone =
        tri_process_read(text, size, &process) && tri_process_life(&process) == TRI_LIFE_GONE;
    free(text);
    return is_gone;
}

static void remove_left_behind(const char *where) {
    DIR *folder = opendir(where);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[PATH_MAX];
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 ||
            snprintf(path, sizeof path, "%s/%s", where, entry->d_name) >= (int)sizeof path)
            continue;
        if (is_left_behind(path) && tri_os_remove_tree(path) != TRI_OK)
            tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    }
    if (folder) closedir(folder);
}

static tri_status write_owner(const launch_folder *folder) {
    char path[sizeof folder->path + sizeof OWNER], text[TRI_PROCESS_TEXT_BYTES];
    tri_process self;
    tri_process_self(&self);
    tri_process_write(&self, text);
    snprintf(path, sizeof path, "%s/%s", folder->path, OWNER);
    return tri_os_replace_fleeting(path, text, strlen(text));
}

tri_status launch_folder_create(const launch_options *options, const char *run_id,
                                launch_folder *out) {
    char name[64];
    size_t length = 0;
    for (; run_id[length] && length < sizeof name - 1; length++)
        name[length] = isalnum((unsigned char)run_id[length]) || strchr("-_.", run_id[length])
                           ? run_id[length]
                           : '_';
    name[length] = 0;
    if (name[0] == '.') name[0] = '_';
    out->temporary = !options->log_dir && !wants_log_files(options);
    if (options->log_dir) TRI_TRY(tri_os_make_folders(options->log_dir));
    int used = snprintf(out->path, sizeof out->path, "%s/%s%s_XXXXXX",
                        options->log_dir ? options->log_dir : temporary_folder(),
                        options->log_dir ? "" : PREFIX, name);
    if (used < 0 || (size_t)used >= sizeof out->path)
        return TRI_FAIL(TRI_BAD_INPUT, "--log-dir: the path is too long");
    if (!mkdtemp(out->path)) {
        const char *where = options->log_dir ? options->log_dir : temporary_folder();
        bool is_missing = errno == ENOENT && !options->log_dir;
        tri_status status = tri_os_fail("make a folder in it", where);
        return is_missing ? tri_status_context(status, "TMPDIR") : status;
    }
    if (out->temporary) {
        remove_left_behind(temporary_folder());
        tri_status status = write_owner(out);
        if (status != TRI_OK) launch_folder_end(out);
        TRI_TRY(status);
    }
    if (wants_log_files(options)) tri_log_line(TRI_LOG_INFO, "logs are in %s", out->path);
    return TRI_OK;
}

// Makes a folder. Unlike tri_os_make_folders it does not sync, which would take milliseconds: these
// files are of no use after a crash of the system.
static tri_status make_folder(const char *path) {
    if (tri_os.mkdir(path, 0777) == 0 || errno == EEXIST) return TRI_OK;
    return tri_os_fail("create the folder", path);
}

tri_status launch_folder_add(const launch_folder *folder, int attempt, launch_worker *worker) {
    char above[sizeof worker->folder];
    snprintf(above, sizeof above, "%s/attempt_%d", folder->path, attempt);
    snprintf(worker->folder, sizeof worker->folder, "%s/attempt_%d/%d", folder->path, attempt,
             worker->local_rank);
    snprintf(worker->error_file, sizeof worker->error_file, "%s/error.json", worker->folder);
    TRI_TRY(make_folder(above));
    return make_folder(worker->folder);
}

void launch_folder_end(const launch_folder *folder) {
    if (folder->temporary && tri_os_remove_tree(folder->path) != TRI_OK)
        tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
}

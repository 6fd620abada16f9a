#include "launch/folder.h"

#include "base/log.h"
#include "base/os.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool writes_logs(const launch_options *o) {
    return o->redirects.of_all || o->redirects.per_rank || o->tee.of_all || o->tee.per_rank;
}

static const char *temporary_folder(void) {
    const char *path = getenv("TMPDIR");
    return path && *path ? path : "/tmp";
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
    out->temporary = !options->log_dir && !writes_logs(options);
    if (options->log_dir) TRI_TRY(tri_os_make_folders(options->log_dir));
    int used = snprintf(out->path, sizeof out->path, "%s/%s%s_XXXXXX",
                        options->log_dir ? options->log_dir : temporary_folder(),
                        options->log_dir ? "" : "trireme-run-", name);
    if (used < 0 || (size_t)used >= sizeof out->path)
        return TRI_FAIL(TRI_BAD_INPUT, "--log-dir: the path is too long");
    if (!mkdtemp(out->path))
        return tri_os_fail("make a folder in",
                           options->log_dir ? options->log_dir : temporary_folder());
    if (writes_logs(options)) tri_log(TRI_LOG_INFO, "logs are in %s", out->path);
    return TRI_OK;
}

tri_status launch_folder_add(const launch_folder *folder, int attempt, launch_worker *worker) {
    snprintf(worker->folder, sizeof worker->folder, "%s/attempt_%d/%d", folder->path, attempt,
             worker->local_rank);
    snprintf(worker->error_file, sizeof worker->error_file, "%s/error.json", worker->folder);
    return tri_os_make_folders(worker->folder);
}

void launch_folder_end(const launch_folder *folder) {
    if (folder->temporary && tri_os_remove_tree(folder->path) != TRI_OK)
        tri_log(TRI_LOG_WARNING, "%s", tri_error_message());
}

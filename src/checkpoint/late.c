// Waits, for a limited time, for files that another rank sees and this one does not see yet, which
// happens on network file systems. A file that no rank has seen is not waited for, because it will
// not come.
#include "checkpoint/late.h"

#include "base/log.h"
#include "base/os.h"
#include "checkpoint/agree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char *const FILES[CHECKPOINT_MAX_FILES + 1] = {
    CHECKPOINT_STATE_FILE, CHECKPOINT_MODEL_FILE, CHECKPOINT_OPTIMIZER_FILE,
    CHECKPOINT_AVERAGE_FILE};

static bool file_path(char out[PATH_MAX], const checkpoint_seen_files *seen, int i) {
    return snprintf(out, PATH_MAX, "%s/%s", seen->path, FILES[i]) < PATH_MAX;
}

void checkpoint_look(checkpoint_seen_files *seen) {
    for (int i = 0; i < CHECKPOINT_MAX_FILES + 1; i++) {
        char path[PATH_MAX];
        struct stat info;
        bool is_there = file_path(path, seen, i) && stat(path, &info) == 0 && S_ISREG(info.st_mode);
        seen->bytes[i] = is_there ? info.st_size : -1;
    }
}

// Whether this host sees the first size_bytes bytes of the file. Opens the file and reads the last
// of these bytes, because the length that the host has cached may be old. Also true after an error
// for which waiting does not help.
static bool is_seen(const char *path, int64_t size_bytes) {
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return errno != ENOENT && errno != ESTALE;
    char last;
    ssize_t done = size_bytes > 0 ? tri_os_pread_most(fd, &last, 1, size_bytes - 1) : 1;
    bool is_late = done == 0 || (done < 0 && errno == ESTALE);
    tri_os.close(fd);
    return !is_late;
}

// Opens the two folders above a file, the outer one first: usually RUN/checkpoints and the
// checkpoint's folder. NFS asks the server for the current contents of a folder only when the
// folder is opened; until then a name that did not exist stays missing.
static void refresh_folders(const char *path) {
    char folder[PATH_MAX];
    size_t ends[2] = {0}, count = 0;
    for (size_t end = strlen(path); end > 1 && count < 2; end--)
        if (path[end] == '/') ends[count++] = end;
    while (count > 0) {
        snprintf(folder, sizeof folder, "%.*s", (int)ends[--count], path);
        int fd = tri_os.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        if (fd >= 0) tri_os.close(fd);
    }
}

static bool is_cancelled(const checkpoint_patience *patience) {
    return patience->is_cancelled && atomic_load(patience->is_cancelled);
}

void checkpoint_await_file(checkpoint_patience *patience, const char *path, int64_t size_bytes) {
    int64_t pause_ns = CHECKPOINT_LATE_FIRST_PAUSE_MS * INT64_C(1000000);
    while (!is_seen(path, size_bytes) && patience->left_ns > 0 && !is_cancelled(patience)) {
        if (!patience->has_warned)
            tri_log_line(TRI_LOG_WARNING, "waiting for %s, which this host does not see yet", path);
        patience->has_warned = true;
        if (pause_ns > patience->left_ns) pause_ns = patience->left_ns;
        int64_t begin_ns = tri_os.monotonic_ns();
        tri_os.sleep_ns(pause_ns);
        refresh_folders(path);
        patience->left_ns -= tri_os.monotonic_ns() - begin_ns;
        pause_ns *= 2;
        if (pause_ns > CHECKPOINT_LATE_LONGEST_PAUSE_MS * INT64_C(1000000))
            pause_ns = CHECKPOINT_LATE_LONGEST_PAUSE_MS * INT64_C(1000000);
    }
}

tri_status checkpoint_await(tri_comm *comm, checkpoint_patience *patience,
                            checkpoint_seen_files *seen) {
    // A single rank has no other rank that could see files earlier.
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    checkpoint_look(seen);
    TRI_TRY(checkpoint_largest(comm, seen->bytes, CHECKPOINT_MAX_FILES + 1));
    for (int i = 0; i < CHECKPOINT_MAX_FILES + 1; i++) {
        char path[PATH_MAX];
        if (seen->bytes[i] >= 0 && file_path(path, seen, i))
            checkpoint_await_file(patience, path, seen->bytes[i]);
    }
    return TRI_OK;
}

tri_status checkpoint_await_common(tri_comm *comm, checkpoint_patience *patience,
                                   const char *path) {
    struct stat info;
    int64_t own = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1, most = own;
    TRI_TRY(checkpoint_largest(comm, &most, 1));
    if (most > own) checkpoint_await_file(patience, path, most);
    return TRI_OK;
}

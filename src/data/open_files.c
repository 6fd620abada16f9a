// Keeps the last few files of a data set open: see open_files.h.
#include "data/open_files.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { PART_OF_LIMIT = 8 }; // of RLIMIT_NOFILE: a run may have several data sets, and other files

typedef struct open_file {
    int64_t file; // its number
    int fd;       // -1: this place is free
    int users;
    int64_t used; // when it was last used: the number of that use
} open_file;

struct tri_open_files {
    pthread_mutex_t lock;
    open_file files[TRI_OPEN_FILES];
    int most;
    int64_t uses;
};

tri_status tri_open_files_create(tri_open_files **out) {
    tri_open_files *files = *out = calloc(1, sizeof *files);
    struct rlimit limit;
    if (!files) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a list of open files");
    pthread_mutex_init(&files->lock, NULL);
    files->most = TRI_OPEN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / PART_OF_LIMIT < TRI_OPEN_FILES)
        files->most = (int)(limit.rlim_cur / PART_OF_LIMIT);
    if (files->most < 1) files->most = 1;
    for (int i = 0; i < TRI_OPEN_FILES; i++) files->files[i].fd = -1;
    return TRI_OK;
}

void tri_open_files_destroy(tri_open_files *files) {
    if (!files) return;
    for (int i = 0; i < TRI_OPEN_FILES; i++)
        if (files->files[i].fd >= 0) tri_os.close(files->files[i].fd);
    pthread_mutex_destroy(&files->lock);
    free(files);
}

static int take_open(tri_open_files *files, int64_t file) {
    for (int i = 0; i < files->most; i++) {
        open_file *at = &files->files[i];
        if (at->fd < 0 || at->file != file) continue;
        at->users++;
        at->used = ++files->uses;
        return at->fd;
    }
    return -1;
}

// Finds the file that nobody uses and whose last use is longest ago; NULL: all are in use.
static open_file *oldest_of(tri_open_files *files) {
    open_file *oldest = NULL;
    for (int i = 0; i < files->most; i++) {
        open_file *at = &files->files[i];
        if (at->fd >= 0 && at->users == 0 && (!oldest || at->used < oldest->used)) oldest = at;
    }
    return oldest;
}

static bool close_oldest(tri_open_files *files) {
    open_file *oldest = oldest_of(files);
    if (!oldest) return false;
    tri_os.close(oldest->fd);
    oldest->fd = -1;
    return true;
}

// Keeps the file that was just opened, unless all places are in use.
static void keep(tri_open_files *files, int64_t file, int fd) {
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < files->most; i++) {
            if (files->files[i].fd >= 0) continue;
            files->files[i] = (open_file){file, fd, 1, ++files->uses};
            return;
        }
        if (!close_oldest(files)) return;
    }
}

// Opens a file. If the process has too many open, closes one of ours first.
static int open_one(tri_open_files *files, const char *path) {
    for (;;) {
        int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
        if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
        int error = errno;
        pthread_mutex_lock(&files->lock);
        bool is_closed = close_oldest(files);
        pthread_mutex_unlock(&files->lock);
        errno = error;
        if (!is_closed) return fd;
    }
}

static tri_status open_checked(tri_open_files *files, const char *path, const tri_file_state *state,
                               int *fd) {
    tri_file_state found;
    *fd = open_one(files, path);
    if (*fd < 0) return tri_os_fail("open", path);
    tri_status status = tri_file_state_of_open(*fd, path, &found);
    if (status == TRI_OK && state && !tri_file_state_equal(&found, state))
        status = TRI_FAIL(TRI_IO, "%s: was changed while it was in use", path);
    if (status != TRI_OK) tri_os.close(*fd);
    return status;
}

tri_status tri_open_files_take(tri_open_files *files, int64_t file, const char *path,
                               const tri_file_state *state, int *fd) {
    pthread_mutex_lock(&files->lock);
    *fd = take_open(files, file);
    pthread_mutex_unlock(&files->lock);
    if (*fd >= 0) return TRI_OK;
    int opened;
    TRI_TRY(open_checked(files, path, state, &opened));
    pthread_mutex_lock(&files->lock);
    *fd = take_open(files, file); // another thread may have opened it meanwhile
    if (*fd < 0) keep(files, file, opened);
    pthread_mutex_unlock(&files->lock);
    if (*fd >= 0)
        tri_os.close(opened);
    else
        *fd = opened;
    return TRI_OK;
}

void tri_open_files_release(tri_open_files *files, int fd) {
    bool is_kept = false;
    pthread_mutex_lock(&files->lock);
    for (int i = 0; i < files->most && !is_kept; i++) {
        open_file *at = &files->files[i];
        if (at->fd != fd) continue;
        at->users--;
        is_kept = true;
    }
    pthread_mutex_unlock(&files->lock);
    if (!is_kept) tri_os.close(fd);
}

// Hooks that run in place of system calls (base/os.h) and record every call that changes the file
// system. crash_disk.c executes the recorded calls.
#include "support/crash_log.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_CALLS = 20000, MAX_DATA = 64 << 20, MAX_FDS = 1024 };

typedef struct shared_log { // in memory that forked processes share
    pthread_mutex_t lock;
    int count;
    int64_t used;
    crash_call calls[MAX_CALLS];
    char data[MAX_DATA];
} shared_log;

static shared_log *shared;
static char root[CRASH_PATH_BYTES];
static bool exchanges;
static struct open_file {
    bool counts;                 // the file lies in the folder `root`, so its calls are logged
    char path[CRASH_PATH_BYTES]; // the file's path, relative to `root`
    int64_t offset;
} files[MAX_FDS];

// Returns the path relative to the folder `root`, "" for this folder itself; NULL: the file is
// outside of it.
static const char *below(const char *path) {
    size_t length = strlen(root);
    if (strncmp(path, root, length) != 0 || (path[length] && path[length] != '/')) return NULL;
    return path + length + (path[length] == '/');
}

static crash_call *add(crash_kind kind, const char *path, const char *other) {
    TRI_ASSERT(shared->count < MAX_CALLS);
    crash_call *call = &shared->calls[shared->count++];
    *call = (crash_call){.kind = kind, .writer = (int)getpid()};
    int used = snprintf(call->path, sizeof call->path, "%s", path);
    int more = other ? snprintf(call->other, sizeof call->other, "%s", other) : 0;
    TRI_ASSERT(used < (int)sizeof call->path && more < (int)sizeof call->other);
    return call;
}

static void begin(void) {
    // If a process was killed while it held the lock, the log is used as that process left it.
    if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
}

static int end(int result) {
    int saved = errno;
    pthread_mutex_unlock(&shared->lock);
    errno = saved;
    return result;
}

static int open_hook(const char *path, int flags, mode_t mode) {
    begin();
    const char *name = below(path);
    bool is_new = name && flags & O_CREAT && access(path, F_OK) != 0;
    int fd = tri_os_system.open(path, flags, mode);
    if (fd >= 0 && fd < MAX_FDS) {
        files[fd].offset = 0;
        files[fd].counts = name != NULL;
        snprintf(files[fd].path, sizeof files[fd].path, "%s", name ? name : "");
    }
    if (fd >= 0 && is_new) add(CRASH_CREATE, name, NULL);
    if (fd >= 0 && name && !is_new && flags & O_TRUNC) add(CRASH_SIZE, name, NULL)->size = 0;
    return end(fd);
}

static const char *file_of(int fd) {
    return fd >= 0 && fd < MAX_FDS && files[fd].counts ? files[fd].path : NULL;
}

static int close_hook(int fd) {
    begin();
    if (fd >= 0 && fd < MAX_FDS) files[fd].counts = false;
    return end(tri_os_system.close(fd));
}

static void add_write(int fd, const void *data, ssize_t size, int64_t offset) {
    if (size <= 0 || !file_of(fd)) return;
    TRI_ASSERT(shared->used + size <= MAX_DATA);
    crash_call *call = add(CRASH_WRITE, file_of(fd), NULL);
    call->offset = offset;
    call->size = size;
    call->data = memcpy(shared->data + shared->used, data, (size_t)size);
    shared->used += size;
}

static ssize_t write_hook(int fd, const void *data, size_t size) {
    begin();
    ssize_t done = tri_os_system.write(fd, data, size);
    if (done > 0 && file_of(fd)) {
        add_write(fd, data, done, files[fd].offset);
        files[fd].offset += done;
    }
    end(0);
    return done;
}

static ssize_t pwrite_hook(int fd, const void *data, size_t size, off_t offset) {
    begin();
    ssize_t done = tri_os_system.pwrite(fd, data, size, offset);
    add_write(fd, data, done, offset);
    end(0);
    return done;
}

// Records the call instead of syncing the file, so that the test need not wait for a disk.
static int fsync_hook(int fd) {
    begin();
    if (file_of(fd)) add(CRASH_SYNC, file_of(fd), NULL);
    return end(0);
}

static int ftruncate_hook(int fd, off_t size) {
    begin();
    int result = tri_os_system.ftruncate(fd, size);
    if (result == 0 && file_of(fd)) add(CRASH_SIZE, file_of(fd), NULL)->size = size;
    return end(result);
}

static int rename_hook(const char *from, const char *to) {
    begin();
    int result = tri_os_system.rename(from, to);
    if (result == 0 && below(from)) add(CRASH_RENAME, below(from), below(to));
    return end(result);
}

static int renameat2_hook(int from_fd, const char *from, int to_fd, const char *to,
                          unsigned flags) {
    if (!exchanges) {
        errno = EINVAL;
        return -1;
    }
    begin();
    int result = tri_os_system.renameat2(from_fd, from, to_fd, to, flags);
    if (result == 0 && below(from)) add(CRASH_EXCHANGE, below(from), below(to));
    return end(result);
}

static int symlink_hook(const char *target, const char *path) {
    begin();
    int result = tri_os_system.symlink(target, path);
    if (result == 0 && below(path)) add(CRASH_SYMLINK, below(path), target);
    return end(result);
}

static int mkdir_hook(const char *path, mode_t mode) {
    begin();
    int result = tri_os_system.mkdir(path, mode);
    if (result == 0 && below(path)) add(CRASH_MKDIR, below(path), NULL);
    return end(result);
}

static int removed(const char *path, int result) {
    if (result == 0 && below(path)) add(CRASH_REMOVE, below(path), NULL);
    return end(result);
}

static int unlink_hook(const char *path) {
    begin();
    return removed(path, tri_os_system.unlink(path));
}

static int rmdir_hook(const char *path) {
    begin();
    return removed(path, tri_os_system.rmdir(path));
}

void crash_log_begin(const char *at, bool no_exchange) {
    if (!shared) {
        shared =
            mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        TRI_ASSERT(shared != MAP_FAILED);
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&shared->lock, &kind);
        pthread_mutexattr_destroy(&kind);
    }
    snprintf(root, sizeof root, "%s", at);
    exchanges = !no_exchange;
    shared->count = 0;
    shared->used = 0;
    memset(files, 0, sizeof files);
    tri_os.open = open_hook, tri_os.close = close_hook, tri_os.write = write_hook;
    tri_os.pwrite = pwrite_hook, tri_os.fsync = fsync_hook, tri_os.ftruncate = ftruncate_hook;
    tri_os.rename = rename_hook, tri_os.renameat2 = renameat2_hook;
    tri_os.symlink = symlink_hook, tri_os.mkdir = mkdir_hook, tri_os.unlink = unlink_hook;
    tri_os.rmdir = rmdir_hook;
}

void crash_log_mark(int64_t mark) {
    begin();
    add(CRASH_MARK, "", NULL)->mark = mark;
    end(0);
}

void crash_log_end(crash_log *out) {
    tri_os = tri_os_system;
    *out = (crash_log){.count = shared->count};
    out->calls = malloc(((size_t)shared->count + 1) * sizeof *out->calls);
    out->data = malloc((size_t)shared->used + 1);
    TRI_ASSERT(out->calls && out->data);
    memcpy(out->calls, shared->calls, (size_t)shared->count * sizeof *out->calls);
    memcpy(out->data, shared->data, (size_t)shared->used);
    for (int i = 0; i < out->count; i++)
        if (out->calls[i].data)
            out->calls[i].data = out->data + (out->calls[i].data - shared->data);
}

void crash_log_free(crash_log *log) {
    free(log->calls);
    free(log->data);
    *log = (crash_log){0};
}

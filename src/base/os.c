// The system's functions behind tri_os, and functions built on them: reads and writes that transfer
// all bytes, files that are replaced as a whole, folders.
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// How long this process was suspended by tri_os_suspend in all, and since when it is now. `turn` is
// odd while it is, and changes with both, so that a reader sees numbers that belong together.
static struct {
    _Atomic unsigned turn;
    _Atomic int64_t total_ns, since_ns;
} suspended;

static int64_t system_monotonic_ns(void) {
    for (;;) {
        unsigned turn = atomic_load(&suspended.turn);
        int64_t total_ns = atomic_load(&suspended.total_ns);
        int64_t now_ns = turn & 1 ? atomic_load(&suspended.since_ns) : clock_ns(CLOCK_MONOTONIC);
        if (atomic_load(&suspended.turn) == turn) return now_ns - total_ns;
    }
}

void tri_os_suspend(void) {
    int64_t since_ns = clock_ns(CLOCK_MONOTONIC);
    atomic_store(&suspended.since_ns, since_ns);
    atomic_fetch_add(&suspended.turn, 1);
    raise(SIGSTOP);
    atomic_fetch_add(&suspended.total_ns, clock_ns(CLOCK_MONOTONIC) - since_ns);
    atomic_fetch_add(&suspended.turn, 1);
}

static void suspend(int number) {
    (void)number;
    int before = errno;
    tri_os_suspend();
    errno = before;
}

void tri_os_handle_suspension(void) {
    struct sigaction old, new = {.sa_handler = suspend, .sa_flags = SA_RESTART};
    if (sigaction(SIGTSTP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &new, NULL);
}

static int64_t system_realtime_ns(void) { return clock_ns(CLOCK_REALTIME); }

static void system_sleep_ns(int64_t duration_ns) {
    struct timespec left = {duration_ns / 1000000000, duration_ns % 1000000000};
    while (nanosleep(&left, &left) < 0 && errno == EINTR) continue;
}

static int system_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }

static int system_lock(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole);
}

static int system_touch(int fd) { return futimens(fd, NULL); }

#define SYSTEM_FUNCTIONS                                                                           \
    {                                                                                              \
        .monotonic_ns = system_monotonic_ns, .realtime_ns = system_realtime_ns,                    \
        .sleep_ns = system_sleep_ns, .open = system_open, .access = access, .close = close,        \
        .read = read, .pread = pread, .write = write, .pwrite = pwrite, .fsync = fsync,            \
        .ftruncate = ftruncate, .fallocate = fallocate, .rename = rename, .renameat2 = renameat2,  \
        .symlink = symlink, .mkdir = mkdir, .unlink = unlink, .rmdir = rmdir, .lock = system_lock, \
        .touch = system_touch, .socket = socket, .connect = connect, .accept = accept,             \
        .send = send, .recv = recv,                                                                \
    }

const tri_os_functions tri_os_system = SYSTEM_FUNCTIONS;
tri_os_functions tri_os = SYSTEM_FUNCTIONS;

double tri_os_seconds(void) { return (double)tri_os.monotonic_ns() * 1e-9; }

int tri_os_cpus(void) {
    enum { MOST = 8192 };
    cpu_set_t *set = CPU_ALLOC(MOST);
    size_t bytes = CPU_ALLOC_SIZE(MOST);
    int count = 1;
    if (set && sched_getaffinity(0, bytes, set) == 0) count = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    return count;
}

tri_status tri_os_fail(const char *verb, const char *path) {
    int error = errno;
    tri_status status = TRI_IO;
    if (error == ENOSPC || error == EDQUOT) status = TRI_NO_SPACE;
    if (error == ENOENT || error == ENOTDIR) status = TRI_NOT_FOUND;
    if (error == EACCES || error == EPERM || error == EROFS || error == EISDIR ||
        error == ENAMETOOLONG || error == ELOOP)
        status = TRI_BAD_INPUT;
    return TRI_FAIL(status, "%s: cannot %s: %s", path, verb, strerror(error));
}

tri_status tri_os_write_all(int fd, const void *data, size_t size, const char *path) {
    const char *from = data;
    while (size > 0) {
        ssize_t done = tri_os.write(fd, from, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return tri_os_fail("write", path);
        from += done;
        size -= (size_t)done;
    }
    return TRI_OK;
}

tri_status tri_os_pwrite_all(int fd, const void *data, size_t size, int64_t offset,
                             const char *path) {
    const char *from = data;
    while (size > 0) {
        ssize_t done = tri_os.pwrite(fd, from, size, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return tri_os_fail("write", path);
        from += done;
        offset += done;
        size -= (size_t)done;
    }
    return TRI_OK;
}

ssize_t tri_os_pread_most(int fd, void *data, size_t size, int64_t offset) {
    ssize_t done = 0;
    while ((size_t)done < size) {
        ssize_t got = tri_os.pread(fd, (char *)data + done, size - (size_t)done, offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += got;
    }
    return done;
}

tri_status tri_os_pread_all(int fd, void *data, size_t size, int64_t offset, const char *path) {
    ssize_t done = tri_os_pread_most(fd, data, size, offset);
    if (done < 0) return tri_os_fail("read", path);
    if ((size_t)done == size) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: ends %zu bytes too early", path, size - (size_t)done);
}

enum { POINTER_HEAD_BYTES = 64 };

tri_status tri_os_check_pointer(const char *path, const void *head, size_t size) {
    static const struct {
        const char *begins, *whose, *command;
    } pointers[] = {{"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"},
                    {"/annex/objects/", "git-annex", "git annex get"}};
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        size_t length = strlen(pointers[i].begins);
        if (size < length || memcmp(head, pointers[i].begins, length) != 0) continue;
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: is a pointer of %s and not the file itself: fetch it with `%s`", path,
                        pointers[i].whose, pointers[i].command);
    }
    return TRI_OK;
}

tri_status tri_os_open_input(const char *path, int *fd) {
    char head[POINTER_HEAD_BYTES];
    struct stat info;
    *fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (*fd < 0) return tri_os_fail("open", path);
    if (fstat(*fd, &info) < 0 || !S_ISREG(info.st_mode)) return TRI_OK; // the reader reports this
    ssize_t got = tri_os_pread_most(*fd, head, sizeof head, 0);
    tri_status status = got > 0 ? tri_os_check_pointer(path, head, (size_t)got) : TRI_OK;
    if (status == TRI_OK) return TRI_OK;
    tri_os.close(*fd);
    *fd = -1;
    return status;
}

tri_status tri_os_read_file(const char *path, size_t max_bytes, char **out, size_t *size) {
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return tri_os_fail("open", path);
    size_t used = 0, capacity = 4096;
    char *data = malloc(capacity + 1);
    tri_status status = data ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", path);
    while (status == TRI_OK) {
        ssize_t done = tri_os.read(fd, data + used, capacity - used);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) status = tri_os_fail("read", path);
        if (done <= 0) break;
        used += (size_t)done;
        if (used > max_bytes)
            status = TRI_FAIL(TRI_BAD_INPUT, "%s: larger than %zu bytes", path, max_bytes);
        if (used < capacity || status != TRI_OK) continue;
        char *grown = realloc(data, 2 * capacity + 1);
        if (!grown) {
            status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", path);
            break;
        }
        data = grown;
        capacity *= 2;
    }
    tri_os.close(fd);
    if (status == TRI_OK) status = tri_os_check_pointer(path, data, used);
    if (status != TRI_OK) {
        free(data);
        return status;
    }
    data[used] = 0;
    *out = data;
    *size = used;
    return TRI_OK;
}

tri_status tri_os_check_file(const char *path) {
    struct stat info;
    if (stat(path, &info) < 0 || S_ISREG(info.st_mode)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", path);
}

tri_status tri_os_exists(const char *path, bool *out) {
    struct stat info;
    *out = lstat(path, &info) == 0;
    return *out || errno == ENOENT || errno == ENOTDIR ? TRI_OK : tri_os_fail("open", path);
}

bool tri_os_is_same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

// Syncs the folder that contains `path`, because a new name survives a crash only if its folder was
// synced.
static tri_status sync_above(const char *path) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    if (!slash) snprintf(above, sizeof above, ".");
    if (slash) slash[slash == above] = 0;
    tri_status status = tri_os_sync_folder(above);
    // TRI_BAD_INPUT: this process may not read the folder, and so cannot sync it. That is not
    // reported as a failure.
    return status == TRI_BAD_INPUT ? TRI_OK : status;
}

tri_status tri_os_open_unnamed(int *fd) {
    const char *folder = getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    *fd = tri_os.open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *fd < 0 ? tri_os_fail("create a file in", folder) : TRI_OK;
}

uint64_t tri_os_random(void) {
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) == (ssize_t)sizeof bits) return bits;
    // Early during a boot there are no random bits yet. Then this number, and so the name of a
    // temporary file made of it, can be guessed, and another user can create a file of that name
    // first. This does no harm, because O_EXCL then makes open fail.
    return (uint64_t)tri_os.realtime_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
}

static const char TEMPORARY_END[] = ".tmp";
enum { TEMPORARY_DIGITS = 16, TEMPORARY_TRIES = 8 };

tri_status tri_os_replacement_begin(const char *path, tri_os_replacement *out) {
    struct stat info;
    // A rename would replace a device such as /dev/null by a file, for every program of this host.
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is %s: name a file, which is replaced, or a new one",
                        path, S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket");
    out->path = path;
    out->is_fleeting = false;
    for (int i = 0; i < TEMPORARY_TRIES; i++) {
        int used = snprintf(out->temporary, sizeof out->temporary, "%s.%0*llx%s", path,
                            TEMPORARY_DIGITS, (unsigned long long)tri_os_random(), TEMPORARY_END);
        if (used >= (int)sizeof out->temporary)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: the path is too long", path);
        out->fd =
            tri_os.open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (out->fd >= 0) return TRI_OK;
        if (errno != EEXIST) break;
    }
    return tri_os_fail("create", path);
}

tri_status tri_os_replacement_end(tri_os_replacement *r, tri_status status) {
    if (status == TRI_OK && !r->is_fleeting && tri_os.fsync(r->fd) < 0)
        status = tri_os_fail("sync", r->path);
    if (tri_os.close(r->fd) < 0 && status == TRI_OK) status = tri_os_fail("close", r->path);
    if (status == TRI_OK && tri_os.rename(r->temporary, r->path) < 0)
        status = tri_os_fail("rename", r->path);
    if (status != TRI_OK) {
        tri_os.unlink(r->temporary);
        return status;
    }
    return r->is_fleeting ? TRI_OK : sync_above(r->path);
}

tri_status tri_os_replace_file(const char *path, const void *data, size_t size) {
    tri_os_replacement file;
    TRI_TRY(tri_os_replacement_begin(path, &file));
    return tri_os_replacement_end(&file, tri_os_write_all(file.fd, data, size, path));
}

tri_status tri_os_replace_fleeting(const char *path, const void *data, size_t size) {
    tri_os_replacement file;
    TRI_TRY(tri_os_replacement_begin(path, &file));
    file.is_fleeting = true;
    return tri_os_replacement_end(&file, tri_os_write_all(file.fd, data, size, path));
}

bool tri_os_is_temporary(const char *entry) {
    size_t length = strlen(entry), end = 1 + TEMPORARY_DIGITS + sizeof TEMPORARY_END - 1;
    if (length <= end) return false;
    const char *digits = entry + length - end + 1;
    return digits[-1] == '.' && strspn(digits, "0123456789abcdef") == TEMPORARY_DIGITS &&
           !strcmp(digits + TEMPORARY_DIGITS, TEMPORARY_END);
}

bool tri_os_is_temporary_of(const char *entry, const char *name) {
    size_t length = strlen(name);
    return !strncmp(entry, name, length) && entry[length] == '.' && tri_os_is_temporary(entry) &&
           strlen(entry) == length + 1 + TEMPORARY_DIGITS + sizeof TEMPORARY_END - 1;
}

int tri_os_open_or_create(const char *path, int flags, mode_t mode) {
    int fd = -1;
    // Try twice, because another process may create the file between the two calls of open.
    for (int i = 0; fd < 0 && i < 2; i++) {
        fd = tri_os.open(path, flags, 0);
        if (fd >= 0 || errno != ENOENT) break;
        fd = tri_os.open(path, flags | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if (fd < 0 && errno != EEXIST) break;
    }
    return fd;
}

tri_status tri_os_make_folders(const char *path) {
    char prefix[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof prefix)
        return TRI_FAIL(TRI_BAD_INPUT, "'%s' cannot be the path of a folder", path);
    memcpy(prefix, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (prefix[i] != '/' && prefix[i] != 0) continue;
        char ended = prefix[i];
        prefix[i] = 0;
        bool is_made = tri_os.mkdir(prefix, 0777) == 0;
        if (!is_made && errno != EEXIST) return tri_os_fail("create the folder", prefix);
        // The last folder's parent is synced even if the folder existed: the process that made the
        // folder may have been killed before it synced.
        if (is_made || i == length) TRI_TRY(sync_above(prefix));
        prefix[i] = ended;
    }
    struct stat info;
    if (stat(path, &info) < 0) return tri_os_fail("look at", path);
    if (!S_ISDIR(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a folder", path);
    return TRI_OK;
}

tri_status tri_os_sync_folder(const char *path) {
    int fd = tri_os.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return tri_os_fail("open", path);
    // EINVAL means that on this file system there is nothing to sync for a folder.
    bool has_failed = tri_os.fsync(fd) < 0 && errno != EINVAL;
    tri_status status = has_failed ? tri_os_fail("sync", path) : TRI_OK;
    tri_os.close(fd);
    return status;
}

static bool is_link(const char *path) {
    int saved_errno = errno;
    struct stat info;
    bool found = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    errno = saved_errno;
    return found;
}

static tri_status remove_link(const char *path) {
    return tri_os.unlink(path) < 0 && errno != ENOENT ? tri_os_fail("remove", path) : TRI_OK;
}

tri_status tri_os_remove_tree(const char *path) {
    int fd = tri_os.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT) return TRI_OK;
    if (fd < 0) return is_link(path) ? remove_link(path) : tri_os_fail("open", path);
    DIR *folder = fdopendir(fd);
    if (!folder) {
        tri_os.close(fd);
        return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to list it", path);
    }
    tri_status status = TRI_OK;
    for (struct dirent *entry; status == TRI_OK && (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char below[PATH_MAX];
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below) {
            status = TRI_FAIL(TRI_BAD_INPUT, "%s: a path below it is too long", path);
            break;
        }
        struct stat info;
        if (lstat(below, &info) < 0) {
            status = errno == ENOENT ? TRI_OK : tri_os_fail("look at", below);
        } else if (S_ISDIR(info.st_mode)) {
            status = tri_os_remove_tree(below);
        } else if (tri_os.unlink(below) < 0 && errno != ENOENT) {
            status = tri_os_fail("remove", below);
        }
    }
    closedir(folder);
    if (status == TRI_OK && tri_os.rmdir(path) < 0 && errno != ENOENT)
        status = tri_os_fail("remove", path);
    return status;
}

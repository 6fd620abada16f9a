// The lock of a run folder, so that only one process writes there. It is the file .lock in the
// folder: its content, the record, names the process that holds the lock, and this process touches
// the file regularly. If the file system has locks, the kernel's lock on this file decides who
// holds it; if not, or if locks do not reach other hosts, the record and the touches decide. lock.h
// has the details.
#include "train/lock.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/process.h"
#include "base/quantity.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The content of the lock's file: which process holds the lock. With this, a later process can find
// out whether the holder is still alive.
typedef struct record {
    char text[TRI_PROCESS_TEXT_BYTES]; // "": the file is empty or cannot be read
    tri_process holder;
} record;

struct train_lock {
    char path[PATH_MAX];
    const char *run_dir;
    int fd;
    int folder;               // the open run folder
    bool is_locked;           // this process holds the kernel's lock on the file
    record own;               // describes this process
    record taker;             // if is_lost: the process that has taken over the lock
    _Atomic bool is_lost;     // another process has taken over the lock
    _Atomic bool has_noticed; // that the folder is not at its path any more
    pthread_t thread;
    bool has_thread, ends; // ends: the thread has to end
    pthread_mutex_t mutex;
    pthread_cond_t end;
};

// Reads the record. A record that cannot be parsed counts as empty: its process was killed while it
// wrote.
static void read_record(int fd, record *r) {
    ssize_t size = tri_os_pread_most(fd, r->text, sizeof r->text - 1, 0);
    r->text[size > 0 ? size : 0] = 0;
    if (!tri_process_read(r->text, strlen(r->text), &r->holder)) r->text[0] = 0;
}

static tri_status refuse(const char *run_dir, const record *r) {
    if (!r->text[0])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: in use by another process, which holds the lock on %s/.lock; wait for "
                        "its end, or take another --run-dir",
                        run_dir, run_dir);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: in use by pid %lld on %s; wait for its end, or take another --run-dir",
                    run_dir, (long long)r->holder.pid, r->holder.host);
}

// Reads the file's record and time stamp. Opens the file each time, because only then does a
// network file system ask its server for the newest version. False: the file does not exist or
// cannot be opened.
static bool look(const char *path, struct timespec *touched, record *r) {
    int fd = tri_os.open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    struct stat info;
    bool there = fd >= 0 && fstat(fd, &info) == 0;
    if (there) {
        *touched = info.st_mtim;
        read_record(fd, r);
    }
    if (fd >= 0) tri_os.close(fd);
    return there;
}

// Whether the file shows a sign of life: somebody touches it while this process watches. The clocks
// of hosts may differ, so only a change of the time stamp counts.
static bool is_touched(const char *path, const record *found) {
    struct timespec first, now;
    record r;
    if (!look(path, &first, &r)) return false;
    if (found->text[0])
        tri_log_line(TRI_LOG_INFO,
                     "%s: left by pid %lld on %s, which may still run: watching it for %s", path,
                     (long long)found->holder.pid, found->holder.host,
                     tri_seconds_text(TRI_LOCK_WATCH_MS * 1e-3));
    int64_t end = tri_os.monotonic_ns() + TRI_LOCK_WATCH_MS * INT64_C(1000000);
    while (tri_os.monotonic_ns() < end) {
        tri_os.sleep_ns(TRI_LOCK_BEAT_MS * INT64_C(500000));
        if (!look(path, &now, &r)) return false;
        if (now.tv_sec != first.tv_sec || now.tv_nsec != first.tv_nsec ||
            strcmp(r.text, found->text) != 0)
            return true;
    }
    return false;
}

typedef enum verdict { TAKEN, RETRY, HELD, FAILED } verdict;

static bool is_at_its_path(const train_lock *lock) {
    struct stat here, there;
    return fstat(lock->fd, &here) == 0 && lstat(lock->path, &there) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

// Opens the file, or creates it; *is_new tells which. -1: it failed, and errno says why.
static int open_file(const char *path, bool *is_new) {
    int fd = -1;
    *is_new = false;
    for (int i = 0; fd < 0 && i < 8; i++) {
        fd = tri_os.open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
        if (fd >= 0 || errno != ENOENT) break;
        fd = tri_os.open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        *is_new = fd >= 0;
        if (fd < 0 && errno != EEXIST) break;
    }
    return fd;
}

// For file systems without locks: moves a dead holder's file away, so that the next try can create
// a new one. If two processes do this at the same time, one of them may move the file that the
// other has just created; then it moves that file back.
static void move_away(const char *path, const record *dead) {
    char aside[PATH_MAX];
    record aside_record;
    struct timespec touched;
    if (snprintf(aside, sizeof aside, "%s.%016llx.tmp", path,
                 (unsigned long long)tri_os_random()) >= (int)sizeof aside ||
        tri_os.rename(path, aside) < 0)
        return;
    struct stat info;
    bool is_other =
        look(aside, &touched, &aside_record) && strcmp(aside_record.text, dead->text) != 0;
    if (!is_other || lstat(path, &info) == 0 || tri_os.rename(aside, path) < 0)
        tri_os.unlink(aside);
}

// Decides whether a living process holds the open file. It is held if the kernel refuses the lock.
// It is free if the kernel grants the lock and the record is empty or names a process on this host,
// where the kernel's lock can be trusted, and also if there are no locks but this process has just
// created the file. Otherwise the record's process decides or, if that process cannot be looked up
// from here, whether somebody touches the file.
static verdict judge(train_lock *lock, bool is_new, record *found) {
    struct timespec touched;
    int error = tri_os.lock(lock->fd) == 0 ? 0 : errno;
    read_record(lock->fd, found);
    if (error == EAGAIN || error == EACCES) return HELD;
    lock->is_locked = error == 0;
    if (!lock->is_locked && is_new) return TAKEN;
    // The last holder has removed the file after this process opened it, so the lock on it is worth
    // nothing.
    if (lock->is_locked && !is_at_its_path(lock)) return RETRY;
    bool has_record = found->text[0];
    if (lock->is_locked && (!has_record || tri_process_is_here(&found->holder))) return TAKEN;
    tri_life life = has_record ? tri_process_life(&found->holder) : TRI_LIFE_UNKNOWN;
    if (life == TRI_LIFE_ALIVE) return HELD;
    if (life == TRI_LIFE_UNKNOWN && is_touched(lock->path, found))
        return look(lock->path, &touched, found) ? HELD : RETRY;
    if (lock->is_locked) return is_at_its_path(lock) ? TAKEN : RETRY;
    move_away(lock->path, found);
    return RETRY;
}

static verdict try_once(train_lock *lock, record *found) {
    bool is_new;
    lock->fd = open_file(lock->path, &is_new);
    if (lock->fd < 0) return FAILED;
    verdict v = judge(lock, is_new, found);
    if (v == TAKEN) return v;
    tri_os.close(lock->fd);
    lock->fd = -1;
    return v;
}

static tri_status write_record(train_lock *lock) {
    size_t size = strlen(lock->own.text);
    if (tri_os.ftruncate(lock->fd, 0) < 0) return tri_os_fail("cut", lock->path);
    return tri_os_pwrite_all(lock->fd, lock->own.text, size, 0, lock->path);
}

// How long to wait for the holder of the lock to end. A process that was just killed keeps its lock
// until the kernel has freed its memory, which takes a while. A living holder will not end soon, so
// then the wait is short.
static int64_t patience_ns(const record *found) {
    bool is_ending = found->text[0] && tri_process_life(&found->holder) == TRI_LIFE_GONE;
    return (is_ending ? TRI_LOCK_ENDING_MS : TRI_LOCK_HELD_MS) * INT64_C(1000000);
}

static tri_status take(train_lock *lock, const char *run_dir, bool *held) {
    record found = {.text = ""};
    int64_t start = tri_os.monotonic_ns();
    // How often try_once has returned RETRY. This is limited, because it could go on for ever if
    // other processes kept changing the file.
    int retries = 0;
    verdict v;
    while ((v = try_once(lock, &found)) == RETRY || v == HELD) {
        if (v == HELD ? tri_os.monotonic_ns() - start >= patience_ns(&found) : ++retries > 100)
            break;
        tri_os.sleep_ns(50000000);
    }
    if (v == FAILED) return tri_os_fail("open", lock->path);
    *held = v != TAKEN;
    return *held ? refuse(run_dir, &found) : write_record(lock);
}

static void beat(train_lock *lock) {
    struct timespec touched;
    record now;
    // A lock in another folder of the same path is that folder's; this one's is where it was moved.
    bool is_moved = train_lock_lost_folder(lock);
    atomic_store(&lock->has_noticed, is_moved);
    if (!is_moved && look(lock->path, &touched, &now) && now.text[0] &&
        strcmp(now.text, lock->own.text) != 0) {
        lock->taker = now;
        atomic_store(&lock->is_lost, true);
        return;
    }
    tri_os.touch(lock->fd);
}

static void *keep_alive(void *context) {
    train_lock *lock = context;
    pthread_mutex_lock(&lock->mutex);
    while (!lock->ends && !atomic_load(&lock->is_lost)) {
        struct timespec until = tri_condition_deadline(TRI_LOCK_BEAT_MS);
        int why = 0;
        while (!lock->ends && why == 0)
            why = pthread_cond_timedwait(&lock->end, &lock->mutex, &until);
        if (lock->ends) break;
        pthread_mutex_unlock(&lock->mutex);
        beat(lock);
        pthread_mutex_lock(&lock->mutex);
    }
    pthread_mutex_unlock(&lock->mutex);
    return NULL;
}

static void start_beating(train_lock *lock) {
    pthread_mutex_init(&lock->mutex, NULL);
    tri_condition_init(&lock->end);
    lock->has_thread = tri_thread_start(&lock->thread, keep_alive, lock) == 0;
}

tri_status train_lock_take(const char *run_dir, train_lock **out, bool *held) {
    *out = NULL;
    *held = false;
    train_lock *lock = calloc(1, sizeof *lock);
    if (!lock) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its lock", run_dir);
    lock->fd = -1;
    lock->run_dir = run_dir;
    lock->folder = tri_os.open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    tri_process_self(&lock->own.holder);
    tri_process_write(&lock->own.holder, lock->own.text);
    tri_status status = TRI_OK;
    if (snprintf(lock->path, sizeof lock->path, "%s/.lock", run_dir) >= (int)sizeof lock->path)
        status = TRI_FAIL(TRI_BAD_INPUT, "--run-dir: the path is too long");
    if (status == TRI_OK) status = take(lock, run_dir, held);
    if (status != TRI_OK) {
        if (lock->fd >= 0) tri_os.close(lock->fd);
        if (lock->folder >= 0) tri_os.close(lock->folder);
        free(lock);
        return status;
    }
    start_beating(lock);
    *out = lock;
    return TRI_OK;
}

tri_status train_lock_check(train_lock *lock) {
    if (!lock || !atomic_load(&lock->is_lost)) return TRI_OK;
    return TRI_FAIL(TRI_IO,
                    "the run folder was taken over by pid %lld on %s, because this process could "
                    "not touch its lock for %s (%s)",
                    (long long)lock->taker.holder.pid, lock->taker.holder.host,
                    tri_seconds_text(TRI_LOCK_WATCH_MS * 1e-3), lock->path);
}

bool train_lock_lost_folder(train_lock *lock) {
    struct stat here, there;
    if (!lock || fstat(lock->folder, &here) < 0) return false;
    if (stat(lock->run_dir, &there) < 0) return errno == ENOENT || errno == ENOTDIR;
    return here.st_ino != there.st_ino || here.st_dev != there.st_dev;
}

bool train_lock_noticed_loss(train_lock *lock) {
    // A second look, as a file system may have answered wrongly once.
    return lock && atomic_load(&lock->has_noticed) && train_lock_lost_folder(lock);
}

const char *train_lock_find_folder(const train_lock *lock, tri_arena *arena) {
    struct stat info;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", lock->folder);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || fstat(lock->folder, &info) < 0 || info.st_nlink == 0) return "lost";
    path[length] = 0;
    return lstat(path, &info) == 0 ? tri_arena_printf(arena, "in %s", path) : "lost";
}

void train_lock_release(train_lock *lock) {
    if (!lock) return;
    if (lock->has_thread) {
        pthread_mutex_lock(&lock->mutex);
        lock->ends = true;
        pthread_cond_signal(&lock->end);
        pthread_mutex_unlock(&lock->mutex);
        pthread_join(lock->thread, NULL);
    }
    pthread_cond_destroy(&lock->end);
    pthread_mutex_destroy(&lock->mutex);
    // Removes the file while the lock is held, so that it cannot be a new file of another process.
    if (!atomic_load(&lock->is_lost) && is_at_its_path(lock)) tri_os.unlink(lock->path);
    tri_os.close(lock->fd);
    if (lock->folder >= 0) tri_os.close(lock->folder);
    free(lock);
}

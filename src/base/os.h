// The operating system behind a table of functions: clock, files, sockets. A test can replace the
// functions, so that time is simulated and every failure can be tried. If the table has a function,
// for instance `open`, code calls tri_os.open(...) and never the C library's function.
#ifndef TRIREME_BASE_OS_H
#define TRIREME_BASE_OS_H

#include "base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

// Each function has the meaning, return value and errno of the system's function of the same name.
// If the system has none of that name, a comment tells what the function does.
typedef struct tri_os_functions {
    // The time of CLOCK_MONOTONIC, without the time for which tri_os_suspend has suspended this
    // process.
    int64_t (*monotonic_ns)(void);
    int64_t (*realtime_ns)(void);          // the time of CLOCK_REALTIME
    void (*sleep_ns)(int64_t duration_ns); // sleeps for the whole time, also if signals interrupt
    int (*open)(const char *path, int flags, mode_t mode);
    int (*access)(const char *path, int mode);
    int (*close)(int fd);
    ssize_t (*read)(int fd, void *data, size_t size);
    ssize_t (*pread)(int fd, void *data, size_t size, off_t offset);
    ssize_t (*write)(int fd, const void *data, size_t size);
    ssize_t (*pwrite)(int fd, const void *data, size_t size, off_t offset);
    int (*fsync)(int fd);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t offset, off_t size); // exists only on Linux
    int (*rename)(const char *from, const char *to);
    int (*renameat2)(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags); // exists only on Linux
    int (*symlink)(const char *target, const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    int (*unlink)(const char *path);
    int (*rmdir)(const char *path);
    // Takes a write lock on the whole file, without waiting: fcntl(F_OFD_SETLK).
    int (*lock)(int fd);
    int (*touch)(int fd); // sets the file's time of modification to now: futimens
    int (*socket)(int domain, int type, int protocol);
    int (*connect)(int fd, const struct sockaddr *address, socklen_t size);
    int (*accept)(int fd, struct sockaddr *address, socklen_t *size);
    ssize_t (*send)(int fd, const void *data, size_t size, int flags);
    ssize_t (*recv)(int fd, void *data, size_t size, int flags);
} tri_os_functions;

// The functions in use: the system's, unless a test has replaced some of them to provoke failures.
extern tri_os_functions tri_os;
extern const tri_os_functions tri_os_system;

// Suspends all threads of this process until it gets SIGCONT, as the default action of SIGTSTP
// (Ctrl-Z) does, and stops the clock meanwhile: a time limit must not pass for a run that the user
// has suspended. May be called by a signal handler.
void tri_os_suspend(void);
// Calls tri_os_suspend for SIGTSTP, unless this process was told to ignore that signal.
void tri_os_handle_suspension(void);
// Returns the seconds since an arbitrary start, from tri_os.monotonic_ns.
double tri_os_seconds(void);
// Counts the CPUs on which this process may run; at least 1. How many it may use at a time is
// another question (tri_cores).
int tri_os_cpus(void);

// Two functions that write all bytes: if the system writes fewer, or a signal interrupts it
// (EINTR), they write the rest. `path`: the file's name, for the message of a failure.
tri_status tri_os_write_all(int fd, const void *data, size_t size, const char *path);
tri_status tri_os_pwrite_all(int fd, const void *data, size_t size, int64_t offset,
                             const char *path);
// Reads `size` bytes, or fewer where the file ends before that, and returns how many; -1: a read
// failed, as errno says.
ssize_t tri_os_pread_most(int fd, void *data, size_t size, int64_t offset);
// Reads exactly `size` bytes. TRI_CORRUPT: the file ends before that.
tri_status tri_os_pread_all(int fd, void *data, size_t size, int64_t offset, const char *path);
// Looks at the first `size` bytes of what a user gives us to read, a file or a part of one.
// TRI_BAD_INPUT: it is only a pointer, which Git LFS or git-annex leaves where the content was not
// fetched; the message says how to fetch it. Without this check, a pointer would be read as damaged
// data, or as text. `path`: its name, for the message.
tri_status tri_os_check_pointer(const char *path, const void *head, size_t size);
// Opens a file that a user gives us to read; *fd belongs to the caller. TRI_BAD_INPUT: it is a
// pointer (tri_os_check_pointer).
tri_status tri_os_open_input(const char *path, int *fd);
// Reads a whole file of at most `max_bytes`; a pointer is refused as by tri_os_open_input. *out is
// malloc'ed, ends with a 0 byte that *size does not count, and belongs to the caller.
// TRI_BAD_INPUT: the file is too large, or may not be read.
tri_status tri_os_read_file(const char *path, size_t max_bytes, char **out, size_t *size);
// Rejects everything that is not a plain file, because a pipe or a device could block for ever when
// it is opened or read. TRI_BAD_INPUT: `path` is a pipe, device, socket or folder. A missing file
// is not rejected.
tri_status tri_os_check_file(const char *path);
// A file that is written under a temporary name in the same folder, and renamed to `path` when it
// is complete and synced. The temporary name is random, so that no other user can create it first,
// and an existing file or symbolic link of that name is never opened. TRI_BAD_INPUT: `path` is a
// device, pipe, socket or folder, which is left as it is.
typedef struct tri_os_replacement {
    const char *path; // must stay valid until tri_os_replacement_end
    int fd;
    // True: the file is of no use after a crash of the system, so nothing is synced.
    // tri_os_replacement_begin sets false, which the caller may change.
    bool is_fleeting;
    char temporary[PATH_MAX];
} tri_os_replacement;
tri_status tri_os_replacement_begin(const char *path, tri_os_replacement *out);
// Ends a replacement. `written` is the result of writing to `fd`. If it is TRI_OK, renames the
// temporary file to `path`, synced so that it survives a crash (unless is_fleeting is set); if not,
// removes the temporary file. Returns the first failure.
tri_status tri_os_replacement_end(tri_os_replacement *replacement, tri_status written);
// Writes a whole file in one call, by tri_os_replacement: readers see the old file or the new one,
// never a half-written one.
tri_status tri_os_replace_file(const char *path, const void *data, size_t size);
// As tri_os_replace_file, but syncs nothing, which is faster: for files that need not survive a
// crash of the system.
tri_status tri_os_replace_fleeting(const char *path, const void *data, size_t size);
// True if `entry` is the name of a temporary file of tri_os_replacement_begin.
bool tri_os_is_temporary(const char *entry);
// True if `entry` is the name of a temporary file for `name`. A killed process may have left it,
// and the next process removes it.
bool tri_os_is_temporary_of(const char *entry, const char *name);
// Opens a file as open(2) does, and creates the file if it does not exist. Fails if `path` is a
// symbolic link to a file that does not exist, because another user may have put the link there.
// `flags` are given without O_CREAT.
int tri_os_open_or_create(const char *path, int flags, mode_t mode);
// Makes a file without a name in the folder for temporary files ($TMPDIR, else /tmp); it is gone
// once it is closed. *fd belongs to the caller.
tri_status tri_os_open_unnamed(int *fd);
// Returns random bits for the name of a new file. Other users cannot predict them (except early
// during a boot), and so cannot create a file of that name first.
uint64_t tri_os_random(void);
// Makes a folder and its parents (mkdir -p), synced so that the folders survive a crash. Folders
// that exist already are no failure.
tri_status tri_os_make_folders(const char *path);
// Syncs a folder, so that a rename inside it survives a crash.
tri_status tri_os_sync_folder(const char *path);
// Removes a folder and everything in it. Symbolic links are removed and never followed, even if
// `path` is one, because the files behind them are not ours.
tri_status tri_os_remove_tree(const char *path);
// Whether something has the name `path`, also a link that leads nowhere, so that opening it reports
// what is wrong with it. Fails if that cannot be found out, for example for lack of permission.
tri_status tri_os_exists(const char *path, bool *out);
// Whether both paths lead to one file, which exists, by whatever names and links.
bool tri_os_is_same_file(const char *a, const char *b);
// Makes the failure of a system call from errno: TRI_NO_SPACE, TRI_NOT_FOUND, TRI_BAD_INPUT (not
// permitted, or no usable path) or TRI_IO, with the message "PATH: cannot VERB: reason".
tri_status tri_os_fail(const char *verb, const char *path);

#endif

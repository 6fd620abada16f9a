// A run folder belongs to one living process at a time: the file .lock in it, held by rank 0.
//
// What is promised, from the strongest to the weakest:
// - On one host, and across hosts where the file system's locks reach them (NFS, GPFS, Lustre
//   mounted with flock, CephFS): the kernel's lock (fcntl, F_OFD_SETLK) decides. It ends with the
//   process, so what a killed process leaves never stands in the way.
// - Where locks do not reach other hosts (Lustre with localflock), the holder's sign of life
//   decides between them: it touches the file every TRI_LOCK_BEAT_MS. Who finds the record of
//   another host watches for TRI_LOCK_WATCH_MS; a file that is touched meanwhile is held, one that
//   is not is nobody's.
// - Where there are no locks at all (Lustre without flock), the file is created with O_EXCL; its
//   record names a process (pid, time of its start) of a machine (boot id, PID namespace), which is
//   looked up on that machine and watched from others.
// A holder that is cut off from the file system for longer than TRI_LOCK_WATCH_MS while a second
// one starts on another host is told so by the next train_lock_check, and ends its run. Only where
// locks do not reach that host can both have written meanwhile.
#ifndef TRIREME_TRAIN_LOCK_H
#define TRIREME_TRAIN_LOCK_H

#include "base/status.h"

#include <stdbool.h>

typedef struct train_lock train_lock;

// Takes the folder for this process. *held: another process has it, TRI_BAD_INPUT with a line that
// names its pid and host. Other failures: the file cannot be made or read. What a dead holder left
// is replaced.
tri_status train_lock_take(const char *run_dir, train_lock **out, bool *held);
// TRI_IO: another process has taken the folder meanwhile. NULL: nothing to check.
tri_status train_lock_check(train_lock *lock);
// Gives it back, and removes the file. NULL is allowed.
void train_lock_release(train_lock *lock);

#endif

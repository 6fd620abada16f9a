// The lock of a run folder, which belongs to one living process at a time, because two that write
// the same checkpoints would destroy both runs. Rank 0 holds the file .lock in it.
//
// The guarantees, from the strongest to the weakest:
// - On one host, and across hosts where the file system's locks reach them (NFS, GPFS, Lustre
//   mounted with flock, CephFS): the kernel's lock (fcntl, F_OFD_SETLK) decides. It ends with the
//   process, so that a killed process never blocks the folder.
// - Where locks do not reach other hosts (Lustre with localflock), a heartbeat decides: the holder
//   touches the file every TRI_LOCK_BEAT_MS. A process that finds a record of another host watches
//   the file for TRI_LOCK_WATCH_MS; if it is touched in that time it is held, otherwise it is free.
// - Where there are no locks at all (Lustre without flock), the file is created with O_EXCL; its
//   record names a process (pid, time of its start) of a machine (boot id, PID namespace), which is
//   looked up on that machine and watched from others.
// If a holder is cut off from the file system for longer than TRI_LOCK_WATCH_MS and another process
// takes the folder on another host, the holder's next train_lock_check fails, and its run ends.
// Only where locks do not reach that host can both have written in between.
#ifndef TRIREME_TRAIN_LOCK_H
#define TRIREME_TRAIN_LOCK_H

#include "base/status.h"

#include <stdbool.h>

typedef struct train_lock train_lock;

// Locks the folder for this process; a dead holder's file is replaced. *held: another process has
// the folder, and the result is TRI_BAD_INPUT with its pid and host. Other failures: the file
// cannot be created or read.
tri_status train_lock_take(const char *run_dir, train_lock **out, bool *held);
// Checks that the folder is still this process's; called before it writes there, because two runs
// in one folder would mix their files. TRI_IO: another process has taken the folder over. NULL is
// allowed: there is nothing to check.
tri_status train_lock_check(train_lock *lock);
// Releases the lock and removes its file. NULL is allowed.
void train_lock_release(train_lock *lock);

#endif

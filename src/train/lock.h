// The lock of a run folder. The folder belongs to one living process at a time, because two
// processes that write the same checkpoints would destroy both runs. Rank 0 holds the lock, which
// is the file .lock in the folder.
//
// The guarantees, from the strongest to the weakest:
// - On one host, and on several hosts whose file system has locks that reach them all (NFS, GPFS,
//   Lustre mounted with flock, CephFS): the kernel's lock (fcntl, F_OFD_SETLK) decides. It ends
//   with the process, so that a killed process never blocks the folder.
// - Where locks do not reach other hosts (Lustre with localflock), a heartbeat decides: the holder
//   touches the file every TRI_LOCK_BEAT_MS. A process that finds the record of another host
//   watches the file for TRI_LOCK_WATCH_MS. If the file is touched in that time, the lock is held;
//   if not, it is free.
// - Where there are no locks at all (Lustre without flock), the file is created with O_EXCL. Its
//   record names a process (pid, time of its start) on a host (boot id, PID namespace). On that
//   host the process is looked up; other hosts watch the file.
//
// If a holder cannot reach the file system for longer than TRI_LOCK_WATCH_MS, a process on another
// host may take the folder. The holder's next train_lock_check then fails, and its run ends. If
// locks do not reach the other host, both processes may have written in the folder until then.
#ifndef TRIREME_TRAIN_LOCK_H
#define TRIREME_TRAIN_LOCK_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct train_lock train_lock;

// Locks the folder for this process; the file of a dead holder is replaced. *held: another process
// has the folder; then the result is TRI_BAD_INPUT, and the message names its pid and host. Any
// other failure: the file cannot be created or read.
tri_status train_lock_take(const char *run_dir, train_lock **out, bool *held);
// Checks that the folder still belongs to this process. It is called before each write there,
// because two runs in one folder would mix their files. TRI_IO: another process has taken over the
// folder. `lock` NULL: there is nothing to check.
tri_status train_lock_check(train_lock *lock);
// Whether the folder is not at its path any more: it was removed, or renamed. A file system that
// does not answer tells nothing. `lock` NULL: it is not known.
bool train_lock_lost_folder(train_lock *lock);
// Whether that was so when this process last touched the lock's file, which costs nothing to ask.
bool train_lock_noticed_loss(train_lock *lock);
// Such a folder's place now, as text: "in PATH", or "lost".
const char *train_lock_find_folder(const train_lock *lock, tri_arena *arena);
// Releases the lock and removes its file. NULL allowed.
void train_lock_release(train_lock *lock);

#endif

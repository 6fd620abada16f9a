// Simulates a disk on which only synced data are sure to survive a crash of the machine: it
// executes recorded system calls (crash_log.h), and shows what may be found on it after a crash.
//
// What was written to a file since it was last synced may be on the disk after a crash wholly, by
// half, or not at all; or the file has only its new size. If a folder was not synced, any of the
// changes of its entries may be left. A rename is one change. Of two changes of one name, the
// second is left only with the first. A process that syncs a file makes only its own writes safe,
// not those of other processes, because these may run on other machines.
#ifndef TESTS_SUPPORT_CRASH_DISK_H
#define TESTS_SUPPORT_CRASH_DISK_H

#include "support/crash_log.h"

typedef struct crash_disk crash_disk;

crash_disk *crash_disk_new(void);
void crash_disk_free(crash_disk *disk);
// Applies a recorded call. Its data are not copied, so they must stay valid while `disk` is used.
void crash_disk_apply(crash_disk *disk, const crash_call *call);

// Counts the states in which a crash now may leave the disk. State 0 is what programs saw before
// the crash. Several states may be equal.
int crash_disk_states(crash_disk *disk);
// A hash of a state; equal states have equal hashes.
uint64_t crash_disk_hash(crash_disk *disk, int state);
// Makes the files and folders of a state in the empty folder `root`.
void crash_disk_show(crash_disk *disk, int state, const char *root);
// Describes a state, for messages.
const char *crash_disk_tell(crash_disk *disk, int state);

#endif

// A disk on which nothing is certain but what was synced: it takes the calls of a log, and shows
// what may be found on it after the machine has stopped.
//
// Of a file that was not synced since it was written: nothing of that, all, only the size, or a
// part. Of a folder that was not synced: any of the changes of its entries, a rename being one
// change; of two changes of the same name the second only with the first. A process with the file
// open on another machine syncs only what it wrote itself.
#ifndef TESTS_SUPPORT_CRASH_DISK_H
#define TESTS_SUPPORT_CRASH_DISK_H

#include "support/crash_log.h"

typedef struct crash_disk crash_disk;

crash_disk *crash_disk_new(void);
void crash_disk_free(crash_disk *disk);
// The data of the call are borrowed.
void crash_disk_apply(crash_disk *disk, const crash_call *call);

// The states that a crash now may leave, by number: 0 is what programs saw before it. They may be
// equal.
int crash_disk_states(crash_disk *disk);
// Equal of equal states.
uint64_t crash_disk_hash(crash_disk *disk, int state);
// Puts a state into the empty folder `root`.
void crash_disk_show(crash_disk *disk, int state, const char *root);
// In words, for messages.
const char *crash_disk_tell(crash_disk *disk, int state);

#endif

// The thread of a family (all communicators split from one), which advances operations while the
// caller computes, so that communication overlaps with computing.
#ifndef TRIREME_COMM_PROGRESS_THREAD_H
#define TRIREME_COMM_PROGRESS_THREAD_H

#include "comm/progress/state.h"

tri_status progress_thread_start(progress_family *family); // TRI_NO_MEMORY: no thread can be made
void progress_thread_stop(progress_family *family); // does nothing if the family has no thread
void progress_thread_wake(progress_family *family);

#endif

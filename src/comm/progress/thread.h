// The thread that advances operations while the caller computes.
#ifndef TRIREME_COMM_PROGRESS_THREAD_H
#define TRIREME_COMM_PROGRESS_THREAD_H

#include "comm/progress/state.h"

tri_status progress_thread_start(progress_family *family); // TRI_NO_MEMORY: there is none to be had
void progress_thread_stop(progress_family *family);        // harmless when there is none
void progress_thread_wake(progress_family *family);

#endif

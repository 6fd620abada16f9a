// Makes, splits and closes communicators on the progress base.
#ifndef TRIREME_COMM_PROGRESS_COMMUNICATOR_H
#define TRIREME_COMM_PROGRESS_COMMUNICATOR_H

#include "comm/progress/failure.h"
#include "comm/progress/operation.h"
#include "comm/progress/state.h"

// Fills a family whose memory is zero so far. The end of the family closes `ledger`. A failure of
// the family is written to `failure`, which all ranks see if it lies in shared memory; NULL: only
// this process sees failures.
void progress_family_init(progress_family *family, const progress_backend *backend,
                          tri_ledger *ledger, progress_failure *failure);
// Ends a family without communicators: stops its thread, and then has the backend close it.
void progress_family_end(progress_family *family);

// Fills a communicator that is zero so far, on a family; job_rank[size] is copied. TRI_NO_MEMORY:
// nothing is left to free. `backend`: the communicator's functions, PROGRESS_SLOTS among them.
tri_status progress_comm_init(progress_comm *comm, const tri_comm_backend *backend,
                              progress_family *family, int rank, int size, const int *job_rank);
// Adds a communicator to its family, whose thread advances it from now on. Not part of
// progress_comm_init, because the backend still fills in its own. progress_comm_end frees what
// progress_comm_init made of a communicator that was not added.
void progress_comm_add(progress_comm *comm);
void progress_comm_end(progress_comm *comm);

// Functions of tri_comm_backend, which every backend on the progress base uses.
tri_status progress_split(tri_comm *comm, int colour, int key, tri_comm **out);
void progress_close(tri_comm *comm); // the last one of a family ends the family

// The functions of tri_comm_backend that are the same for all communicators on the progress base:
// all but `name`, `abilities`, `scratch_bytes`, `alloc`, `free` and `ledger_of`.
#define PROGRESS_SLOTS                                                                             \
    .close = progress_close, .split = progress_split, .start = progress_start,                     \
    .test = progress_test, .wait = progress_wait, .notify = progress_notify,                       \
    .abort = progress_abort, .failed = progress_failed, .family = progress_family_of

#endif

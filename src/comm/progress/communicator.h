// Makes, splits and closes communicators on the progress base, the common part of communicators
// whose operations advance while the caller does other work (state.h).
#ifndef TRIREME_COMM_PROGRESS_COMMUNICATOR_H
#define TRIREME_COMM_PROGRESS_COMMUNICATOR_H

#include "comm/progress/failure.h"
#include "comm/progress/operation.h"
#include "comm/progress/state.h"

// Initialises a family (all communicators that will be split from one) whose memory is zero.
// `ledger`, the record of this rank's latest actions, is closed when the family ends. A failure of
// the family is written to `failure`, which all ranks see if it lies in shared memory; NULL: only
// this process sees failures.
void progress_family_init(progress_family *family, const progress_backend *backend,
                          tri_ledger *ledger, progress_failure *failure);
// Ends a family (all communicators split from one) that has no communicators left: stops its
// thread, then lets the backend close it.
void progress_family_end(progress_family *family);

// Initialises a communicator whose memory is zero, and which belongs to a family (all communicators
// split from one); job_rank[size] is copied. TRI_NO_MEMORY: nothing has to be freed. `backend`: the
// communicator's functions, with PROGRESS_SLOTS among them.
tri_status progress_comm_init(progress_comm *comm, const tri_comm_backend *backend,
                              progress_family *family, int rank, int size, const int *job_rank);
// Adds a communicator to its family (all communicators split from one). From now on the family's
// thread advances its operations too. This is apart from progress_comm_init because the backend
// initialises its own members in between. progress_comm_end undoes progress_comm_init, for a
// backend that fails before it adds the communicator.
void progress_comm_add(progress_comm *comm);
void progress_comm_end(progress_comm *comm);

// Functions of tri_comm_backend that every backend on the progress base uses.
tri_status progress_split(tri_comm *comm, int colour, int key, tri_comm **out);
// Closes a communicator. With the last one of a family (all that were split from one), also ends
// the family.
void progress_close(tri_comm *comm);

// The functions of tri_comm_backend that are the same for all communicators on the progress base.
// The backend supplies the others: `name`, `abilities`, `scratch_bytes`, `alloc`, `free` and
// `ledger_of`.
#define PROGRESS_SLOTS                                                                             \
    .close = progress_close, .split = progress_split, .start = progress_start,                     \
    .test = progress_test, .wait = progress_wait, .notify = progress_notify,                       \
    .abort = progress_abort, .failed = progress_failed, .family = progress_family_of

#endif

// A family is all communicators that were split from one. Families can be linked: tri_comm_link
// links two. The first failure of any communicator ends all communicators of its family and of the
// families that are linked with it. So all ranks report the same cause, and none waits for ever.
#ifndef TRIREME_COMM_PROGRESS_FAILURE_H
#define TRIREME_COMM_PROGRESS_FAILURE_H

#include "comm/progress/state.h"

// Records a failure for all ranks of the family and wakes them. Only the first failure counts,
// because later ones mostly follow from it.
void progress_fail(progress_comm *comm, tri_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Records a failure of which another rank has told, with that rank's text, so that all ranks report
// the same cause.
void progress_take_failure(progress_family *family, tri_status status, const char *text);
static inline bool progress_has_failed(const progress_comm *comm) {
    const progress_failure *failure = comm->family->failure;
    return atomic_load_explicit(&failure->state, memory_order_acquire) != PROGRESS_FAILURE_NONE;
}
// Returns the recorded status and sets the error message to the recorded text. To be called only if
// progress_has_failed.
tri_status progress_failure_status(progress_comm *comm);
// If the family (all communicators split from one) has failed, makes the families that are linked
// with it fail in this process with the same cause. This is needed where another process has
// recorded the failure in shared memory.
void progress_spread_failure(progress_family *family);
void progress_unlink(progress_family *family); // removes the family from the linked families

// Tells the other ranks of this family, and of the families linked with it, for which rank this one
// waits. A rank that waits for this one can then follow the chain of waiting ranks, and name the
// rank at its end in messages.
void progress_tell_awaited(progress_family *family, int job_rank);
// Tells the same ranks as progress_tell_awaited that this rank waits for none any more.
void progress_clear_awaited(progress_family *family);

// Functions of tri_comm_backend that every backend on the progress base uses.
tri_status progress_failed(tri_comm *comm);
void progress_abort(tri_comm *comm, const char *why);
struct progress_family *progress_family_of(tri_comm *comm);

#endif

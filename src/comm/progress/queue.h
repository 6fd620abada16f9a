// Keeps a communicator's operations in a queue, in the order in which they were started, and gives
// one thread at a time the right to advance them.
//
// Only the thread that has set the communicator's flag `executing` may advance the operation at the
// head of the queue. Threads that wait for operations take turns at this; while none waits, the
// thread of the communicator's family (all communicators split from one) does it. Calls of `start`
// and `test` do one step each. All steps are bounded.
#ifndef TRIREME_COMM_PROGRESS_QUEUE_H
#define TRIREME_COMM_PROGRESS_QUEUE_H

#include "comm/progress/state.h"

// Adds operations to the end of the queue. The caller holds `lock`. Fails only with TRI_NO_MEMORY.
tri_status progress_push(progress_comm *comm, const tri_comm_op *ops, int count);
// Does one bounded step of the operation at the head of the queue. The caller has set `executing`
// (progress_try_execute), so that no other thread does the same.
progress_result progress_advance(progress_comm *comm);
// Sets `executing`. False: another thread has set it, so the caller must not advance operations.
bool progress_try_execute(progress_comm *comm);
void progress_end_execute(progress_comm *comm);
// As progress_end_execute, for a caller that does not go on to wait for its operation. It also
// wakes the threads of this process that went to sleep because the caller was executing: nobody
// else would wake them.
void progress_end_execute_and_wake(progress_comm *comm);
// True when all operations of an operation group (what one call of `start` began) are done.
// `ticket`: the number of the group's last operation. The caller holds `lock` or has set
// `executing`.
bool progress_group_done(const progress_comm *comm, uint64_t ticket);
// The first comm->messages operations of the queue are sends and receives that advance side by
// side. Returns one of them; index 0 is the first.
progress_item *progress_message(const progress_comm *comm, int index);
// Calls the function `wake` that the latest progress_notify was given. Calls it only once for each
// progress_notify, and does nothing if that has happened.
void progress_call_listener(progress_comm *comm);

#endif

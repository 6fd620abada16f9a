// The operations of a communicator in order, and the right to advance them.
//
// Only the thread that has set `executing` may advance the operation at the head of the queue. That
// is a thread that waits for the operation, or the family's thread while no thread waits. Both
// advance it in bounded steps.
#ifndef TRIREME_COMM_PROGRESS_QUEUE_H
#define TRIREME_COMM_PROGRESS_QUEUE_H

#include "comm/progress/state.h"

// Adds operations to the end of the queue. The caller holds `lock`. TRI_NO_MEMORY.
tri_status progress_push(progress_comm *comm, const tri_comm_op *ops, int count);
// Does one bounded step of the operation at the head. The caller has set `executing`.
progress_result progress_advance(progress_comm *comm);
bool progress_try_execute(progress_comm *comm);
void progress_end_execute(progress_comm *comm);
// Gives the right to execute back as progress_end_execute does, for a caller that does not wait
// itself: also wakes a thread of this process that went to sleep because it found the caller
// executing, and would sleep on.
void progress_end_execute_and_wake(progress_comm *comm);
// True when all operations of the ticket's group are done. The caller holds `lock` or has set
// `executing`.
bool progress_group_done(const progress_comm *comm, uint64_t ticket);
// Finds operation `index` of the sends and receives at the head that advance side by side.
progress_item *progress_message(const progress_comm *comm, int index);
// Calls the listener, if progress_notify has asked for a call and none was made since.
void progress_call_listener(progress_comm *comm);

#endif

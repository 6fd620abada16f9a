// The functions of tri_comm_backend that start operations and wait for them, for all communicators
// on the progress base (state.h).
#ifndef TRIREME_COMM_PROGRESS_OPERATION_H
#define TRIREME_COMM_PROGRESS_OPERATION_H

#include "comm/progress/state.h"

tri_status progress_start(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
bool progress_test(tri_comm *comm, tri_comm_ticket ticket);
tri_status progress_wait(tri_comm *comm, tri_comm_ticket ticket);
void progress_notify(tri_comm *comm, void (*wake)(void *context), void *context, bool waits);

#endif

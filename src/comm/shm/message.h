// Carries out a send or receive over shared memory as a state machine: each call does one step.
#ifndef TRIREME_COMM_SHM_MESSAGE_H
#define TRIREME_COMM_SHM_MESSAGE_H

#include "comm/shm/state.h"

// Does one bounded step of a send or receive, so that its caller can continue with other
// operations. Sets item->done after the last step.
progress_result shm_message_advance(shm_comm *comm, progress_item *item);

#endif

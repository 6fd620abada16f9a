// A send or receive as a state machine, each call of which does one bounded step.
#ifndef TRIREME_COMM_SHM_MESSAGE_H
#define TRIREME_COMM_SHM_MESSAGE_H

#include "comm/shm/state.h"

// Does one bounded step of a send or receive, so that its caller can go on with other operations;
// sets item->done at the end.
progress_result shm_message_advance(shm_comm *comm, progress_item *item);

#endif

// Sends and receives.
#ifndef TRIREME_COMM_MESSAGE_POST_H
#define TRIREME_COMM_MESSAGE_POST_H

#include "comm/message/state.h"

// Does one bounded step of a send or receive; sets item->done at the end.
progress_result message_post_advance(message_comm *comm, progress_item *item);

#endif

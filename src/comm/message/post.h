// Carries out the operations SEND and RECV by messages of a transport.
#ifndef TRIREME_COMM_MESSAGE_POST_H
#define TRIREME_COMM_MESSAGE_POST_H

#include "comm/message/state.h"

// Does one bounded step of a send or receive, so that its caller can continue with other
// operations. Sets item->done after the last step.
progress_result message_post_advance(message_comm *comm, progress_item *item);

#endif

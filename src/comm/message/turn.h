// Calls of the transport: whose turn it is, how a thread sleeps until something has arrived, and
// notices between the ranks of a family.
#ifndef TRIREME_COMM_MESSAGE_TURN_H
#define TRIREME_COMM_MESSAGE_TURN_H

#include "comm/message/state.h"

void message_turn_begin(message_family *family);
void message_turn_end(message_family *family); // also tells others of a failure that is new
// Moves messages and reads notices. Called with the turn. True if a request ended.
bool message_progress(message_family *family);

tri_status message_turn_init(message_family *family);
void message_turn_destroy(message_family *family);
// Begins to listen for notices. Called with the turn.
void message_listen(message_family *family);
// Tells the ranks of a communicator that this one leaves it, so that they do not take it for lost.
// Called with the turn.
void message_tell_left(message_comm *comm);
// Ends all requests after a failure, once the other ranks know of it or a moment is over: told
// ranks report the cause.
void message_stop(message_family *family);
// Waits until all ranks of the family have called it, so that none closes while others still send;
// false: some time is over before.
bool message_say_goodbye(message_family *family);
// Moves messages until `count` requests are over. False: they failed, or the time is over.
bool message_await(const tri_transport *transport, tri_transport_end *end,
                   const tri_transport_request *requests, int count, int64_t until_ns);

// The functions with which threads sleep and wake, for the progress base.
uint32_t message_sleep_begin(progress_family *family);
void message_sleep(progress_family *family, uint32_t seen, int timeout_ms);
void message_sleep_end(progress_family *family);
void message_wake(progress_family *family);
void message_wake_all(progress_family *family);
void message_beat(progress_family *family);
const char *message_loss(progress_comm *comm, int r);

#endif

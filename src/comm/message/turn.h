// Calls the transport, which carries messages between ranks. All communicators that were split from
// one (a family) share it; the family's turn is the right to call it, and one thread has it at a
// time. These functions also let threads sleep until something arrives, and send notices. A notice
// is a message that belongs to no operation: it tells of a failure, or that a rank leaves.
#ifndef TRIREME_COMM_MESSAGE_TURN_H
#define TRIREME_COMM_MESSAGE_TURN_H

#include "comm/message/state.h"

void message_turn_begin(message_family *family);
// Gives the turn back to other threads. Before that it tells the other ranks of a new failure.
void message_turn_end(message_family *family);
// Moves messages and reads notices. The caller has the turn. True if a request (a send or receive)
// has ended.
bool message_progress(message_family *family);

tri_status message_turn_init(message_family *family);
void message_turn_destroy(message_family *family);
// Begins to receive notices. The caller has the turn.
void message_listen(message_family *family);
// Tells the other ranks of a communicator that this rank leaves it, so that they do not think it
// was lost. The caller has the turn.
void message_tell_left(message_comm *comm);
// Ends all requests (sends and receives of the transport) after a failure. Before that it waits a
// moment for the other ranks to learn of the failure, so that they can report its cause.
void message_stop(message_family *family);
// Waits until all ranks of the family have called this function, so that no rank closes its
// connections while others still send. False: not all ranks called it within the time limit.
bool message_say_goodbye(message_family *family);
// Lets the transport send and receive until `count` requests are complete. False: one of them
// failed, or the time until_ns has come.
bool message_await(const tri_transport *transport, tri_transport_end *end,
                   const tri_transport_request *requests, int count, int64_t until_ns);

// The functions sleep_begin, sleep, sleep_end, wake and wake_all of progress_backend, by which a
// thread sleeps until a message arrives or another thread wakes it.
uint32_t message_sleep_begin(progress_family *family);
void message_sleep(progress_family *family, uint32_t seen, int timeout_ms);
void message_sleep_end(progress_family *family);
void message_wake(progress_family *family);
void message_wake_all(progress_family *family);
// The functions beat and loss of progress_backend. message_beat calls message_progress once, so
// that messages advance even if no thread waits for them. message_loss tells what happened to rank
// r of the communicator; NULL: the rank may still be running.
void message_beat(progress_family *family);
const char *message_loss(progress_comm *comm, int r);

#endif

// A transport for tests: unix sockets between processes of one host.
#ifndef TESTS_SUPPORT_SOCKET_TRANSPORT_H
#define TESTS_SUPPORT_SOCKET_TRANSPORT_H

#include "comm/message/transport.h"

extern const tri_transport socket_transport;
// As socket_transport, but a send is done only once its message was received, as with large
// messages in most networks.
extern const tri_transport socket_transport_strict;
// As socket_transport, but it has no file descriptor on which a thread could sleep with poll.
extern const tri_transport socket_transport_without_events;

#endif

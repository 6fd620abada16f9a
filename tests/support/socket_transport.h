// A transport for tests: unix sockets between processes of one host.
#ifndef TESTS_SUPPORT_SOCKET_TRANSPORT_H
#define TESTS_SUPPORT_SOCKET_TRANSPORT_H

#include "comm/message/transport.h"

extern const tri_transport socket_transport;
// The same, but a send ends when it was received, as large messages of most networks do.
extern const tri_transport socket_transport_strict;
// The same without a descriptor to wait for.
extern const tri_transport socket_transport_without_events;

#endif

// How the ranks of a store reach rank 0. There is one transport, an abstract unix socket for ranks
// of one host.
#ifndef TRIREME_RENDEZVOUS_STORE_TRANSPORT_H
#define TRIREME_RENDEZVOUS_STORE_TRANSPORT_H

#include "rendezvous/rendezvous.h"

typedef struct store_transport {
    const char *name;
    // Rank 0's listening socket, non-blocking. TRI_NETWORK with errno EADDRINUSE while another
    // process of this user has the job's address; TRI_BAD_INPUT while one of another user has it.
    tri_status (*listen)(const tri_identity *identity, int *fd);
    // A blocking socket to rank 0. TRI_NOT_FOUND while rank 0 does not listen.
    tri_status (*connect)(const tri_identity *identity, int *fd);
    // Both ends call it before they send or read: TRI_BAD_INPUT if the other end is another user's.
    tri_status (*admit)(int fd);
} store_transport;

extern const store_transport store_unix;

// TRI_UNSUPPORTED: no transport reaches all the ranks.
tri_status store_transport_choose(const tri_identity *identity, const store_transport **out);

#endif

// How the ranks of a store reach rank 0. Ranks of one host use an abstract unix socket; between
// hosts it will be TCP with a token that is proved before anything else is read.
#ifndef TRIREME_RENDEZVOUS_STORE_TRANSPORT_H
#define TRIREME_RENDEZVOUS_STORE_TRANSPORT_H

#include "rendezvous/rendezvous.h"

typedef struct store_transport {
    const char *name;
    // Rank 0's listening socket, non-blocking. TRI_NETWORK with errno EADDRINUSE while another
    // process has the job's address; TRI_BAD_INPUT where it is another user's.
    tri_status (*listen)(const tri_identity *identity, int *fd);
    // A blocking socket to rank 0. TRI_NOT_FOUND while nobody listens.
    tri_status (*connect)(const tri_identity *identity, int *fd);
    // Both ends call it before the first byte: TRI_BAD_INPUT if the other end is not of this user.
    tri_status (*admit)(int fd);
} store_transport;

extern const store_transport store_unix;

// TRI_UNSUPPORTED when no transport here reaches all the ranks.
tri_status store_transport_choose(const tri_identity *identity, const store_transport **out);

#endif

// The store (the key-value service at which the ranks meet) over an abstract unix socket, which
// ranks on rank 0's host use: it needs no network.
#ifndef TRIREME_RENDEZVOUS_STORE_UNIX_H
#define TRIREME_RENDEZVOUS_STORE_UNIX_H

#include "rendezvous/rendezvous.h"

// Makes rank 0's listening socket, non-blocking. TRI_NETWORK with errno EADDRINUSE: another process
// of this user has the job's address. TRI_BAD_INPUT: a process of another user has it.
tri_status store_unix_listen(const tri_identity *identity, int *fd);
// Makes a blocking socket that is connected to rank 0. TRI_NOT_FOUND: rank 0 does not listen yet.
tri_status store_unix_connect(const tri_identity *identity, int *fd);
// Checks whose process is at the other end. Both ends call this before they send or read anything,
// because any user can listen at an abstract address. TRI_BAD_INPUT: the process belongs to another
// user.
tri_status store_unix_admit(int fd);

#endif

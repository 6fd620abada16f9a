// Strangers: TCP connections to the server of the store (the key-value service at which the ranks
// meet) that have not proved yet that they have the user's token. Anybody on the network can be
// one. So there is room for a fixed number only, each has a deadline, and nothing is allocated or
// parsed for one. The server's thread calls these functions.
#ifndef TRIREME_RENDEZVOUS_STORE_STRANGERS_H
#define TRIREME_RENDEZVOUS_STORE_STRANGERS_H

#include "base/limits.h"
#include "rendezvous/greeting.h"

#include <poll.h>

typedef struct store_stranger {
    int64_t since_ns;
    size_t got; // how many bytes of the message with the proof have arrived
    store_challenge challenge;
    union {
        store_proof proof;
        unsigned char bytes[sizeof(store_proof)];
    };
} store_stranger;

typedef struct store_strangers {
    store_gate gate; // which connections are admitted
    // The strangers' entries in the server's array for poll, TRI_MAX_STORE_STRANGERS of them. fd
    // -1: the entry is free.
    struct pollfd *fds;
    int64_t turned_away; // how many connections without the token were closed
    store_stranger at[TRI_MAX_STORE_STRANGERS];
} store_strangers;

// True if another stranger (a connection that has not proved yet that it has the token) may be
// accepted now. If there is no room, the oldest one is closed once it is TRI_STORE_CROWDED_MS old,
// so that strangers that send nothing cannot keep ranks out.
bool store_strangers_have_room(const store_strangers *s, int64_t now_ns);
// Takes over the non-blocking socket of a connection that was just accepted.
void store_strangers_take(store_strangers *s, int fd, int64_t now_ns);
// Reads what stranger `index`, a connection that has not proved yet that it has the token, has
// sent. Once the proof is complete and right, returns its socket, which then belongs to the caller;
// else -1.
int store_strangers_read(store_strangers *s, int index);
// Closes the strangers (connections without a proof of the token) whose time is over. Returns when
// this has to be called again; INT64_MAX: there is no stranger.
int64_t store_strangers_expire(store_strangers *s, int64_t now_ns);
void store_strangers_close(store_strangers *s);

#endif

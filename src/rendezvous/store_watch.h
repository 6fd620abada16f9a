// What the server of the store (the key-value service at which the ranks meet) knows of the ranks'
// health: when each has last sent a beat (a sign of life), and which ranks are lost. The functions
// open no connections and read no clock: callers pass the time as `now_ns`, so that tests can set
// it.
#ifndef TRIREME_RENDEZVOUS_STORE_WATCH_H
#define TRIREME_RENDEZVOUS_STORE_WATCH_H

#include "rendezvous/store_protocol.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct store_watched {
    bool is_watched; // the rank has opened its second connection, over which it sends beats
    bool is_lost;
    int awaited; // the rank for which this rank waits, or STORE_NO_RANK
    // heard_ns: when the latest beat came. If no other comes for silence_ns, the rank is lost.
    int64_t silence_ns, heard_ns;
    char *beat; // the value of this rank's latest beat
    size_t beat_bytes;
    store_loss loss; // set if the rank is lost
    // The rank that last asked for this rank's beats (signs of life), and the connection (client)
    // through which it asked. Until `followed_ns` the server sends each new beat of this rank
    // there.
    int follower, follower_client;
    int64_t followed_ns;
} store_watched;

typedef struct store_watch {
    store_watched *at; // by rank: what the server knows about it
    int size;
    int watched; // how many ranks have is_watched set
    int64_t looked_ns;
} store_watch;

void store_watch_create(store_watch *watch, int size);
void store_watch_destroy(store_watch *watch);
void store_watch_begin(store_watch *watch, int rank, int64_t silence_ms, int64_t now_ns);
// Stops watching a rank, because it has said that it leaves (STORE_BYE). Its silence no longer
// means that it is lost.
void store_watch_end(store_watch *watch, int rank);
// Keeps a copy of a rank's latest beat, whose value is a packed ledger: the rank's latest actions.
// False: the value is longer than TRI_LEDGER_PACKED_BYTES, or the rank for which the sender waits
// does not exist. Then the sender cannot be a rank of this job.
bool store_watch_hear(store_watch *watch, int rank, const store_head *beat, const void *value,
                      int64_t now_ns);
// Returns a rank that has been silent for too long and is not known to be lost, or STORE_NO_RANK.
// *next_ns: when to look again. Time in which the server itself did not run does not count, because
// beats may have arrived that it has not read yet.
int store_watch_look(store_watch *watch, int64_t now_ns, int64_t *next_ns);
// Records that the rank is lost, and what happened to it. False: this was known already.
bool store_watch_lose(store_watch *watch, int rank, const char *what, const char *host);
// Makes the value of the message STORE_LOST; the caller frees it.
char *store_watch_loss(const store_watch *watch, int rank, size_t *size);

#endif

// The server of the store (the key-value service at which the ranks meet) without sockets and
// clocks: it takes bytes from clients and makes bytes for clients, so that tests and fuzzers can
// run all of it without a network. A client is a connection; each rank has two. Only one thread at
// a time may call these functions. Everything that a client sends is checked before it is used.
#ifndef TRIREME_RENDEZVOUS_STORE_CORE_H
#define TRIREME_RENDEZVOUS_STORE_CORE_H

#include "rendezvous/store_protocol.h"

#include <stdbool.h>

typedef struct store_core store_core;

store_core *store_core_create(const char *job, int size);
// Tells the core that a launcher (an agent) serves, not rank 0; the core passes this on to the
// ranks.
void store_core_serve_as_agent(store_core *core);
// Tells the ranks that the server ends in good order, so that they do not think it was lost.
void store_core_say_bye(store_core *core);
// Tells the ranks that the run was started again and newer ranks replace them, so that they end.
void store_core_say_replaced(store_core *core);
void store_core_destroy(store_core *core); // NULL allowed

enum { STORE_NO_CLIENT = -1 };

// Adds a client and returns its number. After store_core_leave, another client may get this number.
// STORE_NO_CLIENT: there are too many clients.
int store_core_join(store_core *core);
void store_core_leave(store_core *core, int client);
// Handles bytes that a client has sent. False: the client broke the protocol or sent BYE. Then the
// caller sends the bytes that are left for it and calls store_core_leave.
bool store_core_input(store_core *core, int client, const void *data, size_t size, int64_t now_ns);
// store_core_output gets the bytes to send to a client (*size 0: none). store_core_sent tells how
// many of them the caller has sent, because a socket does not always take all.
const void *store_core_output(store_core *core, int client, size_t *size);
void store_core_sent(store_core *core, int client, size_t size);
// Ends the waits of clients whose time limit has passed. Returns the time of the next limit, so
// that the caller knows how long it may sleep (INT64_MAX: nobody waits).
int64_t store_core_expire(store_core *core, int64_t now_ns);
// How many connections belong to ranks that have not left and are not lost. Until all ranks have
// arrived, each rank has one connection, so until then this is the number of ranks that wait.
int store_core_rank_connections(const store_core *core);
// Returns the lowest rank that has not arrived (sent HELLO), for messages; STORE_NO_RANK: all have.
int store_core_missing(const store_core *core);
// True if ranks have refused (ended with exit code 2), the one line that tells why is decided, and
// some ranks still have to get it.
bool store_core_has_refusals(const store_core *core);

#endif

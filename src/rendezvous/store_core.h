// The store's server without sockets and clocks: it takes bytes from clients and makes bytes for
// clients. One thread at a time. All that a client sends is checked before it is used.
#ifndef TRIREME_RENDEZVOUS_STORE_CORE_H
#define TRIREME_RENDEZVOUS_STORE_CORE_H

#include "base/status.h"
#include "rendezvous/rendezvous.h"

#include <stdbool.h>

// A message is this head, the key and the value. Both ends use the byte order of their machine; the
// magic number in `kind` shows if they differ.
typedef struct store_head {
    uint32_t kind;
    uint32_t key_bytes;
    uint32_t value_bytes;
    int32_t timeout_ms; // HELLO, GET: how long to wait; REPLY: the tri_status
    int64_t number;     // ADD: the amount; HELLO: rank; REPLY to ADD: the new value
} store_head;

// The value of a HELLO. The value of its answer is an int32_t for each rank: the number of its
// host.
typedef struct store_hello {
    int32_t size;     // ranks of the job
    int32_t total_ms; // the time limit for all to arrive, of which timeout_ms is left; for messages
    tri_host_claim claim;
} store_hello;

enum {
    // Key: job, number: rank, value: a store_hello. Answered when all ranks have arrived.
    STORE_HELLO = 0x54520001,
    STORE_SET,
    STORE_GET,
    STORE_ADD,
    STORE_BYE,   // no answer; a connection that ends without it means a lost rank
    STORE_REPLY, // value: of the key, or the message of a failure
    STORE_KIND_END,
};

// TRI_BAD_INPUT unless kind and sizes are within their bounds.
tri_status store_head_check(const store_head *head);

typedef struct store_core store_core;

store_core *store_core_create(const char *job, int size);
void store_core_destroy(store_core *core); // NULL allowed

enum { STORE_NO_CLIENT = -1, STORE_NO_RANK = -1 };

// A client's number, reused after store_core_leave; STORE_NO_CLIENT: there are too many.
int store_core_join(store_core *core);
void store_core_leave(store_core *core, int client);
// Handles the bytes that a client sent. False: it broke the protocol or sent BYE; the caller
// sends what is pending and calls store_core_leave.
bool store_core_input(store_core *core, int client, const void *data, size_t size, int64_t now_ns);
// The bytes to send to a client (*size 0: none), and how many of them the caller has sent.
const void *store_core_output(store_core *core, int client, size_t *size);
void store_core_sent(store_core *core, int client, size_t size);
// Answers the waits whose time is over; returns when the next one's will be (INT64_MAX: none
// waits).
int64_t store_core_expire(store_core *core, int64_t now_ns);
// Ranks that are connected: they have sent HELLO and have not left.
int store_core_present(const store_core *core);
// The lowest rank that has not arrived; STORE_NO_RANK: all have.
int store_core_missing(const store_core *core);

#endif

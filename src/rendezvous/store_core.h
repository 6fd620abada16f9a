// The store's server without sockets and clocks: bytes of clients in, bytes for clients out. One
// thread at a time. What a client sends is not believed before it was checked.
#ifndef TRIREME_RENDEZVOUS_STORE_CORE_H
#define TRIREME_RENDEZVOUS_STORE_CORE_H

#include "base/status.h"
#include "rendezvous/rendezvous.h"

#include <stdbool.h>

// A message is this head (both ends run on like machines: the hello's magic word tells), the key
// and the value.
typedef struct store_head {
    uint32_t kind;
    uint32_t key_bytes;
    uint32_t value_bytes;
    int32_t timeout_ms; // HELLO, GET: how long to wait; REPLY: the tri_status
    int64_t number;     // ADD: the amount; HELLO: rank; REPLY to ADD: the new value
} store_head;

// The value of a HELLO.
typedef struct store_hello {
    int32_t size;     // ranks of the job
    int32_t asked_ms; // the whole time to meet, of which timeout_ms is left; for messages
} store_hello;

enum {
    STORE_HELLO =
        0x54520001, // key: job, number: rank, value: a store_hello; answered when all have come
    STORE_SET,
    STORE_GET,
    STORE_ADD,
    STORE_BYE,   // no answer; a connection that ends without it is a lost rank
    STORE_REPLY, // value: what was asked for, or the message of a failure
    STORE_KIND_END,
};

// TRI_BAD_INPUT unless kind and sizes are within their bounds.
tri_status store_head_check(const store_head *head);

typedef struct store_core store_core;

store_core *store_core_create(const char *job, int size);
void store_core_destroy(store_core *core); // NULL allowed

// A client's number, reused after store_core_leave; -1 when there are too many.
int store_core_join(store_core *core);
void store_core_leave(store_core *core, int client);
// Takes in what a client sent. False: it does not keep to the rules; send what is pending and leave
// it.
bool store_core_input(store_core *core, int client, const void *data, size_t size, int64_t now_ns);
// What waits to be sent to a client; *size 0: nothing. Then how much of it was sent.
const void *store_core_output(store_core *core, int client, size_t *size);
void store_core_sent(store_core *core, int client, size_t size);
// Answers the waits that have run out; returns when the next one will (INT64_MAX: none waits).
int64_t store_core_expire(store_core *core, int64_t now_ns);
// Ranks that have said hello and not yet left.
int store_core_present(const store_core *core);
// The lowest rank that has never come; -1: all have.
int store_core_missing(const store_core *core);

#endif

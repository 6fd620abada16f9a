// Two functions by which ranks that are not connected yet exchange what they need to connect. They
// are the functions set and get of tri_store, the key-value store by which the ranks of a job find
// each other. Tests use functions of their own instead, without a store.
#ifndef TRIREME_COMM_MEETING_H
#define TRIREME_COMM_MEETING_H

#include "rendezvous/rendezvous.h"

typedef struct tri_comm_meeting {
    void *context;
    tri_status (*set)(void *context, const char *key, const void *value, size_t size);
    // Waits until the key is set, at most timeout_ms, and copies its value. *size is the value's
    // size, even if the call fails because that is larger than `capacity`.
    tri_status (*get)(void *context, const char *key, int timeout_ms, void *value, size_t capacity,
                      size_t *size);
} tri_comm_meeting;

tri_comm_meeting tri_comm_meeting_of(tri_store *store);

#endif

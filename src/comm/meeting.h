// Two functions by which ranks that are not connected yet exchange what they need to connect. They
// are set and get of tri_store, or functions of a test, so that a backend does not depend on the
// store.
#ifndef TRIREME_COMM_MEETING_H
#define TRIREME_COMM_MEETING_H

#include "rendezvous/rendezvous.h"

typedef struct tri_comm_meeting {
    void *context;
    tri_status (*set)(void *context, const char *key, const void *value, size_t size);
    // Waits until the key is set. *size is the value's size, even if it is larger than `capacity`.
    tri_status (*get)(void *context, const char *key, int timeout_ms, void *value, size_t capacity,
                      size_t *size);
} tri_comm_meeting;

tri_comm_meeting tri_comm_meeting_of(tri_store *store);

#endif

// Lets ranks that are not connected yet exchange their addresses through the key-value store of the
// rendezvous. See meeting.h.
#include "comm/meeting.h"

static tri_status set(void *context, const char *key, const void *value, size_t size) {
    return tri_store_set(context, key, value, size);
}

static tri_status get(void *context, const char *key, int timeout_ms, void *value, size_t capacity,
                      size_t *size) {
    return tri_store_get(context, key, timeout_ms, value, capacity, size);
}

tri_comm_meeting tri_comm_meeting_of(tri_store *store) {
    return (tri_comm_meeting){.context = store, .set = set, .get = get};
}

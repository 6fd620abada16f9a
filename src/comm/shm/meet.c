// The ranks' store as a meeting place.
#include "comm/shm/shm.h"

static tri_status meet_set(void *context, const char *key, const void *value, size_t size) {
    return tri_store_set(context, key, value, size);
}

static tri_status meet_get(void *context, const char *key, int timeout_ms, void *value,
                           size_t capacity, size_t *size) {
    return tri_store_get(context, key, timeout_ms, value, capacity, size);
}

tri_status tri_comm_shm_open(int rank, int size, tri_store *store, const tri_shm_config *config,
                             tri_comm **out) {
    tri_shm_meeting meeting = {.context = store, .set = meet_set, .get = meet_get};
    return tri_comm_shm_open_at(rank, size, &meeting, config, out);
}

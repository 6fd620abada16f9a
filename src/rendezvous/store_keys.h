// The keys of the store (the key-value service at which the ranks meet) and their values.
#ifndef TRIREME_RENDEZVOUS_STORE_KEYS_H
#define TRIREME_RENDEZVOUS_STORE_KEYS_H

#include <stddef.h>

enum { STORE_BUCKETS = 1024 };

typedef struct store_key {
    struct store_key *next;
    char *name;
    void *value;
    size_t size;
} store_key;

typedef struct store_keys {
    store_key *buckets[STORE_BUCKETS];
    int count;
    size_t value_bytes;
} store_keys;

// Finds a key; NULL: it is not set.
store_key *store_keys_find(const store_keys *keys, const char *name);
// Sets the key, or replaces its value. Returns NULL or, if a limit is passed, a text that says
// which.
const char *store_keys_put(store_keys *keys, const char *name, const void *value, size_t size);
void store_keys_destroy(store_keys *keys);

#endif

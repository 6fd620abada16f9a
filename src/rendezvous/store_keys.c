// A hash table from keys to values, with limits for the number of keys and the size of values.
#include "rendezvous/store_keys.h"

#include "base/hash.h"
#include "base/limits.h"
#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static unsigned bucket_of(const char *name) {
    return (unsigned)(tri_hash_text(TRI_HASH_OF_NOTHING, name) % STORE_BUCKETS);
}

store_key *store_keys_find(const store_keys *keys, const char *name) {
    store_key *k = keys->buckets[bucket_of(name)];
    while (k && strcmp(k->name, name) != 0) k = k->next;
    return k;
}

const char *store_keys_put(store_keys *keys, const char *name, const void *value, size_t size) {
    store_key *k = store_keys_find(keys, name);
    size_t old = k ? k->size : 0;
    if (keys->value_bytes - old + size > TRI_MAX_STORE_BYTES) return "the store is full";
    if (!k) {
        if (keys->count == TRI_MAX_STORE_KEYS) return "the store has too many keys";
        k = calloc(1, sizeof *k);
        TRI_ASSERT(k);
        k->name = strdup(name);
        TRI_ASSERT(k->name);
        store_key **bucket = &keys->buckets[bucket_of(name)];
        k->next = *bucket;
        *bucket = k;
        keys->count++;
    }
    k->value = realloc(k->value, size ? size : 1);
    TRI_ASSERT(k->value);
    if (size) memcpy(k->value, value, size);
    k->size = size;
    keys->value_bytes += size - old;
    return NULL;
}

void store_keys_destroy(store_keys *keys) {
    for (int b = 0; b < STORE_BUCKETS; b++)
        for (store_key *k = keys->buckets[b], *next; k; k = next) {
            next = k->next;
            free(k->name);
            free(k->value);
            free(k);
        }
}

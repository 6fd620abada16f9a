// Remembers the tokens of short words, because most words of a text occur again and again: a table
// in which each word has two possible places, and replaces the older one of the words there.
#include "format/tokenizer/cache.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 26, MOST_TOKENS = 8, SLOT_BITS = 16, SLOTS = 1 << SLOT_BITS };

// The size of a line of the processor's cache.
typedef struct slot {
    uint32_t hash;
    uint8_t size, count; // size 0: the slot is free
    char key[KEY_BYTES];
    uint32_t ids[MOST_TOKENS];
} slot;

struct tokenizer_cache {
    slot slots[SLOTS];
};

tokenizer_cache *tokenizer_cache_create(void) { return calloc(1, sizeof(tokenizer_cache)); }
void tokenizer_cache_destroy(tokenizer_cache *cache) { free(cache); }

static uint64_t load8(const char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t load4(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

// Up to 8 bytes as a number, different for different texts of one size.
static uint64_t load_short(const char *word, size_t size) {
    if (size >= 4) return load4(word) << 32 | load4(word + size - 4);
    uint64_t first = (unsigned char)word[0], middle = (unsigned char)word[size / 2],
             last = (unsigned char)word[size - 1];
    return first << 16 | middle << 8 | last;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const char *word, size_t size) {
    uint64_t hash = size * 0xff51afd7ed558ccdu;
    if (size <= 8) return mix(hash, load_short(word, size)) * 0xc4ceb9fe1a85ec53u;
    for (size_t at = 0; at + 8 < size; at += 8) hash = mix(hash, load8(word + at));
    return mix(hash, load8(word + size - 8)) * 0xc4ceb9fe1a85ec53u;
}

static bool is_same(const char *a, const char *b, size_t size) {
    if (size <= 8) return load_short(a, size) == load_short(b, size);
    for (size_t at = 0; at + 8 < size; at += 8)
        if (load8(a + at) != load8(b + at)) return false;
    return load8(a + size - 8) == load8(b + size - 8);
}

// Puts the word into the first of its two places; what was there takes the second.
static void store(slot *pair, uint32_t hash, const char *word, size_t size, const uint32_t *ids,
                  size_t count) {
    if (count == 0 || count > MOST_TOKENS) return;
    pair[1] = pair[0];
    pair->hash = hash;
    pair->size = (uint8_t)size;
    pair->count = (uint8_t)count;
    memcpy(pair->key, word, size);
    memcpy(pair->ids, ids, count * sizeof *ids);
}

// Finds the word in one of its two places; NULL: it is in neither.
static const slot *find(const slot *pair, uint32_t hash, const char *word, size_t size) {
    for (int i = 0; i < 2; i++)
        if (pair[i].hash == hash && pair[i].size == size && is_same(pair[i].key, word, size))
            return &pair[i];
    return NULL;
}

tri_status tokenizer_encode_words(tri_token_encoder *encoder, const char *data,
                                  const tokenizer_spans *words) {
    const tokenizer_model *model = encoder->tokenizer->model;
    tri_token_ids *out = encoder->out;
    if (words->failed) return TRI_FAIL(TRI_NO_MEMORY, "no memory for the words of a text");
    for (size_t i = 0; i < words->count; i++) {
        const char *word = data + words->items[i].start;
        size_t size = words->items[i].size;
        if (size == 0) continue;
        if (size > KEY_BYTES) {
            TRI_TRY(model->encode(encoder, word, size));
            continue;
        }
        uint64_t hash = hash_of(word, size);
        slot *pair = &encoder->cache->slots[hash >> (64 - SLOT_BITS) & ~(uint64_t)1];
        const slot *known = find(pair, (uint32_t)hash, word, size);
        if (known) {
            encoder->failed |= !tokenizer_ids_reserve(out, MOST_TOKENS);
            if (encoder->failed) break;
            memcpy(out->ids + out->count, known->ids, sizeof known->ids);
            out->count += known->count;
            continue;
        }
        size_t before = out->count;
        TRI_TRY(model->encode(encoder, word, size));
        if (!encoder->failed && out->count > before)
            store(pair, (uint32_t)hash, word, size, out->ids + before, out->count - before);
    }
    return TRI_OK;
}

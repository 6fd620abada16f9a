// Reads and searches the rules of a sentencepiece normalizer.
#include "format/tokenizer/charsmap.h"

#include <endian.h>
#include <string.h>

bool tokenizer_charsmap_read(tri_arena *arena, const void *data, size_t size,
                             tokenizer_charsmap *out) {
    uint32_t trie_bytes;
    if (size < sizeof trie_bytes) return false;
    memcpy(&trie_bytes, data, sizeof trie_bytes);
    trie_bytes = le32toh(trie_bytes);
    if (trie_bytes > size - sizeof trie_bytes || trie_bytes % sizeof(uint32_t) || trie_bytes == 0)
        return false;
    uint32_t *units = tri_arena_alloc(arena, trie_bytes);
    memcpy(units, (const char *)data + sizeof trie_bytes, trie_bytes);
    out->unit_count = trie_bytes / sizeof *units;
    for (size_t i = 0; i < out->unit_count; i++) units[i] = le32toh(units[i]);
    out->units = units;
    out->texts_size = size - sizeof trie_bytes - trie_bytes;
    char *texts = tri_arena_alloc(arena, out->texts_size + 1);
    memcpy(texts, (const char *)data + sizeof trie_bytes + trie_bytes, out->texts_size);
    out->texts = texts;
    return tokenizer_valid_bytes(texts, out->texts_size) == out->texts_size;
}

static size_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

// What a rule makes of a text. False: the file is not valid.
static bool text_at(const tokenizer_charsmap *map, size_t at, tokenizer_string *to) {
    bool is_inside_character = at < map->texts_size && (map->texts[at] & 0xc0) == 0x80;
    if (at > map->texts_size || is_inside_character) return false;
    *to = (tokenizer_string){map->texts + at, strlen(map->texts + at)};
    return true;
}

size_t tokenizer_charsmap_find(const tokenizer_charsmap *map, const char *text, size_t size,
                               bool longest, tokenizer_string *to) {
    enum { MOST_RESULTS = 32 };
    size_t found = 0, node = offset_of(map->units[0]);
    for (size_t i = 0, results = 0; i < size && results < MOST_RESULTS; i++) {
        unsigned char byte = (unsigned char)text[i];
        node ^= byte;
        if (node >= map->unit_count) break;
        uint32_t unit = map->units[node];
        if ((unit & (1u << 31 | 0xff)) != byte) break;
        node ^= offset_of(unit);
        if (node >= map->unit_count) break;
        if (!(unit >> 8 & 1)) continue;
        results++;
        if (text_at(map, map->units[node] & ~(1u << 31), to)) found = i + 1;
        if (found && !longest) break;
    }
    return found;
}

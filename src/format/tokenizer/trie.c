// Makes tries, from sorted keys and level by level, and searches in them.
#include "format/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

enum { FREE = -1, FANOUT = 256, LEAST_NODES = 1024 };

static int compare(const void *a, const void *b) {
    const tokenizer_key *x = a, *y = b;
    size_t shared = x->text.size < y->text.size ? x->text.size : y->text.size;
    int order = memcmp(x->text.data, y->text.data, shared);
    if (order) return order;
    if (x->text.size != y->text.size) return x->text.size < y->text.size ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

// Keys first … end - 1 share their first `depth` bytes, which lead to `node`.
typedef struct span {
    int node, first, end;
    size_t depth;
} span;

typedef struct builder {
    tokenizer_trie_node *nodes;
    int capacity, used, search; // before `search` hardly any node is free
    const tokenizer_key *keys;
    span *spans;
    int span_count, span_capacity;
    tri_arena *arena;
} builder;

static bool reserve(builder *b, int count) {
    if (count <= b->capacity) return true;
    int capacity = b->capacity ? b->capacity : LEAST_NODES;
    while (capacity < count) capacity *= 2;
    tokenizer_trie_node *grown = realloc(b->nodes, (size_t)capacity * sizeof *grown);
    if (!grown) return false;
    for (int i = b->capacity; i < capacity; i++) grown[i] = (tokenizer_trie_node){0, FREE, -1};
    b->nodes = grown;
    b->capacity = capacity;
    return true;
}

// Finds where all children have free nodes. -1: there is no memory.
static int find_base(builder *b, const unsigned char *bytes, int count) {
    int tried = 0;
    for (int at = b->search;; at++) {
        if (!reserve(b, at + 2 * FANOUT)) return -1;
        if (b->nodes[at].parent != FREE) continue;
        int base = at - bytes[0], i = 0;
        if (base < 1) continue;
        while (i < count && b->nodes[base + bytes[i]].parent == FREE) i++;
        if (i == count) return base;
        // What many children could not use is left to others, but not searched again and again.
        if (++tried > 64) b->search = at - 32;
    }
}

static bool add_children(builder *b, const span *s) {
    unsigned char bytes[FANOUT];
    int count = 0, first = s->first;
    // The keys are sorted, so that one which ends here comes first.
    while (first < s->end && b->keys[first].text.size == s->depth) {
        if (b->nodes[s->node].value < 0) b->nodes[s->node].value = b->keys[first].value;
        first++;
    }
    if (first == s->end) return true;
    for (int i = first; i < s->end; i++) {
        unsigned char byte = (unsigned char)b->keys[i].text.data[s->depth];
        if (count == 0 || bytes[count - 1] != byte) bytes[count++] = byte;
    }
    int base = find_base(b, bytes, count);
    if (base < 0) return false;
    b->nodes[s->node].base = base;
    if (base + FANOUT > b->used) b->used = base + FANOUT;
    for (int i = 0, key = first; i < count; i++) {
        int from = key, child = base + bytes[i];
        while (key < s->end && (unsigned char)b->keys[key].text.data[s->depth] == bytes[i]) key++;
        b->nodes[child].parent = s->node;
        TRI_PUSH(b->arena, b->spans, b->span_count, b->span_capacity) =
            (span){child, from, key, s->depth + 1};
    }
    while (b->search < b->capacity && b->nodes[b->search].parent != FREE) b->search++;
    return true;
}

tri_status tokenizer_trie_build(tri_arena *arena, tokenizer_key *keys, int count,
                                tokenizer_trie *out) {
    *out = (tokenizer_trie){0};
    int empty = 0;
    qsort(keys, (size_t)count, sizeof *keys, compare);
    while (empty < count && keys[empty].text.size == 0) empty++;
    tri_arena *own = tri_arena_create(NULL, "trie");
    builder b = {.keys = keys, .arena = own, .search = 1};
    bool has_memory = reserve(&b, LEAST_NODES);
    if (has_memory) b.nodes[TOKENIZER_ROOT].parent = TOKENIZER_ROOT;
    if (empty < count)
        TRI_PUSH(own, b.spans, b.span_count, b.span_capacity) =
            (span){TOKENIZER_ROOT, empty, count, 0};
    for (int i = 0; has_memory && i < b.span_count; i++) {
        span s = b.spans[i];
        has_memory = add_children(&b, &s);
    }
    if (has_memory) {
        out->nodes = TRI_NEW_ARRAY(arena, tokenizer_trie_node, b.used + FANOUT);
        for (int i = 0; i < b.used + FANOUT; i++)
            out->nodes[i] = i < b.capacity ? b.nodes[i] : (tokenizer_trie_node){0, FREE, -1};
        out->nodes[TOKENIZER_ROOT].parent = FREE; // so that no byte leads back to it
        out->count = b.used;
        for (int i = empty; i < count; i++) out->starts[(unsigned char)keys[i].text.data[0]] = true;
        out->has_keys = empty < count;
        out->start = out->has_keys ? (unsigned char)keys[empty].text.data[0] : -1;
        // The keys are sorted, so that the first and the last tell.
        if (out->has_keys && (unsigned char)keys[count - 1].text.data[0] != out->start)
            out->start = -1;
    }
    tri_arena_destroy(own);
    free(b.nodes);
    return has_memory ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for %d tokens", count);
}

size_t tokenizer_trie_longest(const tokenizer_trie *trie, const char *data, size_t size,
                              int32_t *value) {
    size_t longest = 0;
    *value = -1;
    if (size == 0 || !trie->starts[(unsigned char)data[0]]) return 0;
    int node = TOKENIZER_ROOT;
    for (size_t i = 0; i < size; i++) {
        node = tokenizer_trie_step(trie, node, data[i]);
        if (node == TOKENIZER_NO_NODE) break;
        if (trie->nodes[node].value < 0) continue;
        longest = i + 1;
        *value = trie->nodes[node].value;
    }
    return longest;
}

bool tokenizer_trie_search(const tokenizer_trie *trie, const char *data, size_t size, size_t from,
                           size_t *start, size_t *end, int32_t *value) {
    *value = -1;
    for (size_t i = from; i < size && trie->has_keys; i++) {
        if (trie->start >= 0) { // most files have only tokens that begin with <
            const char *next = memchr(data + i, trie->start, size - i);
            if (!next) return false;
            i = (size_t)(next - data);
        }
        if (!trie->starts[(unsigned char)data[i]]) continue;
        size_t length = tokenizer_trie_longest(trie, data + i, size - i, value);
        if (length == 0) continue;
        *start = i;
        *end = i + length;
        return true;
    }
    return false;
}

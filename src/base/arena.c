// An arena is a list of chunks of memory. Each chunk is twice as large as the one before, up to
// MAX_CHUNK_BYTES, so that many small allocations need few calls of malloc. (Only an allocation
// that is larger gets a larger chunk.) Arenas form a tree: an arena is destroyed with its parent at
// the latest.
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CHUNK_BYTES = 4096, MAX_CHUNK_BYTES = 1 << 20 };

typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    alignas(max_align_t) char data[];
} chunk;

struct tri_arena {
    const char *name;
    tri_arena *parent, *first_child, *next_sibling;
    chunk *chunks; // the newest first
};

static _Noreturn void out_of_memory(const char *name, size_t size) {
    fprintf(stderr, "trireme: out of memory: %zu bytes for '%s'\n", size, name);
    abort();
}

tri_arena *tri_arena_create(tri_arena *parent, const char *name) {
    tri_arena *arena = calloc(1, sizeof *arena);
    if (!arena) out_of_memory(name, sizeof *arena);
    arena->name = name;
    arena->parent = parent;
    if (parent) {
        arena->next_sibling = parent->first_child;
        parent->first_child = arena;
    }
    return arena;
}

void tri_arena_reset(tri_arena *arena) {
    while (arena->first_child) tri_arena_destroy(arena->first_child);
    while (arena->chunks) {
        chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}

void tri_arena_destroy(tri_arena *arena) {
    if (!arena) return;
    tri_arena_reset(arena);
    if (arena->parent) {
        tri_arena **link = &arena->parent->first_child;
        while (*link != arena) link = &(*link)->next_sibling;
        *link = arena->next_sibling;
    }
    free(arena);
}

void *tri_arena_alloc(tri_arena *arena, size_t size_bytes) {
    const size_t unit = alignof(max_align_t);
    if (size_bytes > SIZE_MAX / 2) out_of_memory(arena->name, size_bytes);
    // Size 0 takes `unit` bytes too, so that every call returns a pointer of its own.
    size_t units = size_bytes ? (size_bytes + unit - 1) / unit : 1, size = units * unit;
    chunk *top = arena->chunks;
    if (!top || top->size - top->used < size) {
        size_t room = top ? 2 * top->size : FIRST_CHUNK_BYTES;
        if (room > MAX_CHUNK_BYTES) room = MAX_CHUNK_BYTES;
        if (room < size) room = size;
        top = malloc(sizeof *top + room);
        if (!top) out_of_memory(arena->name, size);
        *top = (chunk){.next = arena->chunks, .size = room};
        arena->chunks = top;
    }
    void *memory = top->data + top->used;
    top->used += size;
    return memset(memory, 0, size);
}

char *tri_arena_strdup(tri_arena *arena, const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(tri_arena_alloc(arena, size), text, size);
}

char *tri_arena_printf(tri_arena *arena, const char *format, ...) {
    va_list arguments, copy;
    va_start(arguments, format);
    va_copy(copy, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    size_t size = (size_t)(length < 0 ? 0 : length) + 1;
    char *text = tri_arena_alloc(arena, size);
    if (length >= 0) vsnprintf(text, size, format, copy);
    va_end(copy);
    return text;
}

size_t tri_arena_used(const tri_arena *arena) {
    size_t used = 0;
    for (const chunk *c = arena->chunks; c; c = c->next) used += c->used;
    for (const tri_arena *a = arena->first_child; a; a = a->next_sibling) used += tri_arena_used(a);
    return used;
}

void *tri_arena_grow(tri_arena *arena, void *items, size_t item_bytes, int count, int *capacity) {
    if (count < *capacity) return items;
    int grown = *capacity ? 2 * *capacity : 8;
    void *larger = tri_arena_alloc(arena, (size_t)grown * item_bytes);
    if (count) memcpy(larger, items, (size_t)count * item_bytes);
    *capacity = grown;
    return larger;
}

// An arena is memory with one lifetime: that of the process, of a run, of a step, … It is freed as
// a whole, so that nobody has to free each allocation.
#ifndef TRIREME_BASE_ARENA_H
#define TRIREME_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct tri_arena tri_arena;

// Makes an arena. If `parent` is not NULL, the new arena is destroyed with its parent at the
// latest. `name` must outlive the arena (a literal). If memory runs out, the program prints the
// arena's name and aborts. This hardly ever happens, because arenas hold small data such as recipes
// and graphs, never tensors.
tri_arena *tri_arena_create(tri_arena *parent, const char *name);
void tri_arena_destroy(tri_arena *arena); // NULL allowed
// Frees all memory of the arena and destroys its children; the arena itself stays.
void tri_arena_reset(tri_arena *arena);
// Allocates zeroed memory, aligned for any type. Size 0 gives a unique pointer.
void *tri_arena_alloc(tri_arena *arena, size_t size_bytes);
char *tri_arena_strdup(tri_arena *arena, const char *text);
char *tri_arena_printf(tri_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Returns how many bytes of the arena and its children are in use, to find what uses memory.
size_t tri_arena_used(const tri_arena *arena);

#define TRI_NEW(arena, type) ((type *)tri_arena_alloc((arena), sizeof(type)))
#define TRI_NEW_ARRAY(arena, type, count)                                                          \
    ((type *)tri_arena_alloc((arena), (size_t)(count) * sizeof(type)))

// Adds one element to the array `items`, and stands for that element: TRI_PUSH(…) = value. If the
// array is full, it is copied to memory of twice the size; the old memory is freed with the arena.
#define TRI_PUSH(arena, items, count, capacity)                                                    \
    (*((items) = tri_arena_grow((arena), (items), sizeof *(items), (count), &(capacity)),          \
       &(items)[(count)++]))
void *tri_arena_grow(tri_arena *arena, void *items, size_t item_bytes, int count, int *capacity);

#endif

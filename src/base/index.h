// Finds numbers by name, in time that does not depend on how many names there are: files may have
// many thousand tensors.
#ifndef TRIREME_BASE_INDEX_H
#define TRIREME_BASE_INDEX_H

#include "base/arena.h"

#include <stdint.h>

// A hash table in an arena; zero is an empty one. The caller keeps the names, to which the table
// only points.
typedef struct tri_index {
    struct tri_index_slot *slots;
    int count, capacity;
} tri_index;

enum { TRI_NOT_IN_INDEX = -1 };

// Finds the number of the name of `length` bytes, or TRI_NOT_IN_INDEX.
int tri_index_find(const tri_index *index, const char *name, size_t length);
// Sets the number of a name. A name that is in the index already gets the new number.
void tri_index_put(tri_arena *arena, tri_index *index, const char *name, size_t length, int number);

#endif

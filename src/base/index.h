// A table from names to numbers, for example from the names of a file's tensors to their positions
// in the file. It may have many thousand names: the time of a search does not grow with their
// number.
#ifndef TRIREME_BASE_INDEX_H
#define TRIREME_BASE_INDEX_H

#include "base/arena.h"

#include <stdint.h>

// A hash table in an arena. A struct of zeros is an empty table. The names must live as long as the
// table, which only points to them.
typedef struct tri_index {
    struct tri_index_slot *slots;
    int count, capacity;
} tri_index;

enum { TRI_NOT_IN_INDEX = -1 };

// Finds the number that belongs to the name of `length` bytes; TRI_NOT_IN_INDEX: the name is not in
// the table.
int tri_index_find(const tri_index *index, const char *name, size_t length);
// Sets the number that belongs to a name. If the table has the name already, replaces its number.
void tri_index_put(tri_arena *arena, tri_index *index, const char *name, size_t length, int number);

#endif

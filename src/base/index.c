// A hash table from names to numbers, with open addressing.
#include "base/index.h"

#include "base/hash.h"

#include <string.h>

typedef struct tri_index_slot {
    const char *name; // NULL: this entry of the hash table is free
    size_t length;
    int number;
} tri_index_slot;

// The first capacity of a table, in slots. It is a power of 2, and so is every later capacity,
// because each is twice the one before. So `hash & (capacity - 1)` is always the position of a
// slot.
enum { LEAST_SLOTS = 64 };

// Finds the slot (hash table entry) of the name, or the free slot where the name belongs. At least
// one slot is always free, so the search ends.
static tri_index_slot *slot_of(const tri_index *index, const char *name, size_t length) {
    uint64_t mask = (uint64_t)index->capacity - 1;
    for (uint64_t at = tri_hash_bytes(TRI_HASH_OF_NOTHING, name, length);; at++) {
        tri_index_slot *slot = &index->slots[at & mask];
        if (!slot->name || (slot->length == length && !memcmp(slot->name, name, length)))
            return slot;
    }
}

int tri_index_find(const tri_index *index, const char *name, size_t length) {
    if (index->count == 0) return TRI_NOT_IN_INDEX;
    const tri_index_slot *slot = slot_of(index, name, length);
    return slot->name ? slot->number : TRI_NOT_IN_INDEX;
}

static void grow(tri_arena *arena, tri_index *index) {
    tri_index old = *index;
    index->capacity = old.capacity ? 2 * old.capacity : LEAST_SLOTS;
    index->slots = TRI_NEW_ARRAY(arena, tri_index_slot, index->capacity);
    for (int i = 0; i < old.capacity; i++)
        if (old.slots[i].name)
            *slot_of(index, old.slots[i].name, old.slots[i].length) = old.slots[i];
}

void tri_index_put(tri_arena *arena, tri_index *index, const char *name, size_t length,
                   int number) {
    if (2 * index->count >= index->capacity) grow(arena, index);
    tri_index_slot *slot = slot_of(index, name, length);
    if (!slot->name) index->count++;
    *slot = (tri_index_slot){name, length, number};
}

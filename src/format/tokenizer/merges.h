// The merges of a byte pair encoding: which two tokens become one, and which pair goes first.
#ifndef TRIREME_FORMAT_TOKENIZER_MERGES_H
#define TRIREME_FORMAT_TOKENIZER_MERGES_H

#include "base/arena.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer_merge {
    uint32_t left, right; // the pair
    uint32_t rank;        // pairs of lower rank are merged first, and of one rank the leftmost
    uint32_t merged;      // what the pair becomes
} tokenizer_merge;

// A hash table of merges. A struct of zeros is empty.
typedef struct tokenizer_merges {
    tokenizer_merge *slots;
    uint32_t count, mask; // mask: the number of slots, a power of 2, minus 1
} tokenizer_merges;

// Makes an empty table with room for `count` merges.
void tokenizer_merges_init(tri_arena *arena, tokenizer_merges *merges, size_t count);
// Adds a merge, or replaces the one of the same pair.
void tokenizer_merges_put(tokenizer_merges *merges, tokenizer_merge merge);

// Memory for long words, which tokenizer_merges_apply grows as it needs. All zero: none yet.
typedef struct tokenizer_merge_memory {
    struct tokenizer_symbol *symbols;
    uint64_t *heap;
    size_t capacity;
} tokenizer_merge_memory;
void tokenizer_merge_memory_free(tokenizer_merge_memory *memory);

// Merges the tokens of a word in place until no pair is left to merge; *count becomes their number.
// Takes O(n log n) time. TRI_NO_MEMORY.
tri_status tokenizer_merges_apply(const tokenizer_merges *merges, tokenizer_merge_memory *memory,
                                  uint32_t *tokens, size_t *count);

#endif

// Applies the merges of a byte pair encoding. In a short word the next pair is searched; a long
// one keeps its pairs in a heap.
#include "format/tokenizer/merges.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT = 24, NONE = -1 };
#define NO_RANK UINT32_MAX

static uint32_t hash_of(uint32_t left, uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right;
    return (uint32_t)((pair * 0x9e3779b97f4a7c15u) >> 32);
}

void tokenizer_merges_init(tri_arena *arena, tokenizer_merges *merges, size_t count) {
    uint32_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    merges->slots = TRI_NEW_ARRAY(arena, tokenizer_merge, slots);
    for (uint32_t i = 0; i < slots; i++) merges->slots[i].rank = NO_RANK;
    merges->mask = slots - 1;
    merges->count = 0;
}

// Finds the pair's slot, or the free slot where it belongs. At least half of them are free.
static tokenizer_merge *find(const tokenizer_merges *merges, uint32_t left, uint32_t right) {
    for (uint32_t at = hash_of(left, right);; at++) {
        tokenizer_merge *slot = &merges->slots[at & merges->mask];
        if (slot->rank == NO_RANK || (slot->left == left && slot->right == right)) return slot;
    }
}

void tokenizer_merges_put(tokenizer_merges *merges, tokenizer_merge merge) {
    tokenizer_merge *slot = find(merges, merge.left, merge.right);
    if (slot->rank == NO_RANK) merges->count++;
    TRI_ASSERT(2 * (uint64_t)merges->count <= (uint64_t)merges->mask + 1);
    *slot = merge;
}

static void apply_short(const tokenizer_merges *merges, uint32_t *tokens, size_t *count) {
    const tokenizer_merge *pairs[SHORT];
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = find(merges, tokens[i], tokens[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i]->rank < pairs[best]->rank) best = i;
        if (pairs[best]->rank == NO_RANK) break;
        tokens[best] = pairs[best]->merged;
        memmove(tokens + best + 1, tokens + best + 2, (n - best - 2) * sizeof *tokens);
        if (best + 2 < n) memmove(pairs + best, pairs + best + 1, (n - best - 2) * sizeof *pairs);
        n--;
        if (best + 1 < n) pairs[best] = find(merges, tokens[best], tokens[best + 1]);
        if (best > 0) pairs[best - 1] = find(merges, tokens[best - 1], tokens[best]);
    }
    *count = n;
}

// A token in a list. `rank` is that of the pair which it makes with the next one.
typedef struct tokenizer_symbol {
    uint32_t token, rank;
    int32_t previous, next;
} tokenizer_symbol;

// A heap of pairs, each a rank and, in the lower half, the position of its left token. A pair that
// is no more stays in the heap, and is left out when it comes up.
typedef struct queue {
    uint64_t *items;
    size_t count;
} queue;

static void push(queue *q, uint64_t item) {
    size_t at = q->count++;
    while (at > 0 && q->items[(at - 1) / 2] > item) {
        q->items[at] = q->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    q->items[at] = item;
}

static uint64_t pop(queue *q) {
    uint64_t first = q->items[0], last = q->items[--q->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= q->count) break;
        if (child + 1 < q->count && q->items[child + 1] < q->items[child]) child++;
        if (q->items[child] >= last) break;
        q->items[at] = q->items[child];
        at = child;
    }
    q->items[at] = last;
    return first;
}

static void update(const tokenizer_merges *merges, tokenizer_symbol *symbols, queue *q,
                   int32_t at) {
    int32_t next = symbols[at].next;
    uint32_t rank =
        next == NONE ? NO_RANK : find(merges, symbols[at].token, symbols[next].token)->rank;
    symbols[at].rank = rank;
    if (rank != NO_RANK) push(q, (uint64_t)rank << 32 | (uint32_t)at);
}

static tri_status reserve(tokenizer_merge_memory *memory, size_t count) {
    if (count >= INT32_MAX / 2)
        return TRI_FAIL(TRI_BAD_INPUT, "a word of %zu characters is too long", count);
    if (count <= memory->capacity) return TRI_OK;
    tokenizer_merge_memory_free(memory);
    // Each pair is put into the heap when it is made: count - 1 at first, two by each merge.
    memory->symbols = malloc(count * sizeof *memory->symbols);
    memory->heap = malloc(3 * count * sizeof *memory->heap);
    memory->capacity = memory->symbols && memory->heap ? count : 0;
    if (memory->capacity) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory for a word of %zu characters", count);
}

tri_status tokenizer_merges_apply(const tokenizer_merges *merges, tokenizer_merge_memory *memory,
                                  uint32_t *tokens, size_t *count) {
    size_t n = *count;
    if (n < 2 || merges->count == 0) return TRI_OK;
    if (n <= SHORT) {
        apply_short(merges, tokens, count);
        return TRI_OK;
    }
    TRI_TRY(reserve(memory, n));
    tokenizer_symbol *symbols = memory->symbols;
    queue q = {.items = memory->heap};
    for (size_t i = 0; i < n; i++)
        symbols[i] = (tokenizer_symbol){tokens[i], NO_RANK, (int32_t)i - 1,
                                        i + 1 < n ? (int32_t)i + 1 : NONE};
    for (size_t i = 0; i < n; i++) update(merges, symbols, &q, (int32_t)i);
    while (q.count) {
        uint64_t item = pop(&q);
        int32_t at = (int32_t)(uint32_t)item;
        tokenizer_symbol *left = &symbols[at];
        if (left->rank != (uint32_t)(item >> 32)) continue;
        tokenizer_symbol *right = &symbols[left->next];
        left->token = find(merges, left->token, right->token)->merged;
        left->next = right->next;
        right->rank = NO_RANK;
        if (left->next != NONE) symbols[left->next].previous = at;
        if (left->previous != NONE) update(merges, symbols, &q, left->previous);
        update(merges, symbols, &q, at);
    }
    *count = 0;
    for (int32_t at = 0; at != NONE; at = symbols[at].next) tokens[(*count)++] = symbols[at].token;
    return TRI_OK;
}

void tokenizer_merge_memory_free(tokenizer_merge_memory *memory) {
    free(memory->symbols);
    free(memory->heap);
    *memory = (tokenizer_merge_memory){0};
}

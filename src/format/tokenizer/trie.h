// A trie: finds all keys of a set with which a text begins, in one pass over the text. It is a
// double array: the child of node n by byte b is node base[n] + b, if that node says that n is its
// parent. (J.-I. Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array Structure",
// 1989)
#ifndef TRIREME_FORMAT_TOKENIZER_TRIE_H
#define TRIREME_FORMAT_TOKENIZER_TRIE_H

#include "base/arena.h"
#include "format/tokenizer/text.h"

typedef struct tokenizer_trie_node {
    int32_t base, parent, value; // parent: -1: the node is free; value: -1: no key ends here
} tokenizer_trie_node;

typedef struct tokenizer_trie {
    tokenizer_trie_node *nodes; // node 0 is the root
    int count;                  // of nodes; 256 more are there, free, behind the last
    bool starts[256];           // with which bytes keys begin
    bool has_keys;
    int start; // the byte with which all keys begin; -1: they differ
} tokenizer_trie;

typedef struct tokenizer_key {
    tokenizer_string text;
    int32_t value;
} tokenizer_key;

// Makes a trie of `count` keys, which are sorted in place; of equal keys the first one of the
// sorted order counts, which is that of the smallest value. Empty keys are left out.
tri_status tokenizer_trie_build(tri_arena *arena, tokenizer_key *keys, int count,
                                tokenizer_trie *out);

enum { TOKENIZER_NO_NODE = -1, TOKENIZER_ROOT = 0 };

// Walks from a node by one byte. TOKENIZER_NO_NODE: no key continues so.
static inline int tokenizer_trie_step(const tokenizer_trie *trie, int node, char byte) {
    int next = trie->nodes[node].base + (unsigned char)byte;
    return trie->nodes[next].parent == node ? next : TOKENIZER_NO_NODE;
}

// Finds the longest key with which the text begins. Returns its length in bytes; 0: none.
size_t tokenizer_trie_longest(const tokenizer_trie *trie, const char *data, size_t size,
                              int32_t *value);
// Finds the next text of a key in data[from…size): the first one, and of those the longest. False:
// there is none. The value is -1 if not found.
bool tokenizer_trie_search(const tokenizer_trie *trie, const char *data, size_t size, size_t from,
                           size_t *start, size_t *end, int32_t *value);

#endif

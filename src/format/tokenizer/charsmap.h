// The precompiled rules of a sentencepiece normalizer, such as nmt_nfkc: which characters become
// which. The rules are a trie of darts-clone, and the texts to which it leads, each with a 0 at its
// end. (sentencepiece, src/normalizer.cc; darts-clone, include/darts.h)
#ifndef TRIREME_FORMAT_TOKENIZER_CHARSMAP_H
#define TRIREME_FORMAT_TOKENIZER_CHARSMAP_H

#include "base/arena.h"
#include "format/tokenizer/text.h"

typedef struct tokenizer_charsmap {
    const uint32_t *units;
    size_t unit_count;
    const char *texts; // ends with a 0
    size_t texts_size;
} tokenizer_charsmap;

// Reads the rules, which are copied. False: they are not valid.
bool tokenizer_charsmap_read(tri_arena *arena, const void *data, size_t size,
                             tokenizer_charsmap *out);
// Finds the shortest or the longest text of a rule with which the text begins. Returns its length
// in bytes, and in *to what it becomes; 0: no rule.
size_t tokenizer_charsmap_find(const tokenizer_charsmap *map, const char *text, size_t size,
                               bool longest, tokenizer_string *to);

#endif

// What a tokenizer.model of sentencepiece says beside its vocabulary.
#ifndef TRIREME_FORMAT_TOKENIZER_SENTENCEPIECE_H
#define TRIREME_FORMAT_TOKENIZER_SENTENCEPIECE_H

#include "format/tokenizer/parts.h"

#define TOKENIZER_SPACE_MARK "\xe2\x96\x81" // U+2581, which stands for a space
enum { TOKENIZER_MARK_BYTES = 3 };

// Types of tokens (sentencepiece_model.proto).
enum {
    TOKENIZER_NORMAL = 1,
    TOKENIZER_UNKNOWN,
    TOKENIZER_CONTROL,
    TOKENIZER_USER_DEFINED,
    TOKENIZER_UNUSED,
    TOKENIZER_BYTE,
};

typedef struct tokenizer_sentencepiece {
    uint8_t *types; // of each token
    float *scores;
    bool is_bpe, adds_prefix, removes_spaces, escapes_spaces;
    tokenizer_charsmap charsmap; // units NULL: there is none
    tokenizer_trie symbols;      // that the user has defined, which stay whole
    tokenizer_string unknown_surface, begin_piece, end_piece;
    // BPE: numbers of all texts that can be merged: tokens, and characters of tokens.
    tri_index pieces;
} tokenizer_sentencepiece;

// Makes the tables of the models.
tri_status tokenizer_sentencepiece_bpe_init(const tokenizer_reader *reader);
tri_status tokenizer_sentencepiece_unigram_init(const tokenizer_reader *reader);
extern const tokenizer_model tokenizer_sentencepiece_bpe;

// Emits the unknown token, or the tokens of the bytes of a character that no token stands for.
void tokenizer_sentencepiece_unknown(tri_token_encoder *encoder, const char *text, size_t size);

#endif

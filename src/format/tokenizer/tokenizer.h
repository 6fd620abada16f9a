// Tokenizers: from text to the numbers of tokens and back, as Hugging Face's tokenizer.json and
// sentencepiece's tokenizer.model define it.
//
// A vocabulary numbers tokens, which are short texts. tokenizer.json describes a row of parts:
// normalizers change the text, pre-tokenizers split it into words, a model (BPE, WordPiece,
// Unigram) makes tokens of each word, and decoders make text of tokens. Added tokens are found in
// the text before all that. (https://huggingface.co/docs/tokenizers/components)
#ifndef TRIREME_FORMAT_TOKENIZER_TOKENIZER_H
#define TRIREME_FORMAT_TOKENIZER_TOKENIZER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_tokenizer tri_tokenizer;

// Opens a tokenizer.json or tokenizer.model; which it is, is known by the content. Any number of
// threads may use an open tokenizer at the same time. TRI_BAD_INPUT: the file is neither, or is not
// valid; TRI_UNSUPPORTED: it has a part that is not known here, which the message names.
tri_status tri_tokenizer_open(const char *path, tri_tokenizer **out);
void tri_tokenizer_close(tri_tokenizer *tokenizer); // NULL allowed
// The largest number of a token, plus one.
int64_t tri_tokenizer_size(const tri_tokenizer *tokenizer);
// Finds the number of the token with this text. False: there is none.
bool tri_tokenizer_find(const tri_tokenizer *tokenizer, const char *text, uint32_t *id);
// Finds the token that ends a document: the eos token of tokenizer.model, or of the file
// tokenizer_config.json or config.json beside tokenizer.json; else the special token with one of
// the usual names, such as </s> or <|endoftext|>. TRI_NOT_FOUND: there is none.
tri_status tri_tokenizer_end(const tri_tokenizer *tokenizer, uint32_t *id);

// Token numbers. A struct of zeros is empty; the caller frees `ids`.
typedef struct tri_token_ids {
    uint32_t *ids;
    size_t count, capacity;
} tri_token_ids;

// What one thread needs to encode and decode: memory, and the words that it has seen lately.
typedef struct tri_token_encoder tri_token_encoder;
tri_status tri_token_encoder_create(const tri_tokenizer *tokenizer, tri_token_encoder **out);
void tri_token_encoder_destroy(tri_token_encoder *encoder); // NULL allowed

// Appends the tokens of a text. No begin or end marks are added; bytes that are not UTF-8 become
// U+FFFD: each maximal subpart (tokenizer.json) or each byte (tokenizer.model). TRI_BAD_INPUT: a
// pattern of the tokenizer would take too long for this text.
tri_status tri_token_encode(tri_token_encoder *encoder, const char *text, size_t size,
                            tri_token_ids *out);
// Puts the tokens around those of a text that a model is given: begin and end marks, as the
// post-processor of tokenizer.json says.
tri_status tri_token_frame(const tri_tokenizer *tokenizer, tri_token_ids *ids);
bool tri_tokenizer_has(const tri_tokenizer *tokenizer, int64_t id);
// Makes text of tokens; *text is the encoder's, which the next call overwrites. Special tokens stay
// in the text. TRI_BAD_INPUT: a number is no token.
tri_status tri_token_decode(tri_token_encoder *encoder, const uint32_t *ids, size_t count,
                            const char **text, size_t *size);

#endif

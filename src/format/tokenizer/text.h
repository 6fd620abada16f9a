// What all parts of a tokenizer share: text that grows, lists of strings, and UTF-8.
#ifndef TRIREME_FORMAT_TOKENIZER_TEXT_H
#define TRIREME_FORMAT_TOKENIZER_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Text that grows at its end. A struct of zeros is empty; tokenizer_text_free releases it.
typedef struct tokenizer_text {
    char *data;
    size_t size, capacity;
    bool failed; // there was no memory, so that the text is incomplete
} tokenizer_text;

// Makes room for `more` bytes behind the text. False: there is no memory.
bool tokenizer_text_reserve(tokenizer_text *text, size_t more);
void tokenizer_text_append(tokenizer_text *text, const char *data, size_t size);
void tokenizer_text_put(tokenizer_text *text, uint32_t code); // a character, as UTF-8
void tokenizer_text_free(tokenizer_text *text);

// A part of a text, without a 0 at its end.
typedef struct tokenizer_string {
    const char *data;
    size_t size;
} tokenizer_string;

// Decodes the character at `at`, which is before `end`. Returns its length in bytes; if these are
// not UTF-8, minus the length of their maximal subpart (the bytes that U+FFFD replaces; Unicode,
// "Best Practices for Using U+FFFD").
int tokenizer_decode(const char *at, const char *end, uint32_t *code);
// Appends the text, with U+FFFD in place of each maximal subpart that is not UTF-8.
void tokenizer_repair(tokenizer_text *out, const char *data, size_t size);
// How many bytes at the beginning of the text are UTF-8.
size_t tokenizer_valid_bytes(const char *data, size_t size);

// Decodes a character of text that is known to be UTF-8.
static inline int tokenizer_next(const char *at, uint32_t *code) {
    const unsigned char *b = (const unsigned char *)at;
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    if (b[0] < 0xe0) {
        *code = (b[0] & 0x1fu) << 6 | (b[1] & 0x3fu);
        return 2;
    }
    if (b[0] < 0xf0) {
        *code = (b[0] & 0x0fu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3fu);
        return 3;
    }
    *code = (b[0] & 0x07u) << 18 | (b[1] & 0x3fu) << 12 | (b[2] & 0x3fu) << 6 | (b[3] & 0x3fu);
    return 4;
}

// How many bytes a character has, by its first one.
static inline int tokenizer_length(char first) {
    unsigned char b = (unsigned char)first;
    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

// The general category of a character, a number of the library utf8proc, also for characters that
// Unicode 15 and 16 added. The older one does not know punctuation, marks and formats that are
// younger than Unicode 8: Hugging Face's library uses both.
int tokenizer_category(uint32_t code);
int tokenizer_old_category(uint32_t code);
// The character in lower case, also of letters that Unicode 16 and 17 added.
uint32_t tokenizer_lower(uint32_t code);
// Appends the characters of a category, such as L or Lu, that Unicode 15 and 16 added, as a pattern
// has them between brackets.
void tokenizer_put_newer(const char *category, size_t size, tokenizer_text *out);

// Classes of characters. Those of numbers and marks are general categories; punctuation is the
// older category.
bool tokenizer_is_space(uint32_t code); // the property White_Space
bool tokenizer_is_punctuation(uint32_t code);
bool tokenizer_is_number(uint32_t code);
bool tokenizer_is_mark(uint32_t code); // as StripAccents knows them
bool tokenizer_is_word(uint32_t code); // letters, marks, decimal digits, connectors: \w

#endif

// Lines of JSON: finds a text in an object, or reads a text or a list of numbers, without building
// a tree of it. The whole line is checked (RFC 8259), so that what is accepted is valid JSON.
#ifndef TRIREME_FORMAT_JSONL_H
#define TRIREME_FORMAT_JSONL_H

#include "format/tokenizer/text.h"

// The functions below return NULL, or what is wrong with the line: text for a message, without the
// file and the line's number. A text lies in the line or, if it has escapes, in `memory`.

// Finds the text of this key. If the line is an object without the key, or with the key twice, or
// with another value than a text, that is wrong.
const char *tri_jsonl_field(tokenizer_string line, tokenizer_string key, tokenizer_text *memory,
                            tokenizer_string *out);
// Reads a line that is a text.
const char *tri_jsonl_string(tokenizer_string line, tokenizer_text *memory, tokenizer_string *out);
// Reads a line that is a list of whole numbers from 0 to UINT32_MAX, by calling `take` with each.
const char *tri_jsonl_numbers(tokenizer_string line, void (*take)(void *context, uint32_t number),
                              void *context);
// Appends a text as JSON, with its quotes. What is not UTF-8 becomes U+FFFD.
void tri_jsonl_put_string(tokenizer_text *out, tokenizer_string text);

// True if there is nothing but white space in the line.
bool tri_jsonl_is_blank(tokenizer_string line);

#endif

// Searches by regular expressions of tokenizer.json: see regex.c.
#ifndef TRIREME_FORMAT_TOKENIZER_REGEX_H
#define TRIREME_FORMAT_TOKENIZER_REGEX_H

#include "format/tokenizer/parts.h"

// Finds the next match in valid UTF-8, at or behind `from`. TRI_BAD_INPUT: it would take too long.
tri_status tokenizer_regex_search(const tokenizer_regex *regex, tokenizer_regex_memory *memory,
                                  const char *text, size_t size, size_t from, tokenizer_span *match,
                                  bool *found);
tri_status tokenizer_regex_memory_create(tokenizer_regex_memory *memory);
void tokenizer_regex_memory_free(tokenizer_regex_memory *memory);

#endif

// Splits text as the well-known patterns of GPT-2, Llama 3 and Qwen 2 do, without searching by a
// regular expression, which takes several times as long.
#ifndef TRIREME_FORMAT_TOKENIZER_SCAN_H
#define TRIREME_FORMAT_TOKENIZER_SCAN_H

#include "format/tokenizer/parts.h"

// Finds the scanner for a pattern, as tokenizer.json has it; NULL: there is none.
const tokenizer_scanner *tokenizer_scanner_find(tokenizer_string pattern);
// Appends the matches in text[start … start + size), which are all of it.
void tokenizer_scan(const tokenizer_scanner *scanner, const char *text, tokenizer_span span,
                    tokenizer_spans *out);

#endif

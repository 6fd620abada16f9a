// The words whose tokens an encoder remembers: see cache.c.
#ifndef TRIREME_FORMAT_TOKENIZER_CACHE_H
#define TRIREME_FORMAT_TOKENIZER_CACHE_H

#include "format/tokenizer/parts.h"

tokenizer_cache *tokenizer_cache_create(void); // NULL: no memory
void tokenizer_cache_destroy(tokenizer_cache *cache);

#endif

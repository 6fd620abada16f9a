// Files of token numbers: text, whose bytes are the tokens, and flat arrays of little-endian
// numbers as training programs for language models keep them.
#ifndef TRIREME_FORMAT_TOKENS_H
#define TRIREME_FORMAT_TOKENS_H

#include "base/status.h"

#include <trireme/tensor.h>

typedef enum tri_token_type {
    TRI_TOKENS_AUTO, // by the file's name: .bin and .u16 are U16, .u32 is U32, all others U8. A
                     // file that begins with llm.c's header says it itself.
    TRI_TOKENS_U8,
    TRI_TOKENS_U16,
    TRI_TOKENS_U32,
} tri_token_type;

// A file mapped into memory, read-only. It must not be made shorter while it is open.
typedef struct tri_tokens {
    tri_dtype dtype;  // U8, U16 or U32
    int64_t count;    // tokens
    const void *data; // of the first one, aligned to its type
    void *map;
    size_t map_bytes;
} tri_tokens;

// TRI_NOT_FOUND, TRI_IO; TRI_BAD_INPUT: no file, or a size that is no whole number of tokens;
// TRI_CORRUPT: a header that does not fit the file. The header is that of llm.c
// (dev/data/data_common.py): 256 I32, of which the first three are magic number, version and the
// count of tokens, before U16 (20240520, 1) or U32 (20240801, 7).
tri_status tri_tokens_open(const char *path, tri_token_type type, tri_tokens *out);
void tri_tokens_close(tri_tokens *tokens); // an all-zero struct is allowed

// The largest of `count` tokens from `first` on; reads them all.
uint32_t tri_tokens_largest(const tri_tokens *tokens, int64_t first, int64_t count);
// Says that these tokens will be read soon.
void tri_tokens_hint(const tri_tokens *tokens, int64_t first, int64_t count);

#endif

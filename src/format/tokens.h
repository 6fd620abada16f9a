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

// An open file. Any number of threads may read it at once.
typedef struct tri_tokens {
    tri_dtype dtype; // U8, U16 or U32
    int64_t count;   // tokens
    char *path;
    int fd;
    int64_t offset; // of the first token, bytes
} tri_tokens;

// TRI_NOT_FOUND, TRI_IO; TRI_BAD_INPUT: no file, or a size that is no whole number of tokens;
// TRI_CORRUPT: a header that does not fit the file. The header is that of llm.c
// (dev/data/data_common.py): 256 I32, of which the first three are magic number, version and the
// count of tokens, before U16 (20240520, 1) or U32 (20240801, 7).
tri_status tri_tokens_open(const char *path, tri_token_type type, tri_tokens *out);
void tri_tokens_close(tri_tokens *tokens); // an all-zero struct is allowed

// `count` tokens from `first` on, in the file's type. TRI_IO; TRI_CORRUPT: the file has been made
// shorter since it was opened.
tri_status tri_tokens_read(const tri_tokens *tokens, int64_t first, int64_t count, void *out);
// The largest of them; reads them all. Errors as of tri_tokens_read.
tri_status tri_tokens_largest(const tri_tokens *tokens, int64_t first, int64_t count,
                              uint32_t *out);
// Says that these tokens will be read soon.
void tri_tokens_hint(const tri_tokens *tokens, int64_t first, int64_t count);

#endif

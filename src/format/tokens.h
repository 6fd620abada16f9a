// Files of token numbers: text, whose bytes are the tokens, and flat arrays of little-endian
// numbers as nanoGPT, Megatron and llm.c write them.
#ifndef TRIREME_FORMAT_TOKENS_H
#define TRIREME_FORMAT_TOKENS_H

#include "base/status.h"
#include "format/token_type.h"

#include <trireme/tensor.h>

// An open file. Any number of threads may read it at the same time.
typedef struct tri_tokens {
    tri_dtype dtype; // U8, U16 or U32
    int64_t count;   // number of tokens
    char *path;
    int fd;
    bool is_guessed; // the type follows from the file's name alone
    int64_t offset;  // position of the first token in the file, in bytes
} tri_tokens;

// Opens a file and counts its tokens. TRI_NOT_FOUND, TRI_IO; TRI_BAD_INPUT: it is not a regular
// file, or its size is not a multiple of a token's size; TRI_CORRUPT: the header or the index
// does not fit the file. The header is that of llm.c (dev/data/data_common.py): 256 I32, of which
// the first three are a magic number, a version and the number of tokens. Magic number 20240520
// with version 1 means U16 tokens, 20240801 with version 7 U32 tokens. Megatron's index is that of
// format/megatron.h. TRI_UNSUPPORTED: another version or type.
tri_status tri_tokens_open(const char *path, tri_token_type type, tri_tokens *out);
void tri_tokens_close(tri_tokens *tokens); // an all-zero struct is allowed

// Copies tokens first … first + count - 1 to `out`, in the file's type. TRI_IO; TRI_CORRUPT: the
// file was truncated after it was opened.
tri_status tri_tokens_read(const tri_tokens *tokens, int64_t first, int64_t count, void *out);
// Finds the largest of tokens first … first + count - 1, to check the vocabulary; it reads all of
// them. Fails as tri_tokens_read does.
tri_status tri_tokens_largest(const tri_tokens *tokens, int64_t first, int64_t count,
                              uint32_t *out);
// Finds the largest of tokens that were read. `dtype`: U8, U16 or U32.
uint32_t tri_tokens_largest_of(tri_dtype dtype, const void *tokens, int64_t count);
// Asks the system to read tokens ahead, so that reading them soon does not wait for the disk.
void tri_tokens_hint(const tri_tokens *tokens, int64_t first, int64_t count);

#endif

// The largest token of a file of tokens, which is looked for once and kept: the file may be larger
// than what a start should read.
#ifndef TRIREME_DATA_LARGEST_H
#define TRIREME_DATA_LARGEST_H

#include "base/arena.h"
#include "format/tokens.h"

// Of files of fewer bytes nothing is kept.
enum { TRI_LARGEST_KEPT_BYTES = 64 << 20 };

// Finds the largest token of the whole file. `cache` is data.cache. *out is -1 if the file is
// small, or nothing can be kept: then tokens have to be read at each start.
tri_status tri_largest_token(tri_arena *arena, const char *cache, const tri_tokens *tokens,
                             int64_t *out);

#endif

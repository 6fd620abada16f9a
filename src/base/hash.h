// The hash FNV-1a, which is short and distributes names well, and the hash of a file. Neither keeps
// anybody from making two inputs of one hash: they find what differs by mistake.
#ifndef TRIREME_BASE_HASH_H
#define TRIREME_BASE_HASH_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define TRI_HASH_OF_NOTHING 0xcbf29ce484222325u

static inline uint64_t tri_hash_bytes(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static inline uint64_t tri_hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

// Mixes a file's size and content into *hash. Of a file larger than TRI_HASH_BLOCK_BYTES * `blocks`
// it reads only so many blocks, from the first bytes to the last ones and evenly between, so that
// files of any size cost little: two versions of data or weights differ nearly everywhere.
enum { TRI_HASH_BLOCK_BYTES = 1 << 14, TRI_HASH_FILE_BLOCKS = 256 };
tri_status tri_hash_file(const char *path, int blocks, uint64_t *hash);
// The same for each of these files, with at most 2 * TRI_HASH_FILE_BLOCKS blocks in all: of many
// files, some are read. What is no file is left out.
tri_status tri_hash_files(const char *const *paths, int count, uint64_t *hash);

#endif

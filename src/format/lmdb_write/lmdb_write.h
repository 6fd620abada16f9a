// The interface of the module `lmdb`, which writes LMDB databases by liblmdb. Only `trireme data
// convert` loads it. The module calls no function of the program.
#ifndef TRIREME_FORMAT_LMDB_WRITE_LMDB_WRITE_H
#define TRIREME_FORMAT_LMDB_WRITE_LMDB_WRITE_H

#include "base/status.h"

#include <stddef.h>

enum {
    TRI_LMDB_WRITE_ABI = 1, // has to be raised with every change of this header
    TRI_LMDB_WRITE_WHY_BYTES = 512,
};
#define TRI_LMDB_WRITE_INTERFACE "lmdb_write"

typedef struct tri_lmdb_bytes {
    const void *data;
    size_t size;
} tri_lmdb_bytes;

typedef struct tri_lmdb_writer tri_lmdb_writer;

// A call that fails writes the reason to why[TRI_LMDB_WRITE_WHY_BYTES].
typedef struct tri_lmdb_write {
    // Opens the file to put entries into it, or makes it.
    tri_status (*open)(const char *path, tri_lmdb_writer **out, char *why);
    // Puts `count` entries, in place of those with the same keys: all of them, or none. They stay
    // when the process is killed, but perhaps not when the system ends, unless `sync` follows.
    tri_status (*put)(tri_lmdb_writer *writer, const tri_lmdb_bytes *keys,
                      const tri_lmdb_bytes *values, int count, char *why);
    tri_status (*sync)(tri_lmdb_writer *writer, char *why);
    void (*close)(tri_lmdb_writer *writer);
} tri_lmdb_write;

#endif

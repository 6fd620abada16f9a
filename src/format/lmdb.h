// Lists the entries of an LMDB database (data.mdb), by the format of LMDB 0.9: a tree of pages, of
// which two pages, written in turns, name the root. The file is read by plain reads, without its
// library: that one maps it, trusts all sizes in it, and would end the process where a file is
// damaged or cut off. It is also not locked, so nobody may write to it meanwhile.
#ifndef TRIREME_FORMAT_LMDB_H
#define TRIREME_FORMAT_LMDB_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TRI_LMDB_MAX_KEY_BYTES = 1 << 16 };

typedef struct tri_lmdb_entry {
    const char *key; // valid during the call, and followed by no NUL
    size_t key_bytes;
    int64_t offset, size; // of the value in the file
} tri_lmdb_entry;

// Calls `visit` for each entry of the main database, in the order of the keys, until one call
// fails. TRI_IO; TRI_CORRUPT: no database of this format, or a damaged or cut off one;
// TRI_UNSUPPORTED: several values for one key, or named databases within it.
tri_status tri_lmdb_list(int fd, const char *path,
                         tri_status (*visit)(void *context, const tri_lmdb_entry *entry),
                         void *context);

#endif

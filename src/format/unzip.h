// Reads a file from start to end; one that is gzip-compressed (RFC 1952) is decompressed on the
// way.
#ifndef TRIREME_FORMAT_UNZIP_H
#define TRIREME_FORMAT_UNZIP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tri_unzip tri_unzip;

// Compression is known by content, not by suffix. `path` is copied.
tri_status tri_unzip_open(const char *path, tri_unzip **out);
void tri_unzip_close(tri_unzip *source); // NULL allowed

// The next `size` bytes. TRI_CORRUPT when the file ends before, or its compressed form is damaged.
tri_status tri_unzip_read(tri_unzip *source, void *out, size_t size);
// TRI_CORRUPT when more bytes follow, or the checksum of a compressed file is wrong.
tri_status tri_unzip_end(tri_unzip *source);
// More bytes than this cannot follow: a bound on what a header may promise.
int64_t tri_unzip_at_most(const tri_unzip *source);

#endif

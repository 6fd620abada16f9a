// Reads a file from start to end, and decompresses it if it is gzip-compressed (RFC 1952).
#ifndef TRIREME_FORMAT_UNZIP_H
#define TRIREME_FORMAT_UNZIP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_unzip tri_unzip;

// Opens a file. Compression is recognised by the content, not by the suffix, which may be wrong.
// `path` is copied.
tri_status tri_unzip_open(const char *path, tri_unzip **out);
void tri_unzip_close(tri_unzip *source); // NULL allowed

// Reads the next `size` bytes. TRI_CORRUPT: the file ends before that, or is damaged.
tri_status tri_unzip_read(tri_unzip *source, void *out, size_t size);
// Checks that the file ends here. TRI_CORRUPT: there are more bytes, or the checksum of a
// compressed file is wrong.
tri_status tri_unzip_end(tri_unzip *source);
// Whether the file is compressed.
bool tri_unzip_is_gzip(const tri_unzip *source);
// Computes an upper bound on the bytes that can still follow, so that an impossible header is
// rejected before memory is allocated for it.
int64_t tri_unzip_max_bytes(const tri_unzip *source);

#endif

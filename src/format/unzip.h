// Reads a file from start to end, and decompresses it if it is gzip-compressed (RFC 1952).
#ifndef TRIREME_FORMAT_UNZIP_H
#define TRIREME_FORMAT_UNZIP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tri_unzip tri_unzip;

// Opens a file; recognises compression by the content, not by the suffix, which may be wrong.
// `path` is copied.
tri_status tri_unzip_open(const char *path, tri_unzip **out);
void tri_unzip_close(tri_unzip *source); // NULL allowed

// Reads the next `size` bytes. TRI_CORRUPT if the file ends before that or is damaged.
tri_status tri_unzip_read(tri_unzip *source, void *out, size_t size);
// Checks that the file ends here: TRI_CORRUPT if more bytes follow, or if the checksum of a
// compressed file is wrong.
tri_status tri_unzip_end(tri_unzip *source);
// An upper bound on the bytes that can follow, to refuse an impossible header before memory is
// allocated for it.
int64_t tri_unzip_max_bytes(const tri_unzip *source);

#endif

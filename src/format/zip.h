// The directory of a zip archive, and its members' bytes.
// Format: PKWARE's APPNOTE.TXT 6.3: the end record and its 64-bit form, the central directory,
// local headers. Of archives on one disk, with members stored as they are or deflated (RFC 1951).
#ifndef TRIREME_FORMAT_ZIP_H
#define TRIREME_FORMAT_ZIP_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_zip_member {
    const char *name;
    bool deflated;
    uint32_t crc32;
    int64_t packed_bytes, size_bytes; // in the file, and unpacked
    int64_t header_offset;            // of its local header
} tri_zip_member;

typedef struct tri_zip {
    const char *path;
    int64_t file_bytes;
    int count;
    tri_zip_member *members; // as the directory lists them
} tri_zip;

// Reads the directory of an open file; all memory lies in `arena`. TRI_IO; TRI_CORRUPT for what is
// no zip archive, or one whose numbers cannot be; TRI_UNSUPPORTED for encryption, other compression
// and more than TRI_MAX_ZIP_MEMBERS.
tri_status tri_zip_open(tri_arena *arena, int fd, const char *path, tri_zip *out);

// Where a member's packed bytes begin; they lie within the file.
tri_status tri_zip_locate(const tri_zip *zip, int fd, const tri_zip_member *member,
                          int64_t *offset);
// The unpacked bytes of a deflated member; `out` has room for size_bytes. TRI_CORRUPT when they are
// more, less or others than the directory says.
tri_status tri_zip_inflate(const tri_zip *zip, int fd, const tri_zip_member *member, void *out);
// The same check of a member that is stored as it is.
tri_status tri_zip_verify(const tri_zip *zip, int fd, const tri_zip_member *member);

#endif

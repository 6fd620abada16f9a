// Reads the directory and the members of a zip archive.
// Format: PKWARE's APPNOTE.TXT 6.3: the end record and its 64-bit form, the central directory,
// local headers. Supports archives on one disk whose members are stored or deflated (RFC 1951).
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
    int64_t packed_bytes, size_bytes; // in the file; unpacked
    int64_t header_offset;            // of its local header
} tri_zip_member;

typedef struct tri_zip {
    const char *path;
    int64_t file_bytes;
    int count;
    tri_zip_member *members; // in the order of the directory
} tri_zip;

// Reads the directory of an open file; all memory lies in `arena`. TRI_IO; TRI_CORRUPT if the file
// is not a zip archive or has impossible numbers; TRI_UNSUPPORTED for encryption, other compression
// and more than TRI_MAX_ZIP_MEMBERS.
tri_status tri_zip_open(tri_arena *arena, int fd, const char *path, tri_zip *out);

// Finds the offset of a member's packed bytes, which only its local header tells, and checks that
// they lie within the file.
tri_status tri_zip_locate(const tri_zip *zip, int fd, const tri_zip_member *member,
                          int64_t *offset);
// Unpacks a deflated member into `out`, which has room for size_bytes. TRI_CORRUPT if the size or
// the checksum differs from the directory.
tri_status tri_zip_inflate(const tri_zip *zip, int fd, const tri_zip_member *member, void *out);
// Verifies the checksum of a stored member, whose bytes are read in place without being unpacked.
tri_status tri_zip_verify(const tri_zip *zip, int fd, const tri_zip_member *member);

#endif

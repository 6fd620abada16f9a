// Reads the directory and the members of a zip archive. Format: PKWARE's APPNOTE.TXT 6.3: the end
// record and its 64-bit form, the central directory, local headers. Supported are archives on one
// disk whose members are stored or deflated (RFC 1951).
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
    int64_t packed_bytes, size_bytes; // size in the file, and size when unpacked
    int64_t header_offset;            // offset of its local header
} tri_zip_member;

typedef struct tri_zip {
    const char *path;
    int64_t file_bytes;
    int count;
    tri_zip_member *members; // members of the archive, in the order of the directory
} tri_zip;

// Reads the directory of an open file; all memory lies in `arena`. TRI_IO; TRI_CORRUPT: the file is
// not a zip archive, or has impossible numbers; TRI_UNSUPPORTED: encryption, another compression,
// or more than TRI_MAX_ZIP_MEMBERS.
tri_status tri_zip_open(tri_arena *arena, int fd, const char *path, tri_zip *out);

// Finds where a member's packed bytes begin, and checks that they lie within the file. The
// directory does not tell this, because the bytes follow a local header of varying length.
tri_status tri_zip_locate(const tri_zip *zip, int fd, const tri_zip_member *member,
                          int64_t *offset);
// Unpacks a deflated member into `out`, which has room for size_bytes. TRI_CORRUPT: the size or the
// checksum is not the one in the directory.
tri_status tri_zip_inflate(const tri_zip *zip, int fd, const tri_zip_member *member, void *out);
// Verifies the checksum of a stored member. For a deflated member, tri_zip_inflate does so.
tri_status tri_zip_verify(const tri_zip *zip, int fd, const tri_zip_member *member);

#endif

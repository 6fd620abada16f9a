// Lists the files in a tar archive, with the place of each one's bytes, so that they can be read at
// any time and in any order. Nothing is ever unpacked to a path that an archive names.
#ifndef TRIREME_FORMAT_TAR_H
#define TRIREME_FORMAT_TAR_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

// A plain file in an archive. `name` is valid during the call only.
typedef struct tri_tar_member {
    const char *name;
    int64_t offset, size; // of its bytes in the archive
} tri_tar_member;

// Called for each member, in the order of the archive. `text`: the first bytes of the member, as a
// string, if `wants_text` returned true; else NULL.
typedef tri_status (*tri_tar_visit)(void *context, const tri_tar_member *member, const char *text);

enum { TRI_TAR_TEXT_BYTES = 64 }; // the most bytes of `text`

// Opens the archive at `path` (ustar, pax or GNU tar). *fd belongs to the caller. *is_compressed:
// by gzip or zstd, so that only an unpacked copy can be listed and read.
tri_status tri_tar_open(const char *path, int *fd, bool *is_compressed);
// Visits all members of the archive `fd`, whose first `bytes` bytes are the archive. `wants_text`
// says of which members `visit` gets the first bytes. `path` is for messages. Several threads may
// list archives at a time. TRI_CORRUPT: the archive is damaged or cut off.
tri_status tri_tar_list(const char *path, int fd, int64_t bytes,
                        bool (*wants_text)(const char *name), tri_tar_visit visit, void *context);

// Writes the content of the compressed archive `from` to the file `to`, and behind it a mark.
// `path` and `to_path` are for messages.
tri_status tri_tar_unpack(const char *path, int from, const char *to_path, int to);
// Finds the mark of an unpacked copy, and so how many bytes of it are the archive. TRI_CORRUPT: the
// copy has no mark, because it is cut off or something else.
tri_status tri_tar_unpacked_bytes(const char *path, int fd, int64_t *out);

#endif

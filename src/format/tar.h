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

// Visits all members of the archive at `path` (ustar, pax or GNU tar). `wants_text` says of which
// members `visit` gets the first bytes. If the archive is compressed (gzip or zstd), it is first
// unpacked, as a whole, into a file without a name in the folder for temporary files: *unpacked is
// that file, which the caller closes, and which offsets refer to; -1: offsets refer to `path`
// itself. TRI_CORRUPT: the archive is damaged or cut off.
tri_status tri_tar_list(const char *path, bool (*wants_text)(const char *name), tri_tar_visit visit,
                        void *context, int *unpacked);

#endif

// The interface of the module `archive`, which lists tar archives by libarchive. That library and
// what it needs take as long to load as the whole program, so only a run that reads archives loads
// them. The module calls no function of the program.
#ifndef TRIREME_FORMAT_ARCHIVE_ARCHIVE_H
#define TRIREME_FORMAT_ARCHIVE_ARCHIVE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_ARCHIVE_ABI = 1, // has to be raised with every change of this header
    TRI_ARCHIVE_WHY_BYTES = 512,
};
#define TRI_ARCHIVE_INTERFACE "archive"

// A plain file in an archive: its name, and its place in the archive after decompression.
typedef struct tri_archive_member {
    const char *name; // valid until the next call
    int64_t offset, size;
    bool is_file; // false: a folder, a link or a device, which has no bytes
} tri_archive_member;

typedef struct tri_archive_reader tri_archive_reader;

// A call that fails writes the reason to why[TRI_ARCHIVE_WHY_BYTES]: TRI_CORRUPT, TRI_NO_MEMORY or,
// for the file that is written, TRI_IO.
typedef struct tri_archive {
    // Opens the tar archive in file `fd`, from its start on.
    tri_status (*open)(int fd, tri_archive_reader **out, char *why);
    void (*close)(tri_archive_reader *reader);
    // Finds the next member. *is_end: there is none. TRI_BAD_INPUT: its bytes do not lie there as
    // the file has them, because it is a hard link or stored with gaps.
    tri_status (*next)(tri_archive_reader *reader, tri_archive_member *out, bool *is_end,
                       char *why);
    // Reads up to `size` of the first bytes of the member found last; *got: how many.
    tri_status (*read)(tri_archive_reader *reader, void *out, size_t size, size_t *got, char *why);
    // Writes the decompressed content of the gzip or zstd file `from` to the file `to`.
    tri_status (*decompress)(int from, int to, char *why);
} tri_archive;

#endif

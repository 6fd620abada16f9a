// Writes zip archives whose members are stored, such as NumPy's .npz: with the 64-bit sizes of
// APPNOTE.TXT 6.3, so that members may have any size. The members' bytes are written by the caller.
#ifndef TRIREME_FORMAT_ZIP_WRITE_H
#define TRIREME_FORMAT_ZIP_WRITE_H

#include "base/status.h"

#include <stdint.h>

typedef struct tri_zip_entry {
    const char *name;
    int64_t offset; // of its header in the file
    int64_t size_bytes;
    uint32_t crc32;
} tri_zip_entry;

// How many bytes a member's header takes; its bytes follow.
int64_t tri_zip_header_bytes(const char *name);
// Makes the checksum of the member's bytes in the file, and writes its header. TRI_IO.
tri_status tri_zip_complete_entry(int fd, const char *path, tri_zip_entry *entry);
// Writes the directory behind the last member, where the file then ends. TRI_IO.
tri_status tri_zip_write_directory(int fd, const char *path, const tri_zip_entry *entries,
                                   int count);

#endif

// Headers, checksums and directory of zip archives.
#include "format/zip_write.h"

#include "base/os.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOCAL_BYTES = 30,
    LOCAL_EXTRA_BYTES = 4 + 2 * 8,
    ENTRY_BYTES = 46,
    ENTRY_EXTRA_BYTES = 4 + 3 * 8,
    END_BYTES = 56 + 20 + 22,
    VERSION = 45,      // the first that knows 64-bit sizes
    DATE = 1 << 5 | 1, // 1 January 1980
    CHUNK_BYTES = 1 << 20,
};

typedef struct writer {
    uint8_t *bytes;
    size_t size;
} writer;

// Appends a number of `width` bytes, the least first.
static void put(writer *w, int width, uint64_t value) {
    value = htole64(value);
    memcpy(w->bytes + w->size, &value, (size_t)width);
    w->size += (size_t)width;
}

static void put_name(writer *w, const char *name) {
    memcpy(w->bytes + w->size, name, strlen(name));
    w->size += strlen(name);
}

int64_t tri_zip_header_bytes(const char *name) {
    return LOCAL_BYTES + (int64_t)strlen(name) + LOCAL_EXTRA_BYTES;
}

// What the local header and the directory's entry share. The sizes are in the extra field.
static void put_common(writer *w, const tri_zip_entry *entry, int extra_bytes) {
    put(w, 2, VERSION);
    put(w, 2, 0); // flags
    put(w, 2, 0); // stored
    put(w, 2, 0); // time
    put(w, 2, DATE);
    put(w, 4, entry->crc32);
    put(w, 4, UINT32_MAX);
    put(w, 4, UINT32_MAX);
    put(w, 2, strlen(entry->name));
    put(w, 2, (uint64_t)extra_bytes);
}

static void put_sizes(writer *w, const tri_zip_entry *entry, int extra_bytes) {
    put(w, 2, 1);
    put(w, 2, (uint64_t)(extra_bytes - 4));
    put(w, 8, (uint64_t)entry->size_bytes);
    put(w, 8, (uint64_t)entry->size_bytes);
}

tri_status tri_zip_complete_entry(int fd, const char *path, tri_zip_entry *entry) {
    int64_t header_bytes = tri_zip_header_bytes(entry->name), at = entry->offset + header_bytes;
    uint8_t *chunk = malloc(CHUNK_BYTES + (size_t)header_bytes);
    if (!chunk) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its checksum", path);
    tri_status status = TRI_OK;
    entry->crc32 = 0;
    for (int64_t left = entry->size_bytes; left > 0 && status == TRI_OK;) {
        size_t size = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        status = tri_os_pread_all(fd, chunk, size, at, path);
        if (status == TRI_OK) entry->crc32 = crc32_gzip_refl(entry->crc32, chunk, size);
        at += (int64_t)size;
        left -= (int64_t)size;
    }
    writer w = {.bytes = chunk};
    put(&w, 4, 0x04034b50);
    put_common(&w, entry, LOCAL_EXTRA_BYTES);
    put_name(&w, entry->name);
    put_sizes(&w, entry, LOCAL_EXTRA_BYTES);
    if (status == TRI_OK) status = tri_os_pwrite_all(fd, chunk, w.size, entry->offset, path);
    free(chunk);
    return status;
}

static void put_entry(writer *w, const tri_zip_entry *entry) {
    put(w, 4, 0x02014b50);
    put(w, 2, VERSION);
    put_common(w, entry, ENTRY_EXTRA_BYTES);
    put(w, 2, 0); // comment
    put(w, 2, 0); // disk
    put(w, 2, 0); // attributes
    put(w, 4, 0);
    put(w, 4, UINT32_MAX); // offset
    put_name(w, entry->name);
    put_sizes(w, entry, ENTRY_EXTRA_BYTES);
    put(w, 8, (uint64_t)entry->offset);
}

// The end record with 64-bit numbers, its locator, and the old end record, which refers to it.
static void put_end(writer *w, int count, int64_t offset) {
    uint64_t directory_bytes = w->size;
    put(w, 4, 0x06064b50);
    put(w, 8, 56 - 12);
    put(w, 2, VERSION);
    put(w, 2, VERSION);
    put(w, 4, 0);
    put(w, 4, 0);
    put(w, 8, (uint64_t)count);
    put(w, 8, (uint64_t)count);
    put(w, 8, directory_bytes);
    put(w, 8, (uint64_t)offset);
    put(w, 4, 0x07064b50);
    put(w, 4, 0);
    put(w, 8, (uint64_t)offset + directory_bytes);
    put(w, 4, 1);
    put(w, 4, 0x06054b50);
    put(w, 4, 0);
    put(w, 2, UINT16_MAX);
    put(w, 2, UINT16_MAX);
    put(w, 4, UINT32_MAX);
    put(w, 4, UINT32_MAX);
    put(w, 2, 0);
}

tri_status tri_zip_write_directory(int fd, const char *path, const tri_zip_entry *entries,
                                   int count) {
    size_t most = END_BYTES;
    for (int i = 0; i < count; i++)
        most += ENTRY_BYTES + ENTRY_EXTRA_BYTES + strlen(entries[i].name);
    writer w = {.bytes = malloc(most)};
    if (!w.bytes) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its directory", path);
    const tri_zip_entry *last = &entries[count - 1];
    int64_t offset = last->offset + tri_zip_header_bytes(last->name) + last->size_bytes;
    for (int i = 0; i < count; i++) put_entry(&w, &entries[i]);
    put_end(&w, count, offset);
    tri_status status = tri_os_pwrite_all(fd, w.bytes, w.size, offset, path);
    if (status == TRI_OK && tri_os.ftruncate(fd, offset + (int64_t)w.size) < 0)
        status = tri_os_fail("write", path);
    free(w.bytes);
    return status;
}

// Lists arbitrary bytes as an LMDB database, and reads each value as Caffe's Datum.
#include "format/datum.h"
#include "format/lmdb.h"

#include <fcntl.h>
#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct listing {
    int fd;
    int64_t bytes, entries;
} listing;

static tri_status visit(void *context, const tri_lmdb_entry *entry) {
    listing *l = context;
    uint8_t head[TRI_DATUM_HEAD_BYTES];
    tri_datum datum;
    TRI_ASSERT(entry->offset > 0 && entry->size >= 0 && entry->offset + entry->size <= l->bytes);
    if (tri_datum_read(l->fd, entry->offset, entry->size, "fuzz", &datum)) {
        TRI_ASSERT(datum.offset + datum.size <= entry->size);
        if (tri_datum_is_image(&datum))
            TRI_ASSERT(tri_datum_head(&datum, head) <= (int)sizeof head);
    }
    l->entries++;
    return TRI_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    listing l = {.fd = open(path, O_RDONLY | O_CLOEXEC), .bytes = (int64_t)size};
    if (tri_lmdb_list(l.fd, path, visit, &l) != TRI_OK)
        TRI_ASSERT(strstr(tri_error_message(), path));
    close(l.fd);
    return 0;
}

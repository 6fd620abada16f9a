// Memory without a name that several processes map: without a name, nothing remains of it when they
// are killed.
#ifndef TRIREME_COMM_SHM_SEGMENT_H
#define TRIREME_COMM_SHM_SEGMENT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// The first bytes of every segment, by which a process recognises that it opened the right one.
typedef struct shm_header {
    uint64_t magic, nonce;
} shm_header;

typedef struct shm_segment {
    int fd;     // -1 when closed; the mapping stays
    void *base; // NULL when nothing is mapped
    size_t size_bytes;
} shm_segment;

// What another process needs to open a segment while its maker keeps the fd open: it fits into a
// message.
typedef struct shm_handle {
    int32_t pid, fd;
    uint64_t size_bytes, nonce;
} shm_handle;

// Makes zeroed memory and maps it; the caller unmaps it. TRI_NO_MEMORY, TRI_IO.
tri_status shm_segment_create(size_t size_bytes, shm_segment *out, shm_handle *handle);
// Opens the segment through /proc. TRI_NOT_FOUND: this host does not allow that; then
// shm_segment_fetch may work.
tri_status shm_segment_open(const shm_handle *handle, shm_segment *out);
// Pass a segment on hosts where /proc does not allow to open it: the maker passes the fd to `count`
// processes of its own user over an abstract socket (serve), from which each of them gets it
// (fetch). TRI_NETWORK, TRI_TIMEOUT.
tri_status shm_segment_serve(const shm_segment *segment, const shm_handle *handle, int count,
                             int timeout_ms);
tri_status shm_segment_fetch(const shm_handle *handle, int timeout_ms, shm_segment *out);
// Takes the pages of a range from the system now, so that a lack of memory is TRI_NO_MEMORY here
// and not a signal at the first write.
tri_status shm_segment_commit(const shm_segment *segment, size_t offset, size_t size_bytes);
// Asks for huge pages. Only for memory that is used whole: a board, of which few pages are touched,
// would take up more memory with them.
void shm_segment_advise_huge(const shm_segment *segment);
void shm_segment_close_fd(shm_segment *segment);
void shm_segment_unmap(shm_segment *segment); // closes the fd too; harmless when nothing is mapped

#endif

// Memory without a name that several processes map.
#ifndef TRIREME_COMM_SHM_SEGMENT_H
#define TRIREME_COMM_SHM_SEGMENT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// Every segment begins with it, so that a process can tell that it opened the right one.
typedef struct shm_header {
    uint64_t magic, nonce;
} shm_header;

typedef struct shm_segment {
    int fd;     // -1 when closed; the mapping stays
    void *base; // NULL when there is none
    size_t size_bytes;
} shm_segment;

// What another process needs to open a segment while its maker keeps the fd open.
typedef struct shm_handle {
    int32_t pid, fd;
    uint64_t size_bytes, nonce;
} shm_handle;

tri_status shm_segment_create(size_t size_bytes, shm_segment *out, shm_handle *handle);
// Opens through /proc. TRI_NOT_FOUND when this host does not let us: use fetch then.
tri_status shm_segment_open(const shm_handle *handle, shm_segment *out);
// The other road: the maker serves the fd to `count` processes of its own user over an abstract
// socket, the others fetch it.
tri_status shm_segment_serve(const shm_segment *segment, const shm_handle *handle, int count,
                             int timeout_ms);
tri_status shm_segment_fetch(const shm_handle *handle, int timeout_ms, shm_segment *out);
// Commits the pages of a range now, so that a lack of memory is an error here and no signal later.
tri_status shm_segment_commit(const shm_segment *segment, size_t offset, size_t size_bytes);
// For memory that is used whole: a board, of which few pages are touched, would grow by it.
void shm_segment_advise_huge(const shm_segment *segment);
void shm_segment_close_fd(shm_segment *segment);
void shm_segment_unmap(shm_segment *segment); // closes the fd too; again is harmless

#endif

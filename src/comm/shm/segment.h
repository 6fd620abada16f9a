// Shared memory that several processes map. It has no name in a file system, so that nothing
// remains of it when the processes are killed.
#ifndef TRIREME_COMM_SHM_SEGMENT_H
#define TRIREME_COMM_SHM_SEGMENT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// The first bytes of every segment, by which a process recognises that it has opened the right one.
typedef struct shm_header {
    uint64_t magic, nonce;
} shm_header;

typedef struct shm_segment {
    int fd;     // -1: closed; the mapping stays
    void *base; // NULL: nothing is mapped
    size_t size_bytes;
} shm_segment;

// What another process needs to open a segment while the segment's maker keeps the descriptor open.
// A handle is small enough to be sent in a message.
typedef struct shm_handle {
    int32_t pid, fd;
    uint64_t size_bytes, nonce;
} shm_handle;

// Makes zeroed memory and maps it; the caller unmaps it. Fails with TRI_NO_MEMORY or TRI_IO.
tri_status shm_segment_create(size_t size_bytes, shm_segment *out, shm_handle *handle);
// Opens the segment through /proc. TRI_NOT_FOUND: this host does not allow that; then
// shm_segment_fetch may work.
tri_status shm_segment_open(const shm_handle *handle, shm_segment *out);
// Pass a segment on hosts where /proc does not allow opening it. The maker sends the descriptor
// over an abstract socket to `count` processes of its own user (serve), and each of them receives
// it (fetch). Fail with TRI_NETWORK or TRI_TIMEOUT.
tri_status shm_segment_serve(const shm_segment *segment, const shm_handle *handle, int count,
                             int timeout_ms);
tri_status shm_segment_fetch(const shm_handle *handle, int timeout_ms, shm_segment *out);
// Allocates the pages of a range now, so that a lack of memory is TRI_NO_MEMORY here and not a
// signal at the first write.
tri_status shm_segment_commit(const shm_segment *segment, size_t offset, size_t size_bytes);
// Asks the system for huge pages. This is only for memory that is used completely. Where few pages
// are touched, as in a board (comm/shm/layout.h), in which ranks announce operations, huge pages
// would take more memory than small ones.
void shm_segment_advise_huge(const shm_segment *segment);
void shm_segment_close_fd(shm_segment *segment);
// Unmaps the segment if it is mapped, and closes its descriptor if that is open.
void shm_segment_unmap(shm_segment *segment);

#endif

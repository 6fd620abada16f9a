// Reads and decodes image files for one thread.
#include "data/image_worker.h"

#include "base/os.h"

#include <fcntl.h>
#include <stdlib.h>

void tri_image_worker_destroy(void *context) {
    tri_image_worker *worker = context;
    for (int i = 0; i < worker->open_count; i++) tri_os.close(worker->open[i].fd);
    tri_image_decoder_destroy(worker->decoder);
    tri_buffer_free(&worker->encoded);
    free(worker);
}

tri_status tri_image_worker_create(const tri_dataset *dataset, void **out) {
    tri_image_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return TRI_FAIL(TRI_NO_MEMORY, "no memory to read images");
    *out = worker;
    return tri_image_decoder_create(&worker->decoder);
}

// The place for another open file: a free one, or that of the file whose last use is longest ago.
static tri_open_file *place_for(tri_image_worker *worker) {
    if (worker->open_count < TRI_OPEN_FILES) return &worker->open[worker->open_count++];
    tri_open_file *oldest = &worker->open[0];
    for (int i = 1; i < TRI_OPEN_FILES; i++)
        if (worker->open[i].used < oldest->used) oldest = &worker->open[i];
    tri_os.close(oldest->fd);
    return oldest;
}

tri_status tri_image_worker_open(tri_image_worker *worker, int64_t file, const char *path,
                                 int *fd) {
    worker->uses++;
    for (int i = 0; i < worker->open_count; i++) {
        if (worker->open[i].file != file) continue;
        worker->open[i].used = worker->uses;
        *fd = worker->open[i].fd;
        return TRI_OK;
    }
    *fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (*fd < 0) return tri_os_fail("open", path);
    *place_for(worker) = (tri_open_file){file, *fd, worker->uses};
    return TRI_OK;
}

tri_status tri_image_worker_decode(tri_image_worker *worker, int fd, int64_t offset, int64_t size,
                                   const char *name, tri_sample_value *out) {
    if (size > TRI_MAX_IMAGE_BYTES)
        return TRI_FAIL(TRI_CORRUPT, "%s: %lld bytes are no image", name, (long long)size);
    TRI_TRY(tri_buffer_reserve(&worker->encoded, (size_t)size));
    TRI_TRY(tri_os_pread_all(fd, worker->encoded.data, (size_t)size, offset, name));
    out->encoded = worker->encoded.data;
    out->encoded_bytes = (size_t)size;
    return tri_image_decode(worker->decoder, worker->encoded.data, (size_t)size, name, &out->image);
}

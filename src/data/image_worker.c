// Reads and decodes image files for one thread.
#include "data/image_worker.h"

#include "base/os.h"

#include <stdlib.h>

void tri_image_worker_destroy(void *context) {
    tri_image_worker *worker = context;
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

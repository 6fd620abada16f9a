// What one thread needs to read image files, whole or as parts of archives: a decoder, and memory
// for the encoded bytes. For kinds of data sets with encoded images.
#ifndef TRIREME_DATA_IMAGE_WORKER_H
#define TRIREME_DATA_IMAGE_WORKER_H

#include "data/kind.h"
#include "format/image/image.h"

typedef struct tri_image_worker {
    tri_image_decoder *decoder;
    tri_buffer encoded; // the image file that was decoded last
} tri_image_worker;

// For tri_dataset_kind.worker_create and worker_destroy.
tri_status tri_image_worker_create(const tri_dataset *dataset, void **out);
void tri_image_worker_destroy(void *worker);

// Decodes the image file that lies in `size` bytes from `offset` on, and sets `image`, `encoded`
// and `encoded_bytes` of *out. `name`: for messages. TRI_CORRUPT: it is damaged or cut off.
tri_status tri_image_worker_decode(tri_image_worker *worker, int fd, int64_t offset, int64_t size,
                                   const char *name, tri_sample_value *out);

#endif

// The interface of the decoder of one image format.
#ifndef TRIREME_FORMAT_IMAGE_CODEC_H
#define TRIREME_FORMAT_IMAGE_CODEC_H

#include "base/buffer.h"
#include "format/image/image.h"

enum { IMAGE_PIXEL_BYTES = 4 }; // red, green, blue and one byte without a meaning

// The file that is decoded, and where its pixels go.
typedef struct image_job {
    const uint8_t *bytes;
    size_t size;
    const char *name;
    void *state; // what `create` of the codec made; `decode` may replace it
    tri_buffer *pixels, *rest;
    int64_t width, height;
} image_job;

typedef struct image_codec {
    const char *name;
    bool (*recognizes)(const uint8_t *bytes, size_t size);
    // What one thread keeps from file to file; NULL: nothing.
    tri_status (*create)(void **out);
    void (*destroy)(void *state);
    // Decodes to job->pixels, rows of width * IMAGE_PIXEL_BYTES bytes: begins with image_begin,
    // which needs the sizes.
    tri_status (*decode)(image_job *job);
} image_codec;

extern const image_codec image_jpeg, image_png, image_webp, image_bmp, image_ppm;

// Checks the sizes, and makes room for the pixels. TRI_CORRUPT, TRI_NO_MEMORY.
tri_status image_begin(image_job *job, int64_t width, int64_t height);
// Where row `row` of the pixels begins.
uint8_t *image_row(const image_job *job, int64_t row);

#endif

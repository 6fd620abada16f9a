// Finds the format of an image file, and lets its codec decode it.
#include "format/image/image.h"

#include "base/limits.h"
#include "base/os.h"
#include "format/image/codec.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const image_codec *const codecs[] = {&image_jpeg, &image_png, &image_webp, &image_bmp,
                                            &image_ppm};
enum { CODECS = sizeof codecs / sizeof *codecs };

struct tri_image_decoder {
    void *states[CODECS];
    tri_buffer pixels, rest;
};

tri_status tri_image_decoder_create(tri_image_decoder **out) {
    *out = NULL;
    tri_image_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) return TRI_FAIL(TRI_NO_MEMORY, "no memory to decode images");
    for (int i = 0; i < CODECS; i++) {
        tri_status status = codecs[i]->create ? codecs[i]->create(&decoder->states[i]) : TRI_OK;
        if (status == TRI_OK) continue;
        tri_image_decoder_destroy(decoder);
        return status;
    }
    *out = decoder;
    return TRI_OK;
}

void tri_image_decoder_destroy(tri_image_decoder *decoder) {
    if (!decoder) return;
    for (int i = 0; i < CODECS; i++)
        if (decoder->states[i]) codecs[i]->destroy(decoder->states[i]);
    tri_buffer_free(&decoder->pixels);
    tri_buffer_free(&decoder->rest);
    free(decoder);
}

tri_status image_begin(image_job *job, int64_t width, int64_t height) {
    if (width < 1 || height < 1)
        return TRI_FAIL(TRI_CORRUPT, "%s: an image of %lld x %lld pixels", job->name,
                        (long long)width, (long long)height);
    if (width > TRI_MAX_IMAGE_SIDE || height > TRI_MAX_IMAGE_SIDE ||
        width * height > TRI_MAX_IMAGE_PIXELS)
        return TRI_FAIL(TRI_CORRUPT, "%s: %lld x %lld pixels; at most %d are read", job->name,
                        (long long)width, (long long)height, TRI_MAX_IMAGE_PIXELS);
    job->width = width;
    job->height = height;
    return tri_buffer_reserve(job->pixels, (size_t)(width * height) * IMAGE_PIXEL_BYTES);
}

uint8_t *image_row(const image_job *job, int64_t row) {
    return (uint8_t *)job->pixels->data + row * job->width * IMAGE_PIXEL_BYTES;
}

tri_status tri_image_decode(tri_image_decoder *decoder, const void *bytes, size_t size,
                            const char *name, tri_image *out) {
    enum { CHANNELS = 3 };
    for (int i = 0; i < CODECS; i++) {
        if (!codecs[i]->recognizes(bytes, size)) continue;
        image_job job = {.bytes = bytes,
                         .size = size,
                         .name = name,
                         .state = decoder->states[i],
                         .pixels = &decoder->pixels,
                         .rest = &decoder->rest};
        tri_status status = codecs[i]->decode(&job);
        decoder->states[i] = job.state;
        TRI_TRY(status);
        *out = tri_image_of_pixels(job.pixels->data, CHANNELS, job.height, job.width,
                                   IMAGE_PIXEL_BYTES);
        return TRI_OK;
    }
    if (size == 0) return TRI_FAIL(TRI_CORRUPT, "%s: is empty", name);
    TRI_TRY(tri_os_check_pointer(name, bytes, size));
    return TRI_FAIL(TRI_CORRUPT, "%s: is no JPEG, PNG, WebP, BMP or PPM image", name);
}

bool tri_image_is_name(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (!strcasecmp(dot, endings[i])) return true;
    return false;
}

// WebP, by libwebp.
#include "format/image/codec.h"

#include <string.h>
#include <webp/decode.h>

static bool recognizes(const uint8_t *bytes, size_t size) {
    return size > 12 && !memcmp(bytes, "RIFF", 4) && !memcmp(bytes + 8, "WEBP", 4);
}

static tri_status decode(image_job *job) {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(job->bytes, job->size, &features) != VP8_STATUS_OK)
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged WebP", job->name);
    if (features.has_animation)
        return TRI_FAIL(TRI_CORRUPT, "%s: an animated WebP: save one of its images", job->name);
    TRI_TRY(image_begin(job, features.width, features.height));
    if (!WebPDecodeRGBAInto(job->bytes, job->size, job->pixels->data, job->pixels->size_bytes,
                            (int)job->width * IMAGE_PIXEL_BYTES))
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged WebP", job->name);
    return TRI_OK;
}

const image_codec image_webp = {.name = "WebP", .recognizes = recognizes, .decode = decode};

// JPEG, by libjpeg-turbo (TurboJPEG).
#include "format/image/codec.h"

#include <string.h>
#include <turbojpeg.h>

static bool recognizes(const uint8_t *bytes, size_t size) {
    return size > 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static tri_status create(void **out) {
    *out = tjInitDecompress();
    return *out ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory to decode JPEG");
}

static void destroy(void *state) { tjDestroy(state); }

// After a failure the library's handle still waits for the rest of the damaged file, and would take
// the next file for it. So it is made again.
static tri_status fail(image_job *job) {
    tri_status status =
        TRI_FAIL(TRI_CORRUPT, "%s: damaged JPEG: %s", job->name, tjGetErrorStr2(job->state));
    destroy(job->state);
    job->state = NULL;
    return status;
}

// True if the last call's warning leaves every pixel as it was saved. Some programs write a few
// bytes too many between two markers, which every decoder skips.
static bool is_harmless(const image_job *job) {
    return tjGetErrorCode(job->state) == TJERR_WARNING &&
           strstr(tjGetErrorStr2(job->state), "extraneous bytes");
}

static uint8_t scaled(uint8_t value, uint8_t by) { // value * by / 255, rounded
    int product = value * by + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

// Converts cyan, magenta, yellow and black, as Adobe's programs store them, inverted: 255 is no
// ink. So each colour is the product of its own and of black.
static void convert_cmyk(const image_job *job) {
    for (int64_t i = 0; i < job->width * job->height; i++) {
        uint8_t *pixel = (uint8_t *)job->pixels->data + i * IMAGE_PIXEL_BYTES;
        for (int c = 0; c < 3; c++) pixel[c] = scaled(pixel[c], pixel[3]);
    }
}

static tri_status decode(image_job *job) {
    int width = 0, height = 0, subsampling = 0, space = 0;
    if (!job->state) TRI_TRY(create(&job->state));
    if (tjDecompressHeader3(job->state, job->bytes, job->size, &width, &height, &subsampling,
                            &space) != 0 &&
        !is_harmless(job))
        return fail(job);
    // Of a file that ends in its header the library tells no size, and no error.
    if (width == 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged JPEG: it ends in its header", job->name);
    TRI_TRY(image_begin(job, width, height));
    bool is_cmyk = space == TJCS_CMYK || space == TJCS_YCCK;
    // LIMITSCANS: a progressive file of some kilobytes could have so many scans that decoding takes
    // minutes.
    if (tjDecompress2(job->state, job->bytes, job->size, job->pixels->data, width, 0, height,
                      is_cmyk ? TJPF_CMYK : TJPF_RGBX, TJFLAG_LIMITSCANS) != 0 &&
        !is_harmless(job))
        return fail(job);
    if (is_cmyk) convert_cmyk(job);
    return TRI_OK;
}

const image_codec image_jpeg = {.name = "JPEG",
                                .recognizes = recognizes,
                                .create = create,
                                .destroy = destroy,
                                .decode = decode};

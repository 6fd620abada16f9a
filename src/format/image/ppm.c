// Binary PPM and PGM (Netpbm): "P6" or "P5", width, height and the largest value as text, with
// comments from # to the end of a line, one white space, then bytes.
#include "format/image/codec.h"

#include <ctype.h>

enum { MOST_DIGITS = 9 };

static bool recognizes(const uint8_t *bytes, size_t size) {
    return size > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') && isspace(bytes[2]);
}

// Reads the next number of the header. -1: there is none.
static int64_t next_number(const image_job *job, size_t *at) {
    bool is_comment = false;
    for (; *at < job->size; ++*at) {
        uint8_t byte = job->bytes[*at];
        if (byte == '#') is_comment = true;
        if (!is_comment && !isspace(byte)) break;
        if (byte == '\n') is_comment = false;
    }
    int64_t value = -1;
    for (int digits = 0; *at < job->size && isdigit(job->bytes[*at]) && digits < MOST_DIGITS;
         digits++, ++*at)
        value = (value < 0 ? 0 : value) * 10 + (job->bytes[*at] - '0');
    return value;
}

static tri_status decode(image_job *job) {
    size_t at = 2;
    int64_t width = next_number(job, &at), height = next_number(job, &at),
            largest = next_number(job, &at), channels = job->bytes[1] == '6' ? 3 : 1;
    if (largest < 1 || at >= job->size)
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged PPM: its header is cut off", job->name);
    if (largest != 255)
        return TRI_FAIL(TRI_CORRUPT, "%s: a PPM with values up to %lld: save it as PNG", job->name,
                        (long long)largest);
    TRI_TRY(image_begin(job, width, height));
    const uint8_t *from = job->bytes + at + 1;
    if ((size_t)(width * height * channels) > job->size - at - 1)
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged PPM: its pixels are cut off", job->name);
    uint8_t *to = job->pixels->data;
    for (int64_t i = 0; i < width * height; i++, from += channels, to += IMAGE_PIXEL_BYTES) {
        for (int c = 0; c < 3; c++) to[c] = from[channels == 3 ? c : 0];
        to[3] = 0xff;
    }
    return TRI_OK;
}

const image_codec image_ppm = {.name = "PPM", .recognizes = recognizes, .decode = decode};

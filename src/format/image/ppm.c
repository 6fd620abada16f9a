// Binary PPM and PGM (Netpbm): "P6" or "P5", width, height and the largest value as text, with
// comments from # to the end of a line, one white space, then values of one byte, or of two, the
// higher one first, if the largest value is above 255.
#include "format/image/codec.h"

#include <ctype.h>
#include <math.h>

enum { MOST_DIGITS = 9, MOST_VALUES = 1 << 16 };

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

// The byte of each value that can be stored, rounded as Pillow does, to even numbers.
static void fill_bytes(int64_t largest, uint8_t bytes[MOST_VALUES]) {
    for (int64_t i = 0; i < (largest > 255 ? MOST_VALUES : 256); i++)
        bytes[i] = i >= largest ? 255 : (uint8_t)nearbyint((double)i / (double)largest * 255);
}

static tri_status decode(image_job *job) {
    size_t at = 2;
    int64_t width = next_number(job, &at), height = next_number(job, &at),
            largest = next_number(job, &at), channels = job->bytes[1] == '6' ? 3 : 1;
    if (largest < 1 || at >= job->size)
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged PPM: its header is cut off", job->name);
    // Of grey values above 255, Pillow's conversion to RGB cuts off all that are.
    if (largest >= MOST_VALUES || (largest > 255 && channels == 1))
        return TRI_FAIL(TRI_CORRUPT, "%s: a %s with values up to %lld: save it as PNG", job->name,
                        channels == 1 ? "PGM" : "PPM", (long long)largest);
    TRI_TRY(image_begin(job, width, height));
    const uint8_t *from = job->bytes + at + 1;
    int64_t value_bytes = largest > 255 ? 2 : 1;
    if ((size_t)(width * height * channels * value_bytes) > job->size - at - 1)
        return TRI_FAIL(TRI_CORRUPT, "%s: damaged PPM: its pixels are cut off", job->name);
    uint8_t *to = job->pixels->data, bytes[MOST_VALUES];
    fill_bytes(largest, bytes);
    for (int64_t i = 0; i < width * height; i++, to += IMAGE_PIXEL_BYTES) {
        for (int c = 0; c < 3; c++) {
            const uint8_t *value = from + (i * channels + (channels == 3 ? c : 0)) * value_bytes;
            to[c] = bytes[value_bytes == 2 ? value[0] << 8 | value[1] : value[0]];
        }
        to[3] = 0xff;
    }
    return TRI_OK;
}

const image_codec image_ppm = {.name = "PPM", .recognizes = recognizes, .decode = decode};
